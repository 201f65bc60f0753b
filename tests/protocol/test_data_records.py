"""The prefixes of coordinators' records and of the KRaft metadata log."""

from __future__ import annotations

from random import Random

import pytest

from pybroker_protocol.data_records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    decode_key,
    decode_metadata_record,
    decode_value,
    encode_key,
    encode_metadata_record,
    encode_value,
    record_classes,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.records_group import OffsetCommitKey, OffsetCommitValue
from pybroker_protocol.messages.records_metadata import TopicRecord

from .message_classes import versions_of
from .random_messages import random_message

TOPICS = [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE]


def test_key_begins_with_its_type_and_value_with_its_version() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    value = encode_value(OffsetCommitValue(offset=1, leader_epoch=2, metadata="", commit_timestamp=4), 3)
    assert value == bytes.fromhex("0003 0000000000000001 00000002 0000 0000000000000004")


@pytest.mark.parametrize("topic", TOPICS, ids=lambda modules: modules[0])
def test_every_record_of_a_coordinator_is_found_by_its_key(topic: tuple[str, ...]) -> None:
    random = Random(1)
    keys, values = record_classes(topic, "key"), record_classes(topic, "value")
    assert sorted(keys) == sorted(values)
    for record_type, cls in keys.items():
        key = random_message(random, cls, 0)
        encoded = encode_key(key)
        assert decode_key(topic, encoded) == key
        for version in versions_of(values[record_type]):
            value = random_message(random, values[record_type], version)
            assert decode_value(topic, encoded, encode_value(value, version)) == value


def test_unknown_type_of_record_is_told_not_refused() -> None:
    assert decode_key(CONSUMER_OFFSETS, b"\x00\x77rest") is None
    assert decode_metadata_record(b"\x01\x77\x00rest") == (None, 0)


def test_unknown_version_of_a_value_is_refused() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))
    with pytest.raises(ProtocolError, match="OffsetCommitValue has no version 9"):
        decode_value(CONSUMER_OFFSETS, key, b"\x00\x09rest")


@pytest.mark.parametrize("data", [b"", b"\x00"])
def test_record_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_key(CONSUMER_OFFSETS, data)
    with pytest.raises(ProtocolError):
        decode_metadata_record(data)


def test_metadata_record_has_a_frame() -> None:
    record = TopicRecord(name="t", topic_id=bytes(range(16)))
    encoded = encode_metadata_record(record, 0)
    assert encoded == b"\x01\x02\x00" + b"\x02t" + bytes(range(16)) + b"\x00"
    assert decode_metadata_record(encoded) == (record, 0)


def test_every_metadata_record_is_found_by_its_type() -> None:
    random = Random(2)
    classes = record_classes(("records_metadata",), "value")
    assert len(classes) == 27
    for cls in classes.values():
        for version in versions_of(cls):
            record = random_message(random, cls, version)
            assert decode_metadata_record(encode_metadata_record(record, version)) == (record, version)


def test_metadata_record_of_another_frame_or_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="frame version 0"):
        decode_metadata_record(b"\x00\x02\x00")
    with pytest.raises(ProtocolError, match="TopicRecord has no version 9"):
        decode_metadata_record(b"\x01\x02\x09")
