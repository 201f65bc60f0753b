"""The page of all runs."""

from __future__ import annotations

from typing import Any

from failover.kills import Kill
from failover.report import page, summary


def run(client: str, *gaps: float, **others: Any) -> dict[str, Any]:
    kills = [Kill(False, gap > 100, gap, gap, 1, gap, 5, 6, 7)._asdict() for gap in gaps]
    found = {"acknowledged": 1_000, "lost": 0, "repeated": 0, "given_up": 0, "load": 1.0}
    where = {"broker": "pybroker", "metadata": "sqlite", "client": client, "at": "then", "machine": "a machine"}
    return {**where, **found, "kills": kills, **others}


def test_runs_of_one_kind_add_up() -> None:
    text = page([run("librdkafka", 50, 300), run("librdkafka", 100), run("kafka-python", 20)])
    assert "| pybroker | sqlite | librdkafka | 3 | 100 / 300 | 100 / 300 | 1 / 1 | 5 / 5 | 7 / 7 | 300 / 300 |" in text
    assert "| pybroker | sqlite | kafka-python | 1 | 20 / 20 |" in text
    assert "| pybroker | sqlite | librdkafka | 2,000 | 0 | 0 | 0 |" in text


def test_minutes_and_stalls_add_up_and_are_told_of_who_was_tried_alone() -> None:
    busy = {"minutes": 8.0, "busy_failures": 0, "load": 7.0}
    text = page(
        [run("librdkafka", **busy), run("librdkafka", **busy, stalls=50, stall_failures=1), run("kafka-python")]
    )
    assert "| sqlite | librdkafka | 16 | 7 to 7 | 0 | 50 | 1 |" in text
    assert "\n| sqlite | kafka-python |" not in text


def test_a_summary_of_no_kills_says_so() -> None:
    assert summary([run("librdkafka")]) == "nobody was killed"
