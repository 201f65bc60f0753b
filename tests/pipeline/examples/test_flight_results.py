"""What a group has read: the last result wins, the end is known, and is committed by one of the members."""

import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from rich.console import Console

from examples import feed
from examples.flights import results as results_module
from examples.flights.delays import Delays, cell_from_json
from examples.flights.results import (
    LatestResults,
    ResultRecord,
    ResultsNotRead,
    commit_ends,
    end_offsets,
    read_results,
)
from examples.flights.table import delay_table
from pybroker.pipeline.records import Record
from pybroker.pipeline.topics.topic_partitions import TopicPartition
from pybroker.testing import Broker

PARTITION = TopicPartition("flight-delays", 0)
EMPTY_PARTITION = TopicPartition("flight-delays", 1)
KEY = json.dumps({"window_start": "2013-01-01T05:00:00Z", "carrier": "UA", "origin": "EWR"}).encode()


def record(offset: int, flights: int) -> ResultRecord:
    return ResultRecord(offset, KEY, json.dumps({"flights": flights}).encode())


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
    latest = read_nothing_yet(end=2)
    with pytest.raises(ResultsNotRead, match=r"^nothing more comes from flight-delays-0$"):
        latest.complete()
    latest.hear(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ResultsNotRead, match=r"^nothing more comes from flight-delays-0: .*Group authorization"):
        latest.complete()


def test_the_table_fits_a_plain_terminal_and_divides_by_no_zero() -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(
            delay_table({cell_from_json(KEY): Delays(flights=3, cancelled=3)}, {"UA": "United Air Lines Inc."})
        )
    united = next(line for line in capture.get().splitlines() if line.startswith("United"))
    assert united.split() == ["United", "Air", "Lines", "EWR", "3", "100.0%"]


class Member:
    """Of a group: what it has, what becomes of its commits, and what happens as it polls."""

    def __init__(self, has: Iterable[TopicPartition], refusal: int | None = None) -> None:
        self.has = list(has)
        self.refusal = refusal
        self.committed: dict[TopicPartition, int] = {}
        self.polled: Callable[[], None] = lambda: pytest.fail("it polls")

    def assignment(self) -> list[ClientTopicPartition]:
        return [ClientTopicPartition(*each) for each in self.has]

    def commit(self, *, offsets: list[ClientTopicPartition], asynchronous: bool) -> list[ClientTopicPartition]:
        assert not asynchronous
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal))
        self.committed |= {TopicPartition(each.topic, each.partition): each.offset for each in offsets}
        return offsets

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        self.polled()
        return []


def read_to(ends: dict[TopicPartition, int]) -> LatestResults:
    return LatestResults(ends, lambda count: None)


def test_the_only_member_commits_all_ends_and_goes() -> None:
    member = Member([PARTITION, EMPTY_PARTITION])
    commit_ends(cast(Any, member), read_to({PARTITION: 7, EMPTY_PARTITION: 0}))
    assert member.committed == {PARTITION: 7, EMPTY_PARTITION: 0}


def test_a_member_that_another_joins_at_the_end_commits_what_it_has_after_that() -> None:
    latest = read_to({PARTITION: 7, EMPTY_PARTITION: 3})
    member = Member([PARTITION, EMPTY_PARTITION], KafkaError.REBALANCE_IN_PROGRESS)

    def another_joins_and_commits() -> None:
        member.has, member.refusal = [PARTITION], None
        latest.commit([EMPTY_PARTITION])

    member.polled = another_joins_and_commits
    commit_ends(cast(Any, member), latest)
    assert member.committed == {PARTITION: 7}


def test_a_member_without_partitions_stays_until_all_ends_are_committed() -> None:
    """As all are while a rebalance goes on: would they go then, nothing were committed."""
    latest = read_to({PARTITION: 7})
    member = Member([])

    def it_is_given_one() -> None:
        member.has = [PARTITION]

    member.polled = it_is_given_one
    commit_ends(cast(Any, member), latest)
    assert member.committed == {PARTITION: 7}
    commit_ends(cast(Any, Member([])), latest)


def test_a_commit_that_is_refused_is_told_with_its_partitions() -> None:
    member = Member([PARTITION], KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ResultsNotRead, match=r"^flight-delays-0 was read, .*: .*Topic authorization failed"):
        commit_ends(cast(Any, member), read_to({PARTITION: 7}))


def test_a_group_whose_rebalance_never_ends_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = read_to({PARTITION: 7})
    monkeypatch.setattr(results_module, "STALLED_AFTER_SECONDS", -1)
    with pytest.raises(ResultsNotRead, match="no member has it"):
        commit_ends(cast(Any, Member([])), latest)


def result(number: int, flights: int) -> Record:
    key = {"window_start": f"2013-01-{1 + number:02}T05:00:00Z", "carrier": "UA", "origin": "EWR"}
    return Record(key, {"flights": flights}, 1_357_000_000_000)


def test_members_read_a_topic_to_its_end_and_leave_the_group_there(pybroker: Broker) -> None:
    topic = f"delays-{uuid.uuid4().hex[:12]}"
    feed.create_topics(pybroker.bootstrap, [], [topic], table_partitions=3)
    feed.produce(pybroker.bootstrap, topic, [result(day, flights) for flights in (1, 2) for day in range(20)])
    ends = end_offsets(pybroker.bootstrap, topic)
    assert sorted(ends) == [TopicPartition(topic, partition) for partition in range(3)]
    assert sum(ends.values()) == 40

    progress: list[int] = []
    latest = read_results(pybroker.bootstrap, ends, f"group-of-{topic}", 2, progress.append)

    assert [delays.flights for delays in latest.results().values()] == [2] * 20
    assert latest.records_read >= 40
    assert sum(progress) == latest.records_read
    assert committed(pybroker, f"group-of-{topic}", ends) == ends


def committed(broker: Broker, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = consumer.committed([ClientTopicPartition(*each) for each in partitions], timeout=30)
    finally:
        consumer.close()
    return {TopicPartition(each.topic, each.partition): each.offset for each in found}


def test_a_topic_that_is_not_there_has_no_ends_and_is_read_at_once(pybroker: Broker) -> None:
    assert end_offsets(pybroker.bootstrap, "nowhere") == {}
