"""Each record of a range is given once, whatever librdkafka tells among the records; by a client that is played.

Needs Arrow, which comes with Spark: marked like what starts a JVM.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")


def record(offset: int) -> Any:
    from confluent_kafka import Message

    return Message(topic="t", partition=0, offset=offset, value=b"%d" % offset, timestamp=(1, 1_000))


def end(offset: int) -> Any:
    """The end of the partition, as librdkafka tells it."""
    from confluent_kafka import KafkaError, Message

    return Message(topic="t", partition=0, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))


class Played:
    """A client whose partition has records at ``offsets`` and ends at ``behind``; all of it comes in one go.

    It answers questions about the partition, too, whose topic has the id ``topic_id``.
    """

    topic_id = "a"
    leader_epoch = 0
    is_cut = False

    def __init__(self, offsets: list[int], behind: int) -> None:
        self.settings: dict[str, str] = {}
        self._log = [*map(record, offsets), end(behind)]
        self._left: list[Any] = []
        self.assignments: list[int] = []

    def assign(self, partitions: list[Any]) -> None:
        start = partitions[0].offset
        self.assignments.append(start)
        self._left = [each for each in self._log if each.offset() >= start]

    def poll(self, timeout_s: float) -> Any:
        return self._left.pop(0) if self._left else None

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def close(self) -> None:
        pass

    def status(self, at: Any, within_s: float) -> Any:
        from pybroker.pipeline.topics.cluster_queries import PartitionStatus

        return PartitionStatus(self.topic_id, self.leader_epoch, 0, 0 if self.is_cut else self._log[-1].offset())

    def topic_ids(self, names: list[str], within_s: float) -> dict[str, str]:
        return dict.fromkeys(names, self.topic_id)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from pybroker.pipeline.topics import range_reader

    range_reader.close_idle()

    def start(offsets: list[int], behind: int) -> Played:
        client = Played(offsets, behind)

        def made(settings: dict[str, str]) -> Played:
            client.settings = settings
            return client

        monkeypatch.setattr(range_reader, "Consumer", made)
        monkeypatch.setattr(range_reader, "kept_queries", lambda settings: client)
        return client

    yield start
    range_reader.close_idle()


def schema() -> Any:
    import pyarrow as pa

    columns = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
    return pa.schema(columns)


def batches(
    start: int, before: int, *, is_strict: bool = True, client: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Any]:
    from pybroker.pipeline.topics.range_reader import Reading, read_range
    from pybroker.pipeline.topics.ranges import OffsetRange
    from pybroker.pipeline.topics.topic_partitions import TopicPartition

    reading = Reading(client, schema(), 0.2, fail_on_data_loss=is_strict)
    return read_range(reading, OffsetRange(TopicPartition("t", 0), start, before, "a"))


def read(start: int, before: int) -> list[int]:
    return [offset for batch in batches(start, before) for offset in batch.column("offset").to_pylist()]


def test_the_end_that_was_told_with_records_behind_a_range_does_not_move_it(play: Any) -> None:
    client = play([6, 7, 8], 9)
    assert read(0, 7) == [6]
    client._log[-1:] = [record(9), record(10), end(11)]  # written since; another process reads 7 and 8
    assert read(9, 11) == [9, 10]


def test_the_end_that_was_told_too_early_is_told_to_the_next_range(play: Any) -> None:
    client = play([6, 7], 10)  # 8 and 9 are markers
    assert read(0, 7) == [6]
    assert read(7, 10) == [7]
    assert client.assignments == [0]


def test_ranges_one_after_another_are_read_without_a_seek(play: Any) -> None:
    client = play(list(range(10)), 10)
    assert [read(start, start + 2) for start in range(0, 10, 2)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert client.assignments == [0]


@pytest.mark.parametrize(
    "change",
    [{}, {"leader_epoch": 1}, {"leader_epoch": -1}, {"is_cut": True}],
    ids=["nothing", "another leader", "no epoch is told", "an end before the range's"],
)
def test_what_was_fetched_ahead_is_dropped_where_the_partition_may_have_another_history(
    play: Any, change: dict[str, Any]
) -> None:
    client = play(list(range(10)), 10)
    assert read(0, 5) == [0, 1, 2, 3, 4]
    for name, value in change.items():
        setattr(client, name, value)
    assert read(5, 10) == [5, 6, 7, 8, 9]
    assert client.assignments == ([0, 5] if change else [0])


def test_where_a_cluster_gives_topics_no_ids_nothing_that_was_fetched_ahead_is_taken(
    play: Any,
) -> None:
    from pybroker.pipeline.topics.range_reader import Reading, read_range
    from pybroker.pipeline.topics.ranges import OffsetRange
    from pybroker.pipeline.topics.topic_partitions import TopicPartition

    client = play(list(range(4)), 4)
    client.topic_id = ""
    reading = Reading({}, schema(), 0.2, fail_on_data_loss=True)
    for start in (0, 2):
        (batch,) = read_range(reading, OffsetRange(TopicPartition("t", 0), start, start + 2))
        assert batch.column("offset").to_pylist() == [start, start + 1]
    assert client.assignments == [0, 2]


@pytest.mark.parametrize("topic_id", ["b", None], ids=["made anew", "gone"])
def test_rows_that_were_read_while_the_topic_changed_are_not_given(
    play: Any, monkeypatch: pytest.MonkeyPatch, topic_id: str | None
) -> None:
    """The client goes on with the topic that is there now, at the same offset, without a word."""
    from pybroker.pipeline.topics import range_reader

    monkeypatch.setattr(range_reader, "SETTLES_WITHIN_S", 0.0)
    client = play(list(range(10)), 10)
    monkeypatch.setattr(client, "topic_ids", lambda *_: {} if topic_id is None else {"t": topic_id})
    with pytest.raises(range_reader.DataLoss, match=r"t-0 (was made anew|is gone)"):
        list(batches(0, 10))
    assert list(batches(0, 10, is_strict=False)) == []


def test_a_range_ends_where_its_topic_was_made_anew_and_the_new_one_is_shorter(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record and no error comes from there: it waited for as long as a record may take, and the task failed."""
    from pybroker.pipeline.topics import range_reader

    monkeypatch.setattr(range_reader, "SETTLES_WITHIN_S", 0.0)
    client = play([0, 1, 2], 3)
    monkeypatch.setattr(client, "topic_ids", lambda *_: {"t": "b"})
    with pytest.raises(range_reader.DataLoss, match="t-0 was made anew"):
        read(0, 10)
    assert list(batches(0, 10, is_strict=False)) == []


def test_a_range_reads_no_further_in_a_topic_that_is_not_the_planned_one(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import range_reader

    monkeypatch.setattr(range_reader, "SETTLES_WITHIN_S", 0.0)
    monkeypatch.setattr(range_reader, "ROWS_MAX", 2)
    monkeypatch.setattr(range_reader, "PORTION_ROWS", 2)
    client = play(list(range(100)), 100)
    monkeypatch.setattr(client, "topic_ids", lambda *_: {"t": "b"})
    assert list(batches(0, 100, is_strict=False)) == []
    assert len(client._left) == 99


def test_a_broker_that_has_not_heard_of_the_topic_yet_is_asked_again(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = play(list(range(10)), 10)
    said = iter(["former", None, "a"])
    monkeypatch.setattr(client, "topic_ids", lambda *_: {"t": topic_id} if (topic_id := next(said)) else {})
    assert read(0, 10) == list(range(10))


RECORD_OVERHEAD_BYTES = 300  # what librdkafka has for each record beside its key and value


def test_idle_consumers_hold_a_bounded_part_of_the_memory(play: Any) -> None:
    from pybroker.pipeline.topics.range_reader import IDLE_CONSUMERS_MAX

    client = play([0], 1)
    read(0, 1)
    held_bytes = int(client.settings["queued.max.messages.kbytes"]) * 1024
    held_records = int(client.settings["queued.min.messages"])
    assert IDLE_CONSUMERS_MAX * (held_bytes + held_records * RECORD_OVERHEAD_BYTES) < 240e6


def test_a_consumer_asks_for_more_before_what_it_holds_is_taken(play: Any) -> None:
    """librdkafka's own second would have a task wait that takes 16 MiB in a tenth of one, or 500,000 records in one."""
    client = play([0], 1)
    read(0, 1)
    held_bytes = int(client.settings["queued.max.messages.kbytes"]) * 1024
    held_records = int(client.settings["queued.min.messages"])
    pause_s = int(client.settings["fetch.queue.backoff.ms"]) / 1_000
    assert held_bytes / pause_s > 500e6
    assert held_records / pause_s >= 2e6


def test_what_a_user_says_of_fetching_ahead_wins(play: Any) -> None:
    client = play([0], 1)
    given = {"queued.max.messages.kbytes": "65536", "queued.min.messages": "7"}
    assert list(batches(0, 1, client=given))
    assert given.items() <= client.settings.items()


def test_gaps_between_offsets_stay_where_they_are_across_portions_of_one_batch(play: Any) -> None:
    from pybroker.pipeline.topics.range_reader import PORTION_ROWS, ROWS_MAX

    offsets = [offset for offset in range(3 * PORTION_ROWS) if offset % 100]  # compacted, or markers
    assert 2 * PORTION_ROWS < len(offsets) < ROWS_MAX
    play(offsets, 3 * PORTION_ROWS)
    assert read(0, 3 * PORTION_ROWS) == offsets


def test_each_record_keeps_its_own_kind_of_timestamp() -> None:
    import pyarrow as pa
    from confluent_kafka import Message

    from pybroker.pipeline.topics.source_columns import record_batch

    def of_kind(kind: int, at_ms: int) -> Any:
        return Message(topic="t", partition=0, offset=at_ms, value=b"v", timestamp=(kind, at_ms))

    made = record_batch([of_kind(1, 5), of_kind(2, 6)], schema())
    assert made.column("timestampType").to_pylist() == [0, 1]  # Kafka's CreateTime and LogAppendTime
    assert made.column("timestamp").cast(pa.int64()).to_pylist() == [5_000, 6_000]
    assert record_batch([of_kind(2, 7)], schema()).column("timestampType").to_pylist() == [1]


def test_a_timestamp_beyond_those_of_spark_is_told_with_its_record() -> None:
    from confluent_kafka import Message

    from pybroker.pipeline.topics.source_columns import UnreadableTimestamp, record_batch

    last_ms = (2**63 - 1) // 1_000
    messages = [
        Message(topic="t", partition=3, offset=at, value=b"v", timestamp=(1, at_ms))
        for at, at_ms in ((7, last_ms), (9, last_ms + 1))
    ]
    assert record_batch(messages[:1], schema()).num_rows == 1
    with pytest.raises(UnreadableTimestamp, match=rf"t-3 at offset 9 has the timestamp {last_ms + 1} ms"):
        record_batch(messages, schema())


def test_the_garbage_collector_works_while_rows_are_elsewhere(play: Any) -> None:
    import gc

    from pybroker.pipeline.topics.range_reader import ROWS_MAX

    play(list(range(2 * ROWS_MAX)), 2 * ROWS_MAX)
    assert [gc.isenabled() for _ in batches(0, 2 * ROWS_MAX)] == [True, True]
    assert gc.isenabled()


def test_a_poll_in_vain_ends_after_its_timeout(play: Any) -> None:
    """A record that never comes, as that of a broker that hangs."""
    from pybroker.pipeline.topics.range_reader import ReadTimeout

    client = play([0, 1], 4)
    del client._log[-1]
    client.is_cut = True
    with pytest.raises(ReadTimeout, match=r"no record of t-0 from 2 on within 0\.2 s"):
        read(0, 4)
