"""Gaps between events, and the comparison of what was acknowledged with what is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from failover.events import ACKNOWLEDGED, Account, Event, Journal, account, longest_gap_ms

MS = 1_000_000


def test_the_longest_gap_counts_from_the_last_event_before_to_the_end_of_the_span() -> None:
    times = [0, 10 * MS, 15 * MS, 60 * MS, 70 * MS]
    assert longest_gap_ms(times, 20 * MS, 75 * MS) == 45
    assert longest_gap_ms(times, 61 * MS, 100 * MS) == 30
    assert longest_gap_ms([], 20 * MS, 75 * MS) == 55


def test_a_journal_grows_and_passes_over_what_a_library_prints(tmp_path: Path) -> None:
    path = tmp_path / "write.log"
    journal = Journal(path)
    path.write_text("%3|FAIL|a library says so\n" + Event(ACKNOWLEDGED, 5, 1, 7).line() + "acknowledged 9 1")
    journal.read()
    assert journal.count(ACKNOWLEDGED) == 1
    with path.open("a") as lines:
        lines.write(" 8\n")
    journal.read()
    assert journal.values[ACKNOWLEDGED, 1] == Counter((7, 8))
    assert journal.has_after(ACKNOWLEDGED, 1, 8)
    assert not journal.has_after(ACKNOWLEDGED, 1, 9)
    assert not journal.has_after(ACKNOWLEDGED, 2, 0)


def test_what_was_acknowledged_is_lost_or_repeated_in_its_own_partition() -> None:
    acknowledged = {0: Counter((1, 2, 3)), 1: Counter((4,))}
    in_log = {0: Counter((1, 2, 2, 9)), 1: Counter((3, 4))}
    assert account(acknowledged, in_log) == Account(acknowledged=4, lost=1, repeated=1)
