"""The columns of a batch's records, against the full decoder and against damage."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records
from pybroker_protocol.record_columns import RecordColumns, as_int64, move_in_time, record_columns, timestamp_deltas
from pybroker_protocol.records import HEADER_BYTES

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=9000),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=70,
)


def section_of(records: list[NewRecord]) -> bytes:
    return build_batch(records, timestamp_ms=0)[HEADER_BYTES:]


def whole(slices: list[RecordColumns]) -> list[tuple[int, bytes | None, bool]]:
    """(offset delta, key, whether there is a value) of every record."""
    found = []
    for columns in slices:
        assert [i for i, key in enumerate(columns.keys) if key is None] == columns.keyless
        for i, (delta, key) in enumerate(zip(columns.offset_deltas, columns.keys, strict=True)):
            found.append((delta, key, i not in columns.valueless))
    return found


@given(RECORDS, st.integers(1, 80))
def test_columns_say_what_the_decoder_says_and_cut_the_section_without_gaps(
    records: list[NewRecord], records_max: int
) -> None:
    batch = build_batch(records, timestamp_ms=0)
    section = batch[HEADER_BYTES:]
    slices = list(record_columns(section, len(records), len(records) - 1, records_max))
    decoded = list(decode_records(batch))
    assert whole(slices) == [(record.offset, record.key, record.value is not None) for record in decoded]
    assert max(len(columns.keys) for columns in slices) <= records_max
    ends = [columns.end for columns in slices]
    assert [columns.starts[0] for columns in slices] == [0, *ends[:-1]]
    assert ends[-1] == len(section)
    starts = [start for columns in slices for start in columns.starts]
    for (start, end), record in zip(pairwise([*starts, ends[-1]]), decoded, strict=True):
        assert (record.key or b"") in section[start:end]
        assert (record.value or b"") in section[start:end]


@given(RECORDS, st.integers(-(2**41), 2**41))
def test_records_are_moved_in_time_and_nothing_else_of_them_changes(records: list[NewRecord], by_ms: int) -> None:
    section = section_of(records)
    deltas, end = timestamp_deltas(section, 0, len(records))
    first = records[0].timestamp_ms or 0
    assert [first + delta for delta in deltas] == [record.timestamp_ms for record in records]
    assert end == len(section)
    moved, end = move_in_time(section, 0, len(records), by_ms)
    assert end == len(section)
    assert timestamp_deltas(moved, 0, len(records))[0] == [delta + by_ms for delta in deltas]
    assert move_in_time(moved, 0, len(records), -by_ms)[0] == section
    at_once, _ = move_in_time(section, 0, len(records), None)
    assert timestamp_deltas(at_once, 0, len(records))[0] == [0] * len(records)


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63)])
def test_sums_of_timestamps_stay_in_64_bits(number: int) -> None:
    assert as_int64(number) == number
    assert as_int64(number + 2**64) == number
    assert as_int64(number - 2**64) == number


@given(RECORDS, st.data())
def test_damage_is_an_error_or_another_record_but_never_another_exception(
    records: list[NewRecord], data: st.DataObject
) -> None:
    section = bytearray(section_of(records))
    section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        list(record_columns(bytes(section), len(records), len(records) - 1, 7))


def test_section_that_is_cut_or_too_long_is_refused() -> None:
    section = section_of([NewRecord(b"k", b"v")] * 3)
    for bad in (section[:-1], section + b"\x00", b""):
        with pytest.raises(ProtocolError):
            list(record_columns(bad, 3, 2, 10))


def test_count_that_lies_costs_no_more_than_the_records_that_are_there() -> None:
    section = section_of([NewRecord(b"k", b"v")] * 5)
    slices = record_columns(section, 2**31 - 1, 2**31 - 2, 4)
    assert len(next(slices).keys) == 4
    with pytest.raises(ProtocolError, match="end too early"):
        next(slices)


def test_offsets_that_do_not_ascend_or_pass_the_last_one_are_refused() -> None:
    record = section_of([NewRecord(b"k", b"v")])
    with pytest.raises(ProtocolError, match="ascend"):
        list(record_columns(record + record, 2, 1, 10))
    with pytest.raises(ProtocolError, match="ascend"):
        list(record_columns(record + record, 2, 1, 1))  # over the border of two slices, too
    two = section_of([NewRecord(b"k", b"v")] * 2)
    assert len(next(record_columns(two, 2, 1, 10)).keys) == 2
    with pytest.raises(ProtocolError, match="behind its batch"):
        list(record_columns(two, 2, 0, 10))
