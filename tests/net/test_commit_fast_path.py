"""The fast path of OffsetCommit answers and writes what the ordinary way does, and gives way where it does not fit."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from harness.waiting import wait_until
from harness.wire import Client

from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.net.conftest import processor_of, served_side, topic_id

VERSIONS = range(2, 11)
Commits = dict[tuple[str, int], tuple[int, str | None]]
pytestmark = pytest.mark.usefixtures("fast_paths_from_the_first_request")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"offset.metadata.max.bytes": "100"}) as running:
        running.create_topic("t", partitions=4)
        running.create_topic("u", partitions=2)
        yield running


def commit(broker: Broker, offsets: Commits, group: str = "g", generation: int = -1, epoch: int = -1) -> Any:
    """A request for {(topic, partition): (offset, metadata)}."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), (offset, metadata) in offsets.items():
        topic = topics.setdefault(
            name, OffsetCommitRequestTopic(name=name, topic_id=topic_id(broker, name), partitions=[])
        )
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        topic.partitions.append(partition)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=list(topics.values()),
    )


def requests(broker: Broker) -> list[OffsetCommitRequest]:
    """Runs of requests that are alike but for their offsets, and between them some that only look alike."""
    plain = [commit(broker, {("t", 0): (offset, "")}, epoch=offset % 3 - 1) for offset in (5, 6, 2**40, 4, -1, 0)]
    wide = [
        commit(broker, {("t", 0): (offset, ""), ("t", 3): (7, "note"), ("u", 1): (offset, None)}) for offset in range(4)
    ]
    odd = [
        commit(broker, {("t", 1): (5, "")}),
        commit(broker, {("t", 0): (5, "m")}),
        commit(broker, {("t", 0): (5, "m" * 101)}),
        commit(broker, {("t", 4): (5, "")}),
        commit(broker, {("nowhere", 0): (5, "")}),
        commit(broker, {("t", 0): (5, ""), ("t", 9): (6, "")}),
        commit(broker, {("t", 0): (5, "")}, generation=3),
        commit(broker, {("t", 0): (5, "")}, group="h"),
        commit(broker, {}),
        # The numbers by which a fast path finds out where the offsets stand.
        commit(broker, {("t", 0): (0x51A7E5C0FFEE1234, "")}, epoch=0x51A7E5C0),
        commit(broker, {("t", 0): (1, "\x51")}),
        commit(broker, {("t", 0): (1, "x" * 90), ("t", 1): (2, "y" * 90)}),
    ]
    long = commit(broker, {("t", 0): (1, "")}, group="g" * 9_000)
    made = [*plain, *wide, *plain]
    for request in odd:
        made += [request, deepcopy(request), *plain[:2]]
    return [*made, long, long, *plain]


class Consumer:
    """One connection to the broker."""

    def __init__(self, broker: Broker) -> None:
        self.wire = Client((broker.host, broker.port))
        self.wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        self.answered = 1

    def post(self, *requests: OffsetCommitRequest, version: int) -> None:
        """Send requests in one piece."""
        self.wire.post(*requests, version=version)

    def reply(self, version: int) -> bytes:
        """The next reply without its correlation id."""
        payload = self.wire.receive_payload()
        assert payload is not None
        self.answered += 1
        assert struct.unpack_from(">i", payload) == (self.answered,), "replies come in the order of requests"
        return payload[4:]

    def errors(self, version: int) -> list[int]:
        """The errors of the next reply."""
        flexible = codec.is_flexible(OffsetCommitRequest, version)
        response = codec.decode(OffsetCommitResponse, version, self.reply(version)[1 if flexible else 0 :])
        return [partition.error_code for topic in response.topics for partition in topic.partitions]


def written(broker: Broker) -> dict[Any, Any]:
    """What each partition of the internal topic holds: (log end, offsets without the time of their commit)."""
    coordinator = broker._running().services.groups
    found: dict[Any, Any] = {}
    for partition, shard in coordinator._runtime._contexts.items():
        offsets = {
            (topic.group_id, topic.topic, index): value
            for topics in shard.state.offsets._by_group.values()
            for topic in topics.values()
            for index, value in topic.values.items()
        }
        found[partition] = shard.written_end, {key: value[:14] for key, value in offsets.items()}
    return found


def test_retention_of_its_own_goes_the_ordinary_way(broker: Broker) -> None:
    consumer = Consumer(broker)
    retaining = commit(broker, {("t", 0): (1, "")})
    retaining.retention_time_ms = 60_000
    for _ in range(2):
        consumer.post(retaining, version=4)
        assert consumer.errors(4) == [0]
    (offsets,) = [offsets for _, offsets in written(broker).values() if offsets]
    assert [value[:2] for value in offsets.values()] == [b"\0\1"], "version 1 of the value has an expiry"
    consumer.wire.close()


def answers(broker: Broker, version: int, together: int) -> list[bytes]:
    """The replies to all requests, so many of which are sent in one piece."""
    consumer = Consumer(broker)
    waiting, replies = requests(broker), []
    while waiting:
        consumer.post(*waiting[:together], version=version)
        replies += [consumer.reply(version) for _ in waiting[:together]]
        del waiting[:together]
    consumer.wire.close()
    return replies


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_answer_the_same_bytes_and_write_the_same_offsets(
    broker: Broker, without_fast_paths: pytest.MonkeyPatch, version: int
) -> None:
    expected = answers(broker, version, 1)
    once = written(broker)
    without_fast_paths.undo()
    for rounds, together in enumerate((1, 2, 5, 100), 2):
        assert answers(broker, version, together) == expected
        now = written(broker)
        assert {partition: offsets for partition, (_, offsets) in now.items()} == {
            partition: offsets for partition, (_, offsets) in once.items()
        }
        assert {partition: end for partition, (end, _) in now.items()} == {
            partition: end * rounds for partition, (end, _) in once.items()
        }


@pytest.mark.parametrize(
    ("error_code", "answered"), [(0, 0), (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR)]
)
@pytest.mark.parametrize("version", [2, 9, 10])
def test_replies_that_wait_for_the_log_keep_their_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int, error_code: int, answered: int
) -> None:
    consumer = Consumer(broker)
    consumer.post(commit(broker, {("t", 0): (1, ""), ("t", 2): (1, "")}), version=version)
    assert consumer.errors(version) == [0, 0]
    env = broker._running().services.env
    append = CoordinatorPartitions.append
    held: list[int] = []

    def append_later(
        self: CoordinatorPartitions, topic: str, partition: int, batch: bytes, done: Callable[[int, int], None]
    ) -> None:
        held.append(partition)
        if error_code:
            env.timers.call_later(20, done, error_code, -1)
        else:
            env.timers.call_later(20, append, self, topic, partition, batch, done)

    monkeypatch.setattr(CoordinatorPartitions, "append", append_later)
    alike = [commit(broker, {("t", 0): (offset, ""), ("t", 2): (7, "")}) for offset in (2, 3, 4)]
    other = commit(broker, {("t", 1): (5, "")})
    consumer.post(*alike, other, *alike, version=version)
    errors = [consumer.errors(version) for _ in range(7)]
    assert errors == [[answered] * 2] * 3 + [[answered]] + [[answered] * 2] * 3
    assert len(held) < 7, "those that are alike are appended together"
    consumer.wire.close()


def test_replies_that_wait_for_the_log_are_no_bytes_to_send(broker: Broker) -> None:
    consumer = Consumer(broker)
    consumer.post(commit(broker, {("t", 0): (1, "")}), version=9)
    assert consumer.errors(9) == [0]
    served = served_side(broker, consumer.wire)
    append = CoordinatorPartitions.append
    held: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorPartitions, "append", lambda *arguments: held.append(partial(append, *arguments)))
        consumer.post(*[commit(broker, {("t", 0): (offset, "")}) for offset in range(20)], version=9)
        wait_until(lambda: bool(held), "the commits wait for the log")
        bytes_to_send = broker._call(lambda _, done: done(served._outbox.size))
    broker._call(lambda _, done: done([go_on() for go_on in held]))
    assert [consumer.errors(9) for _ in range(20)] == [[0]] * 20
    consumer.wire.close()
    assert bytes_to_send == 0


def test_client_that_goes_while_its_replies_wait_disturbs_nobody(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, later = Consumer(broker), Consumer(broker)
    repeated = commit(broker, {("t", 0): (1, "")})
    for one in (consumer, later):
        one.post(repeated, version=9)
        assert one.errors(9) == [0]
    env = broker._running().services.env
    append = CoordinatorPartitions.append
    monkeypatch.setattr(
        CoordinatorPartitions, "append", lambda *arguments: env.timers.call_later(50, append, *arguments)
    )
    consumer.post(repeated, repeated, version=9)
    consumer.wire.close()
    later.post(repeated, repeated, version=9)
    assert [later.errors(9) for _ in range(2)] == [[0]] * 2
    later.wire.close()


def test_second_request_is_served_the_short_way(broker: Broker) -> None:
    consumer = Consumer(broker)
    consumer.post(commit(broker, {("t", 0): (1, "")}), version=9)
    assert consumer.errors(9) == [0]
    for api in processor_of(broker).dispatcher.served.values():
        api.handle = None  # type: ignore[assignment]  # the ordinary way would fail
    consumer.post(*[commit(broker, {("t", 0): (offset, "")}) for offset in (2, 3, 4)], version=9)
    assert [consumer.errors(9) for _ in range(3)] == [[0]] * 3
    consumer.wire.close()


def test_commits_that_arrive_together_are_one_batch(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(broker)
    consumer.post(commit(broker, {("t", 0): (1, "")}), version=9)
    consumer.errors(9)
    appends: list[int] = []
    append = CoordinatorPartitions.append

    def counted(self: CoordinatorPartitions, topic: str, partition: int, *rest: Any) -> None:
        appends.append(partition)
        append(self, topic, partition, *rest)

    monkeypatch.setattr(CoordinatorPartitions, "append", counted)
    consumer.post(*[commit(broker, {("t", 0): (offset, "")}) for offset in range(20)], version=9)
    assert [consumer.errors(9) for _ in range(20)] == [[0]] * 20
    # The kernel may hand the bytes over in two pieces.
    assert 1 <= len(appends) <= 2
    consumer.wire.close()


def test_deleted_topic_is_not_committed_to(broker: Broker) -> None:
    consumer = Consumer(broker)
    repeated = commit(broker, {("u", 0): (1, "")})
    for _ in range(3):
        consumer.post(repeated, version=9)
        assert consumer.errors(9) == [0]
    broker.delete_topic("u")
    consumer.post(repeated, version=9)
    assert consumer.errors(9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    consumer.wire.close()


def test_coordinator_that_is_lost_is_told_of(broker: Broker) -> None:
    consumer = Consumer(broker)
    repeated = commit(broker, {("t", 0): (1, ""), ("t", 1): (1, "")})
    for _ in range(3):
        consumer.post(repeated, version=9)
        assert consumer.errors(9) == [0, 0]
    groups = broker._running().services.groups

    def lose(_server: BrokerServer, done: Callable[[Any], None]) -> None:
        groups.on_leadership(set(), {groups.partition_of("g")})
        done(None)

    broker._call(lose)
    consumer.post(repeated, repeated, version=9)
    assert consumer.errors(9) == [ErrorCode.NOT_COORDINATOR] * 2
    assert consumer.errors(9) == [ErrorCode.NOT_COORDINATOR] * 2
    consumer.wire.close()


@pytest.mark.parametrize("cut", range(1, 12))
def test_frame_that_begins_like_the_last_one_and_ends_too_early_is_refused(broker: Broker, cut: int) -> None:
    consumer = Consumer(broker)
    repeated = commit(broker, {("t", 0): (1, "")})
    consumer.post(repeated, version=9)
    consumer.errors(9)
    consumer.wire.send_frame(consumer.wire.frame(repeated, 9)[4:-cut])
    assert consumer.wire.receive_payload() is None
    consumer.wire.close()


def test_unknown_tagged_field_and_trailing_bytes_go_the_ordinary_way(broker: Broker) -> None:
    consumer = Consumer(broker)
    plain = commit(broker, {("t", 0): (1, "")})
    for fewer, behind in ((1, b"\x01\x63\x01x"), (0, b"more"), (0, b"")):
        for _ in range(2):
            frame = consumer.wire.frame(plain, 9)
            consumer.wire.send_frame(frame[4 : len(frame) - fewer] + behind)
            assert consumer.errors(9) == [0]
    consumer.wire.close()
