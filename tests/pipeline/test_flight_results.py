"""What a group has read: the last result wins, and the end is known."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import RebalanceInProgressError
from rich.console import Console

from pybroker.pipeline.flights import results as results_module
from pybroker.pipeline.flights.delays import Delays, cell_from_json
from pybroker.pipeline.flights.results import LatestResults, ResultsStalled, commit_ends
from pybroker.pipeline.flights.table import delay_table

PARTITION = TopicPartition("flight-delays", 0)
EMPTY_PARTITION = TopicPartition("flight-delays", 1)
KEY = json.dumps({"window_start": "2013-01-01T05:00:00Z", "carrier": "UA", "origin": "EWR"}).encode()


class Record(NamedTuple):
    offset: int
    key: bytes
    value: bytes


def record(offset: int, flights: int) -> Record:
    return Record(offset, KEY, json.dumps({"flights": flights}).encode())


def read_nothing_yet(end: int) -> LatestResults:
    return LatestResults({PARTITION: end, EMPTY_PARTITION: 0}, lambda count: None)


def test_the_last_result_of_a_cell_wins() -> None:
    latest = read_nothing_yet(end=2)
    latest.add(PARTITION, [record(0, flights=1), record(1, flights=2)])
    assert latest.results() == {cell_from_json(KEY): Delays(flights=2)}
    assert latest.records_read == 2


def test_a_record_that_a_rebalance_delivers_again_does_not_win_over_a_later_one() -> None:
    latest = read_nothing_yet(end=2)
    latest.add(PARTITION, [record(0, flights=1), record(1, flights=2)])
    latest.add(PARTITION, [record(0, flights=1)])
    assert latest.results() == {cell_from_json(KEY): Delays(flights=2)}


def test_the_group_is_done_when_every_partition_is_at_the_end_that_it_had() -> None:
    latest = read_nothing_yet(end=2)
    latest.add(PARTITION, [record(0, flights=1)])
    assert not latest.complete()
    latest.add(PARTITION, [record(1, flights=1)])
    assert latest.complete()


def test_an_empty_topic_is_read_at_once() -> None:
    assert read_nothing_yet(end=0).complete()


def test_a_group_that_gets_nothing_more_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "STALLED_AFTER_SECONDS", -1)
    with pytest.raises(ResultsStalled):
        read_nothing_yet(end=2).complete()


def test_the_table_fits_a_plain_terminal_and_divides_by_no_zero() -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(
            delay_table({cell_from_json(KEY): Delays(flights=3, cancelled=3)}, {"UA": "United Air Lines Inc."})
        )
    united = next(line for line in capture.get().splitlines() if line.startswith("United"))
    assert united.split() == ["United", "Air", "Lines", "EWR", "3", "100.0%"]


class Member:
    """Of a group that another member joins, so that one of two partitions goes to that one."""

    def __init__(self) -> None:
        self._has = {PARTITION, EMPTY_PARTITION}
        self.committed: Mapping[TopicPartition, OffsetAndMetadata] = {}

    def assignment(self) -> set[TopicPartition]:
        return self._has

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if len(self._has) > 1:
            raise RebalanceInProgressError
        self.committed = offsets

    def poll(self, timeout_ms: int) -> None:
        self._has = {PARTITION}


def test_a_member_that_another_joins_at_the_end_commits_what_it_has_after_that() -> None:
    member = Member()
    commit_ends(cast(Any, member), {PARTITION: 7, EMPTY_PARTITION: 3})
    assert member.committed == {PARTITION: OffsetAndMetadata(7)}
