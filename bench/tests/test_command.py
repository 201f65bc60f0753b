"""The benchmark's command: what was measured outlives whatever comes behind it."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from harness import results
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

import bench.report
from bench import taken_memory
from bench.__main__ import begin_again, disturbed_parts, parse_arguments, run_parts
from bench.contestants import FLOOR, PYBROKER, make
from bench.context import QUICK, Context, back_with_memory, stopped
from bench.measurements import Measurements
from bench.report import RunInfo, print_changes, print_report, read_json
from bench.taken_memory import SmallBlocks

AddPart = Callable[[str, Callable[[Context], None]], None]


@pytest.fixture
def add_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AddPart:
    monkeypatch.setattr(bench.report, "DIRECTORY", tmp_path)
    monkeypatch.setattr(results, "write", lambda _part, _document: None)

    def add(name: str, run: Callable[[Context], None]) -> None:
        module = ModuleType(name)
        vars(module)["run"] = run
        monkeypatch.setitem(sys.modules, f"bench.parts.{name}", module)

    return add


def measure_one(context: Context) -> None:
    context.add("requests", "1/s", PYBROKER, 1.0)


def interrupt(_context: Context) -> None:
    raise KeyboardInterrupt


def fail(_context: Context) -> None:
    raise TimeoutError("no reply")


def test_samples_of_finished_parts_outlive_a_run_that_is_cut_off(add_part: AddPart, tmp_path: Path) -> None:
    add_part("first", measure_one)
    add_part("second", interrupt)
    info = RunInfo("scripts/bench", load_before=0.1)
    with pytest.raises(KeyboardInterrupt):
        run_parts(Context([PYBROKER], QUICK, tmp_path), ["first", "second"], info)
    (written,) = (tmp_path / "results").iterdir()
    assert [metric["part"] for metric in json.loads(written.read_text())["metrics"]] == ["first"]


def test_part_that_fails_is_named_and_the_next_one_runs(add_part: AddPart, tmp_path: Path) -> None:
    add_part("first", fail)
    add_part("second", measure_one)
    info = RunInfo("scripts/bench", load_before=0.1)
    context = Context([PYBROKER], QUICK, tmp_path)
    run_parts(context, ["first", "second"], info)
    assert info.failed == ["first"]
    assert [metric.part for metric in context.measurements] == ["second"]
    assert len(list((tmp_path / "results").iterdir())) == 1, "a run has one file"


def test_time_that_the_host_took_is_told_by_part() -> None:
    info = RunInfo("scripts/bench", load_before=0.1)
    info.stolen = {"tiny": 0.0, "large": 0.058}
    assert "Processor time that the host took for others: tiny 0.0%, large 5.8%." in info.lines()
    info.stolen["large"] = 0.0
    assert not any("the host took" in line for line in info.lines()), "a machine that is nobody's guest"


def test_memory_for_the_page_cache_leaves_no_file(tmp_path: Path) -> None:
    back_with_memory(tmp_path, 3_000_000)
    assert not list(tmp_path.iterdir())


def test_terminal_shows_the_bars_that_were_measured(capsys: pytest.CaptureFixture[str]) -> None:
    measurements = Measurements()
    measurements.add("memory", "idle RSS", "MB", PYBROKER, 32.0)
    print_report(RunInfo("scripts/bench", load_before=0.1), measurements)
    shown = capsys.readouterr().out
    assert "≤ 60 MB" in shown
    assert "not measured" not in shown


def test_another_pybroker_stands_in_the_place_of_apache_kafka(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "pybroker"
    command.write_text("")
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "--before", str(command)])
    with pytest.raises(SystemExit):
        parse_arguments()
    assert f"{command} is no command" in capsys.readouterr().err
    command.chmod(0o755)
    before, *others = parse_arguments().brokers
    assert (before, others) == (str(command), [PYBROKER, FLOOR])
    broker = make(before, tmp_path / "data")
    assert isinstance(broker, PybrokerProcess)
    assert broker.command == command

    measurements = Measurements()
    measurements.add("startup", "ready", "ms", before, 200.0)
    measurements.add("startup", "ready", "ms", PYBROKER, 150.0)
    print_changes(RunInfo("scripts/bench", load_before=0.1), measurements, before)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("startup")]
    assert row.split() == ["startup", "ready", "ms", "200", "150", "–", "0.75", "–"]


def test_failed_and_disturbed_parts_are_measured_again_and_said_to_be(add_part: AddPart, tmp_path: Path) -> None:
    add_part("fails", fail)
    add_part("steady", measure_one)
    add_part("stolen", measure_one)
    info = RunInfo("scripts/bench", load_before=0.1)
    run_parts(Context([PYBROKER], QUICK, tmp_path), ["fails", "steady", "stolen"], info)
    info.stolen = {"fails": 0.0, "steady": 0.09, "stolen": 0.2}

    (written,) = (tmp_path / "results").iterdir()
    _, measurements = read_json(written)
    assert disturbed_parts(info) == ["fails", "stolen"]
    begin_again(info, measurements, disturbed_parts(info))
    add_part("fails", measure_one)
    run_parts(Context([PYBROKER], QUICK, tmp_path, measurements), ["fails", "stolen"], info)

    found, measurements = read_json(written)
    assert not found.failed
    assert {metric.part: metric.samples[PYBROKER] for metric in measurements} == {
        "steady": [1.0],
        "stolen": [1.0],
        "fails": [1.0],
    }
    assert [line for line in found.lines() if "again: stolen, of which the host had taken 20.0%, at 20" in line]
    assert [line for line in found.lines() if "again: fails, which had failed, at 20" in line]


def test_part_that_is_named_is_said_to_be_measured_again_as_it_was_asked_for() -> None:
    info = RunInfo("scripts/bench", load_before=0.1)
    info.stolen = {"steady": 0.01}
    begin_again(info, Measurements(), ["steady"])
    assert [line for line in info.lines() if "again: steady, which was asked for, at 20" in line]


def test_who_is_not_measured_does_not_run_meanwhile_and_does_afterwards_whatever_happens() -> None:
    def measure() -> None:
        with stopped([other.pid]):
            wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it stands still")
            raise ZeroDivisionError

    with subprocess.Popen(["sleep", "60"]) as other:
        process = psutil.Process(other.pid)
        try:
            with pytest.raises(ZeroDivisionError):
                measure()
            wait_until(lambda: process.status() == psutil.STATUS_SLEEPING, "it goes on")
        finally:
            other.kill()


def test_what_a_process_has_started_stands_still_with_it_and_goes_on_with_it() -> None:
    def have(status: str) -> bool:
        return all(each.status() == status for each in (root, *root.children()))

    # Python waits for its child, as a supervisor for its workers.
    waiting = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", waiting]) as process:
        root = psutil.Process(process.pid)
        try:
            wait_until(root.children, "the child")
            with stopped([process.pid]):
                wait_until(lambda: have(psutil.STATUS_STOPPED), "both stand still")
            wait_until(lambda: have(psutil.STATUS_SLEEPING), "both go on")
        finally:
            for each in (*root.children(), root):
                each.kill()


def test_directory_that_is_none_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--directory", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit) as ended:
        parse_arguments()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("nowhere is no directory")


def test_part_that_is_taken_back_shows_nothing_until_it_is_measured_again_in_its_place() -> None:
    measurements = Measurements()
    for part in ("first", "second"):
        measurements.add(part, "requests", "1/s", PYBROKER, 1.0)
    measurements.forget("first")
    assert [metric.part for metric in measurements] == ["second"]
    measurements.add("first", "requests", "1/s", PYBROKER, 2.0)
    assert [metric.part for metric in measurements] == ["first", "second"]


def hold_chunks(monkeypatch: pytest.MonkeyPatch, costs: Iterator[float], available: int = 1 << 40) -> int:
    """How many chunks are held when each costs so much system time."""
    held: list[float] = []

    def hold(blocks: SmallBlocks) -> float:
        held.append(next(costs))
        blocks._held.append(mmap.mmap(-1, 1))
        return held[-1]

    monkeypatch.setattr(taken_memory, "available_bytes", lambda: available)
    monkeypatch.setattr(SmallBlocks, "_hold_chunk", hold)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with SmallBlocks() as blocks:
        blocks.hold()
    return len(held)


def test_memory_is_held_until_the_host_has_to_give_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    present, given = 0.2, 3.0
    costs = [present, given, given, given, present, *[given] * taken_memory.TAKEN_CHUNKS]
    assert hold_chunks(monkeypatch, iter([*costs, given])) == len(costs), "a lucky chunk between is none"


def test_host_that_takes_nothing_back_costs_half_of_the_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hold_chunks(monkeypatch, repeat(0.2), available=10 * taken_memory.CHUNK_BYTES) == 5


def test_held_chunk_is_told_with_its_cost(tmp_path: Path) -> None:
    with SmallBlocks() as blocks:
        assert blocks._hold_chunk() >= 0
        (chunk,) = blocks._held
        assert chunk[0] == chunk[-mmap.PAGESIZE] == 1
    assert taken_memory.page_cache_write_s_per_gb(tmp_path) >= 0
    assert not list(tmp_path.iterdir())
