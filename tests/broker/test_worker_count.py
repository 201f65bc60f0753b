"""``pybroker serve --workers auto``: how many workers it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pybroker.cli.serve.serve_command import build_parser
from pybroker.cli.serve.worker_count import WORKERS_MAX, automatic_count
from tests.broker.test_workers import workers


@pytest.fixture
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_processors")
@pytest.mark.parametrize(
    ("limit", "count"),
    [
        (None, 8),
        ("max 100000", 8),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("no number", 8),
    ],
)
def test_a_worker_runs_for_each_processor_that_a_container_may_use(
    tmp_path: Path, limit: str | None, count: int
) -> None:
    limit_file = tmp_path / "cpu.max"
    if limit is not None:
        limit_file.write_text(limit)
    assert automatic_count([str(tmp_path / "data")], limit_file) == count


@pytest.mark.usefixtures("eight_processors")
def test_a_directory_of_a_worker_is_never_left_without_its_worker(tmp_path: Path) -> None:
    for name in ("worker-0", "worker-10", "worker-99-old"):
        (tmp_path / "b" / name).mkdir(parents=True)
    assert automatic_count([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "no file") == 11
    (tmp_path / "b" / "worker-5000").mkdir()
    assert automatic_count([str(tmp_path / "b")], tmp_path / "no file") == WORKERS_MAX


@pytest.mark.parametrize("text", ["0", "257", "-1", "all", ""])
def test_a_number_that_is_none_is_refused_with_what_is_taken(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([f"--workers={text}"])
    assert f"expected a number from 1 to 256, or auto, got {text!r}" in capsys.readouterr().err


def test_auto_runs_all_workers_whose_data_is_there(tmp_path: Path) -> None:
    count = automatic_count([]) + 1
    (tmp_path / "data" / f"worker-{count - 1}").mkdir(parents=True)
    with workers(tmp_path / "data", "auto") as (served, processes):
        assert len(processes) == count
        assert served.stop() == 0
