"""A report's parts are run now: what an earlier run left is never taken for this one's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from harness import process_tree, results
from harness.machine import now_text

import bench.report
from bench.contestants import PYBROKER
from bench.measurements import Measurements
from bench.report import RunInfo, write_json
from report import parts
from report.parts import (
    BENCH,
    HISTORIES,
    MUTANTS,
    NOT_RUN,
    PARTS,
    RAN,
    SCENARIOS,
    Options,
    PartRun,
    Run,
    Target,
    run_parts,
)

OTHER = Options(Target(bootstrap="example:9092"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose only scripts are those that a test writes."""
    (tmp_path / "scripts").mkdir()
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    return tmp_path


def write_script(checkout: Path, name: str, body: str) -> None:
    script = checkout / "scripts" / name
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


def new_run() -> Run:
    return Run("command", "pybroker", now_text())


def run_one(checkout: Path, name: str, options: Options | None = None) -> PartRun:
    run = new_run()
    run_parts(run, [name], options or Options(), checkout / "logs")
    assert {other for other, part in run.parts.items() if part.exit_code is not None} <= {name}
    return run.parts[name]


def test_results_of_this_run_are_taken(checkout: Path) -> None:
    write_script(checkout, "mutants", f"mkdir -p results; echo '[\"now\"]' > {results.path_of('mutants')}; exit 1")
    part = run_one(checkout, MUTANTS)
    assert (part.state, part.exit_code, part.found) == (RAN, 1, ["now"])


def test_results_of_an_earlier_run_are_not(checkout: Path) -> None:
    results.write("mutants", ["earlier"])
    write_script(checkout, "mutants", "echo it broke; exit 2")
    part = run_one(checkout, MUTANTS)
    assert (part.state, part.found, part.output) == (NOT_RUN, None, "it broke")
    assert "exit code 2" in part.reason


def test_head_to_head_hands_its_samples_over(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.report, "DIRECTORY", checkout)
    measurements = Measurements()
    measurements.add("tiny", "requests", "1/s", PYBROKER, 1.0)
    kept = write_json(RunInfo("scripts/bench", load_before=0.1), measurements)
    found = results.read(PARTS[BENCH].result)
    assert found == json.loads(kept.read_text())
    assert found["metrics"] == measurements.to_json()


def test_part_without_its_script_did_not_run(checkout: Path) -> None:
    assert run_one(checkout, MUTANTS).reason == "there is no scripts/mutants"


def test_part_that_is_left_out_says_so(checkout: Path) -> None:
    run = new_run()
    run_parts(run, [], Options(), checkout / "logs")
    assert {part.reason for part in run.parts.values()} == {"left out"}


def test_parts_that_a_run_did_not_reach_say_that_it_was_cut_off(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object, **__: object) -> NoReturn:
        raise SystemExit(143)

    write_script(checkout, "histories", "exit 0")
    write_script(checkout, "mutants", f"mkdir -p results; echo '[]' > {results.path_of('mutants')}")
    run = new_run()
    run_parts(run, [MUTANTS], Options(), checkout / "logs")
    monkeypatch.setattr(process_tree, "run", cut_off)
    with pytest.raises(SystemExit):
        run_parts(run, [HISTORIES], Options(), checkout / "logs")
    assert run.parts[MUTANTS].state == RAN
    assert run.parts[HISTORIES] == PartRun(reason="the run was cut off before its end")


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.pybroker_alone])
def test_part_about_pybroker_alone_is_not_run_against_another_broker(checkout: Path, name: str) -> None:
    write_script(checkout, PARTS[name].script, "exit 1")
    part = run_one(checkout, name, OTHER)
    assert part.exit_code is None
    assert "pybroker alone" in part.reason


def test_broker_clients_and_further_arguments_reach_the_scenarios(checkout: Path) -> None:
    path = results.path_of("scenarios")
    write_script(checkout, "conformance", f'mkdir -p results; printf \'["%s"]\' "$*" > {path}')
    options = Options(OTHER.target, ("--client", "kafkajs", "-k", "seek"))
    assert run_one(checkout, SCENARIOS, options).found == ["--bootstrap example:9092 --client kafkajs -k seek"]
    assert json.loads(path.read_text())


def test_arguments_for_the_head_to_head_reach_it(checkout: Path) -> None:
    write_script(checkout, "bench", f'mkdir -p results; printf \'["%s"]\' "$*" > {results.path_of("bench")}')
    options = Options(bench_arguments=("--only", "tiny", "--write"))
    assert run_one(checkout, BENCH, options).found == ["--only tiny --write"]


def test_apache_kafka_is_asked_by_its_option() -> None:
    assert Target(apache=True).arguments() == ["--apache"]
    assert Target().arguments() == []
    assert [str(target) for target in (Target(), Target(apache=True), OTHER.target)] == [
        "pybroker",
        "Apache Kafka",
        "example:9092",
    ]
