"""The records of ``__consumer_offsets``: Kafka's bytes, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.coordinators.group.consumer_protocol import read_assignment, read_subscription, subscribed_topics
from pybroker.coordinators.group.group_records import (
    CommittedOffset,
    group_metadata_key,
    key_kind,
    offset_key_prefix,
    pack_offset,
    pack_offset_with_expiry,
    pack_partition,
    read_group_id,
    read_offset,
    read_offset_key_prefix,
    read_partition,
)
from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.records_group import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches
from pybroker_protocol.uuids import ZERO_UUID
from tests.coordinators.support import Cluster, subscription

# What Apache Kafka 4.3.1 wrote when a consumer of group g1 committed offset 5 of partition 0 of topic t.
KAFKA_TOPIC_ID = bytes.fromhex("e2dc66da29b44b038a7c93364be5c0cf")
KAFKA_OFFSET_KEY = bytes.fromhex("0001 0002 6731 0001 74 00000000")
KAFKA_OFFSET_VALUE = bytes.fromhex(
    "0004 0000000000000005 00000003 05 6d657461 000001a1fc5ba66a 01 00 10" + KAFKA_TOPIC_ID.hex()
)
KAFKA_GROUP_KEY = bytes.fromhex("0002 0002 6731")
KAFKA_NEW_GROUP_VALUE = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fc5b9350 00000000")
KAFKA_LEFT_GROUP_VALUE = bytes.fromhex("0003 0008 636f6e73756d6572 00000002 ffff ffff 000001a1fc5ba679 00000000")

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=200)


def test_offset_is_written_as_kafka_writes_it() -> None:
    assert offset_key_prefix("g1", "t") + pack_partition(0) == KAFKA_OFFSET_KEY
    assert pack_offset(5, 3, "meta", 0x1A1FC5BA66A, KAFKA_TOPIC_ID) == KAFKA_OFFSET_VALUE


def test_group_is_written_as_kafka_writes_it() -> None:
    cluster = Cluster()
    member = cluster.join(group="g1").response.member_id
    value = group_value(cluster)
    assert value == KAFKA_NEW_GROUP_VALUE[:12] + value[12:20] + KAFKA_NEW_GROUP_VALUE[20:]
    cluster.join(member, group="g1")
    cluster.world.advance()
    cluster.leave((member, None), group="g1")
    cluster.world.advance()
    value = group_value(cluster)
    left = KAFKA_LEFT_GROUP_VALUE
    assert value == left[:20] + value[20:28] + left[28:]


def group_value(cluster: Cluster) -> bytes:
    """The value of the last record that the group wrote."""
    log = memoryview(cluster.world.partitions.logs[0])
    records = [record for position, _ in batches(log) for record in decode_records(log[position:])]
    assert records[-1].key == KAFKA_GROUP_KEY
    assert records[-1].value is not None
    return records[-1].value


@settings(deadline=None)
@given(int64s, int32s, texts, int64s, st.binary(min_size=16, max_size=16) | st.just(ZERO_UUID))
def test_packed_offset_is_what_the_declaration_says(
    offset: int, leader_epoch: int, metadata: str, timestamp_ms: int, topic_id: bytes
) -> None:
    declared = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=timestamp_ms,
        topic_id=topic_id,
    )
    packed = pack_offset(offset, leader_epoch, metadata, timestamp_ms, topic_id)
    assert packed == b"\x00\x04" + codec.encode(declared, 4)
    assert read_offset(packed) == CommittedOffset(offset, leader_epoch, metadata, timestamp_ms, -1, topic_id)


@pytest.mark.parametrize("version", range(5))
@settings(deadline=None)
@given(offset=int64s, metadata=texts, timestamp_ms=int64s)
def test_offset_of_every_version_is_read(version: int, offset: int, metadata: str, timestamp_ms: int) -> None:
    declared = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=timestamp_ms)
    value = version.to_bytes(2, "big") + codec.encode(declared, version)
    assert read_offset(value) == CommittedOffset(offset, -1, metadata, timestamp_ms)


@settings(deadline=None)
@given(int64s, texts, int64s, int64s)
def test_offset_with_a_retention_of_its_own_is_version_1(
    offset: int, metadata: str, timestamp_ms: int, expire_ms: int
) -> None:
    value = pack_offset_with_expiry(offset, metadata, timestamp_ms, expire_ms)
    assert value[:2] == b"\x00\x01"
    assert read_offset(value) == CommittedOffset(offset, -1, metadata, timestamp_ms, expire_ms)


@settings(deadline=None)
@given(texts, texts, int32s)
def test_keys_are_what_the_declaration_says(group_id: str, topic: str, partition: int) -> None:
    key = offset_key_prefix(group_id, topic) + pack_partition(partition)
    declared = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    assert key == b"\x00\x01" + codec.encode(declared, 0)
    assert (key_kind(key), read_group_id(key), read_partition(key)) == (1, group_id, partition)
    assert read_offset_key_prefix(key[:-4]) == (group_id, topic)
    assert group_metadata_key(group_id) == b"\x00\x02" + codec.encode(GroupMetadataKey(group=group_id), 0)


# --- what consumers tell one another ---------------------------------------------------------------------------------


def test_subscriptions_of_too_many_topics_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.coordinators.group.consumer_protocol.GROUP_SUBSCRIBED_TOPICS_MAX", 3)
    assert subscribed_topics([subscription("a", "b"), subscription("c")]) == frozenset("abc")
    assert subscribed_topics([subscription("a", "b"), subscription("a", "b")]) is None


def test_subscription_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = subscription("a", "b")
    monkeypatch.setattr("pybroker.coordinators.group.consumer_protocol.CONSUMER_PROTOCOL_BYTES_MAX", len(data))
    assert read_subscription(data).topics == ["a", "b"]
    for read in (read_subscription, read_assignment):
        with pytest.raises(ProtocolError, match="bytes"):
            read(data + b"x")


def test_subscribed_topics_are_those_of_all_members() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == frozenset("abc")


def test_later_versions_of_a_subscription_begin_like_the_first() -> None:
    later = b"\x00\x03" + subscription("a")[2:] + b"what later versions add"
    assert subscribed_topics([later]) == frozenset("a")


@pytest.mark.parametrize("damaged", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", subscription("abc")[:8]])
def test_subscription_that_cannot_be_read_says_nothing(damaged: bytes) -> None:
    assert subscribed_topics([subscription("a"), damaged]) is None
