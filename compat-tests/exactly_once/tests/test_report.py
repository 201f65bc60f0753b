"""The page of all runs."""

from __future__ import annotations

from typing import Any

from exactly_once.report import page, summary


def run(sink: str, **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": 1, "kills": ["driver", "broker"], "failures": [], "records": 1_000, "repeated": 0}
    found |= {"missing": 0, "skipped": 3, "mode": "append"}
    return {"sink": sink, "seconds": 12.4, **found, **others}


def test_runs_of_a_sink_add_up() -> None:
    text = page([run("pybroker"), run("pybroker", failures=["x"]), run("kafka", repeated=70)], "a machine")
    assert '| ours, `format("pybroker")` | 2 | 4 | 2,000 | 0 | 0 | 0 | 6 | 12 | 1 |' in text
    assert '| Spark\'s own, `format("kafka")` | 1 | 2 | 1,000 | 70 | 1 | 0 | 3 | 12 | 0 |' in text
    assert "broker 3, driver 3" in text


def test_a_run_tells_whom_it_killed_and_why_queries_failed() -> None:
    told = summary(run("pybroker", failures=["no broker"]))
    assert "driver broker killed" in told
    assert told.endswith("\n  failed: no broker")
