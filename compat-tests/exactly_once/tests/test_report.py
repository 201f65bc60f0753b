"""The page of all runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from exactly_once.report import page, read_series, series_of, summary, write_series


def run(sink: str, **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": 1, "kills": ["driver", "broker"], "failures": [], "records": 1_000, "repeated": 0}
    found |= {"missing": 0, "skipped": 3, "mode": "append", "brokers": 1}
    return {"sink": sink, "seconds": 12.4, **found, **others}


def test_runs_of_a_sink_add_up() -> None:
    runs = [run("pybroker"), run("pybroker", failures=["x"]), run("kafka", repeated=70)]
    text = page(series_of(runs, "2026-11-24", "a machine"))
    assert '| 2026-11-24 | ours, `format("pybroker")` | 1 | 2 | 4 | 2,000 | 0 | 0 | 0 | 6 | 12 | 1 |' in text
    assert '| 2026-11-24 | Spark\'s own, `format("kafka")` | 1 | 1 | 2 | 1,000 | 70 | 1 | 0 | 3 | 12 | 0 |' in text
    assert "broker 3, driver 3" in text


def test_series_of_several_days_add_up_and_keep_what_was_said_of_them(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    first = series_of([run("pybroker")] * 3, "2026-11-23", "a machine", "on a busy machine.")
    write_series([*first, *series_of([run("pybroker", seconds=20.0)], "2026-11-24", "another machine")], path)
    text = page(read_series(path))
    assert '| 2026-11-23 | ours, `format("pybroker")` | 1 | 3 | 6 | 3,000 | 0 | 0 | 0 | 9 | 12 | 0 |' in text
    assert '| **all** | ours, `format("pybroker")` | 1 | 4 | 8 | 4,000 | 0 | 0 | 0 | 12 | 12–20 | 0 |' in text
    assert '2026-11-23, ours, `format("pybroker")`, 1 broker: seeds 1. on a busy machine.' in text
    assert text.endswith("Machine: a machine\n\nMachine: another machine\n")


def test_runs_on_three_brokers_add_up_apart_from_those_on_one() -> None:
    runs = [run("pybroker"), run("pybroker", brokers=3), run("pybroker", brokers=3)]
    text = page(series_of(runs, "2026-11-24", "a machine", "a note"))
    for day in ("2026-11-24", "**all**"):
        assert f'| {day} | ours, `format("pybroker")` | 1 | 1 | 2 | 1,000 |' in text
        assert f'| {day} | ours, `format("pybroker")` | 3 | 2 | 4 | 2,000 |' in text
    assert '2026-11-24, ours, `format("pybroker")`, 3 brokers: seeds 1. a note' in text


def test_a_series_tells_its_seeds_so_that_another_sink_may_have_the_same(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    write_series(series_of([run("kafka", seed=seed) for seed in (9, 4, 3, 5)], "2026-11-24", "a machine"), path)
    assert 'Spark\'s own, `format("kafka")`, 1 broker: seeds 3-5, 9.' in page(read_series(path))


def test_series_that_name_no_number_of_brokers_had_one(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    (told,) = series_of([run("pybroker")], "2026-11-23", "a machine")
    older = {name: value for name, value in asdict(told).items() if name not in ("brokers", "seeds")}
    path.write_text(f"{json.dumps(older)}\n")
    assert read_series(path) == [replace(told, seeds=())]


def test_a_run_tells_whom_it_killed_and_why_queries_failed() -> None:
    told = summary(run("pybroker", failures=["no broker"], brokers=3))
    assert told.startswith("pybroker 3 brokers append seed 1: ")
    assert "driver broker killed" in told
    assert told.endswith("\n  failed: no broker")
