"""The header of a record batch: reading, walking, patching in place, and its checksum."""

from __future__ import annotations

import pytest
from kafka.record import MemoryRecords

from pybroker_protocol import records
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import build_batch, decode_records, end_transaction_batch
from pybroker_protocol.records import BatchHeader, batches, is_intact, read_batch_header


def batch(base_offset: int = 5, count: int = 3) -> bytes:
    return build_batch(
        [(b"k%d" % i, b"v%d" % i) for i in range(count)],
        timestamp_ms=1000,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=2,
        base_sequence=10,
    )


def test_header_is_read() -> None:
    data = batch()
    header = read_batch_header(b"...." + data, 4)
    assert header == BatchHeader(
        base_offset=5,
        batch_length=len(data) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=header.crc,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=1000,
        max_timestamp=1000,
        producer_id=7,
        producer_epoch=2,
        base_sequence=10,
        records_count=3,
    )
    assert header.size_bytes == len(data)
    assert header.last_offset == 7
    assert header.next_offset == 8
    assert header.last_sequence == 12


def test_sequence_numbers_wrap_to_zero() -> None:
    header = read_batch_header(batch())
    assert header._replace(base_sequence=2**31 - 2).last_sequence == 0
    assert header._replace(base_sequence=-1).last_sequence == -1


@pytest.mark.parametrize("field", BatchHeader._fields)
def test_constants_say_where_the_fields_are(field: str) -> None:
    at = getattr(records, f"{field.upper()}_AT")
    changed = bytearray(batch())
    changed[at] ^= 1
    before, after = read_batch_header(batch()), read_batch_header(changed)
    assert [name for name in BatchHeader._fields if getattr(before, name) != getattr(after, name)] == [field]
    assert records.HEADER.size == records.HEADER_BYTES == 61


def test_attributes_are_told() -> None:
    header = read_batch_header(end_transaction_batch(
        commit=True, coordinator_epoch=1, producer_id=1, producer_epoch=0, timestamp_ms=1
    ))  # fmt: skip
    assert header.is_transactional
    assert header.is_control
    assert not header.is_log_append_time
    assert header.delete_horizon_ms is None
    assert header._replace(attributes=0x40, base_timestamp=9).delete_horizon_ms == 9
    assert header._replace(attributes=0x03).compression == 3


def test_header_that_is_cut_off_is_refused() -> None:
    with pytest.raises(ProtocolError, match="60 bytes are too few"):
        read_batch_header(batch()[:60])
    with pytest.raises(ProtocolError):
        read_batch_header(batch(), 50)


def test_batches_are_walked() -> None:
    first, second = batch(0), batch(3)
    assert [(pos, header.base_offset) for pos, header in batches(first + second)] == [(0, 0), (len(first), 3)]
    assert [header.base_offset for _, header in batches(first + second, len(first))] == [3]
    assert list(batches(b"")) == []


def test_walk_ends_before_a_batch_that_is_cut_off() -> None:
    first, second = batch(0), batch(3)
    for cut in (1, 20, len(second) - 1):
        assert [header.base_offset for _, header in batches(first + second[:-cut])] == [0]


@pytest.mark.parametrize(("at", "value"), [(records.MAGIC_AT, 1), (records.MAGIC_AT, 255)])
def test_walk_refuses_another_magic(at: int, value: int) -> None:
    data = bytearray(batch())
    data[at] = value
    with pytest.raises(ProtocolError, match="magic"):
        list(batches(data))


@pytest.mark.parametrize("length", [0, 48, -1, -(2**31)])
def test_walk_refuses_a_batch_shorter_than_its_header(length: int) -> None:
    data = bytearray(batch())
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match="a record batch of"):
        list(batches(data))


def test_damage_behind_the_checksum_is_noticed() -> None:
    assert is_intact(batch())
    for at in range(records.CRC_AT, len(batch())):
        damaged = bytearray(batch())
        damaged[at] ^= 0x10
        assert not is_intact(damaged)


def test_what_is_no_whole_batch_is_not_intact() -> None:
    data = batch()
    assert is_intact(b"xx" + data + b"yy", 2)
    assert not is_intact(data[:-1])
    assert not is_intact(data[:30])
    assert not is_intact(b"")
    other_magic = bytearray(data)
    other_magic[records.MAGIC_AT] = 1
    assert not is_intact(other_magic)


def test_offset_and_leader_epoch_are_stamped_without_touching_the_checksum() -> None:
    data = bytearray(b"xx" + batch())
    records.set_base_offset(data, 2**40, 2)
    records.set_partition_leader_epoch(data, 9, 2)
    header = read_batch_header(data, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert is_intact(data, 2)
    alone = bytearray(batch())
    records.set_base_offset(alone, 1)
    records.set_partition_leader_epoch(alone, 2)
    assert read_batch_header(alone)[:3] == (1, len(alone) - 12, 2)


def test_log_append_time_counts_for_all_records() -> None:
    data = bytearray(batch())
    with memoryview(data) as view:
        records.set_log_append_time(view, 123_456)
    assert is_intact(data)
    header = read_batch_header(data)
    assert header.is_log_append_time
    assert header.max_timestamp == 123_456
    assert {record.timestamp_ms for record in decode_records(data)} == {123_456}
    (theirs,) = MemoryRecords(bytes(data))
    assert theirs.validate_crc()
    assert {record.timestamp for record in theirs} == {123_456}


def test_log_append_time_keeps_the_other_attributes() -> None:
    data = bytearray(build_batch([(b"k", b"v")], timestamp_ms=1, compression=1, is_transactional=True, producer_id=1))
    records.set_log_append_time(data, 9)
    header = read_batch_header(data)
    assert (header.compression, header.is_transactional, header.is_log_append_time) == (1, True, True)
    assert not header.is_control
