"""The columns of a batch's records, against the full decoder and against damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol import record_columns as columns_module
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import varint
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records
from pybroker_protocol.record_columns import RecordColumns, as_int64, move_in_time, record_columns, timestamp_deltas
from pybroker_protocol.records import HEADER_BYTES

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=200),
        # Lengths of one byte, of two and of three; what is in a value is not looked at, and bytes take long to draw.
        st.none() | st.binary(max_size=20) | st.sampled_from([0, 63, 64, 300, 8191, 8192, 9000]).map(bytes),
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


# Records that are alike, against the walk from one to the next --------------------------------------------------------

MANY = 1 << 20


class Raw(NamedTuple):
    """A record as it lies in a batch, whose deltas need not be sound; the length of a value of ``None`` is -1."""

    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    value: bytes | None

    def encode(self) -> bytes:
        parts = [b"\0", varint(self.timestamp_delta_ms), varint(self.offset_delta)]
        for field in (self.key, self.value):
            parts += [varint(-1 if field is None else len(field)), field or b""]
        body = b"".join([*parts, b"\0"])
        return varint(len(body)) + body


LAYOUTS = st.tuples(
    st.none() | st.sampled_from([0, 1, 7, 63, 64, 65]),  # bytes of the key
    st.lists(st.none() | st.sampled_from([0, 5, 40, 50, 63, 64, 300, 8100, 8200]), min_size=1, max_size=3),
    st.sampled_from([0, -1, 63, 64, 8191, 8192, 2**20, 2**41, -(2**62), 2**63 - 1]),  # the timestamp delta
    st.sampled_from([1, 1, 1, 2, 40]),  # from one offset to the next
    st.sampled_from([1, 2, 14, 15, 16, 17, 40, 130]),  # records
)


@st.composite
def sections(draw: st.DrawFn) -> tuple[bytes, int]:
    """A section of stretches of records with one layout each, and how many records it has."""
    offset_delta = draw(st.sampled_from([0, 1, 47, 48, 63, 64, 8160, 8175, 8176, 8191, 8192, 2**20 - 20, 2**27 - 20]))
    encoded = []
    for key_bytes, value_bytes, timestamp_delta_ms, step, count in draw(st.lists(LAYOUTS, min_size=1, max_size=5)):
        for i in range(count):
            key = (
                None if key_bytes is None else b"%0*d" % (key_bytes, i % 10 ** min(key_bytes, 3)) if key_bytes else b""
            )
            size = value_bytes[i % len(value_bytes)]
            raw = Raw(timestamp_delta_ms, offset_delta, key, None if size is None else bytes(size))
            encoded.append(raw.encode())
            offset_delta += step
    return b"".join(encoded), len(encoded)


def found_in(parts: Iterator[RecordColumns]) -> tuple[list[object], list[int]] | None:
    """All that the parts say of each record, and how long they are; ``None`` where the section is refused."""
    found: list[object] = []
    lengths = []
    try:
        for columns in parts:
            ends = [*columns.starts[1:], columns.end]
            assert [i for i, key in enumerate(columns.keys) if key is None] == [*columns.keyless]
            valueless = [i in columns.valueless for i in range(len(columns.keys))]
            found += zip(columns.starts, ends, columns.offset_deltas, columns.keys, valueless, strict=True)
            lengths.append(len(columns.keys))
    except ProtocolError:
        return None
    return found, lengths


def one_by_one(data: bytes, count: int, last_offset_delta: int) -> Iterator[RecordColumns]:
    """What ``record_columns`` was before it looked at many records together."""
    try:
        columns = columns_module._columns(data, 0, count, -1)
    except IndexError as error:
        raise ProtocolError("the records end too early") from error
    if columns.end != len(data) or columns.offset_deltas[-1] > last_offset_delta:
        raise ProtocolError("other records than the header says")
    yield columns


def assert_same(section: bytes, count: int, records_max: int, last_offset_delta: int = 2**31 - 1) -> None:
    expected = found_in(one_by_one(section, count, last_offset_delta))
    found = found_in(record_columns(section, count, last_offset_delta, records_max))
    assert (found and found[0]) == (expected and expected[0])
    if found is not None:
        ends = [sum(found[1][: i + 1]) for i in range(len(found[1]))]
        assert set(range(records_max, count, records_max)) <= {*ends}


@given(sections(), st.sampled_from([1, 15, 16, 17, 100, MANY]))
def test_records_that_are_alike_are_what_they_are_one_by_one(section: tuple[bytes, int], records_max: int) -> None:
    assert_same(*section, records_max)


@given(sections(), st.data())
def test_damage_among_records_that_are_alike_is_what_it_is_one_by_one(
    section: tuple[bytes, int], data: st.DataObject
) -> None:
    damaged, count = bytearray(section[0]), section[1]
    # Most of a record's bytes are its value's, which nobody looks at: damage shall strike the heads.
    starts = [each[0] for each in (found_in(one_by_one(section[0], count, 2**31 - 1)) or ([], []))[0]]  # type: ignore[index]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(starts or [0])) + data.draw(st.integers(0, 20))
        if at < len(damaged):
            damaged[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x7F, 0x80, 0x81, 0xFF]))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 5]))
    assert_same(bytes(damaged[: len(damaged) - cut]), count, MANY)


def alike(count: int, change: Callable[[int, Raw], Raw] = lambda _, raw: raw) -> bytes:
    """So many records with one layout, but for what ``change`` does to each."""
    return b"".join(change(i, Raw(0, i, b"%07d" % i, b"value")).encode() for i in range(count))


@pytest.mark.parametrize("values", [[b"value"], [None, b"longer"], [b"longer", None]])
@pytest.mark.parametrize("first", [0, 64, 8192])
@pytest.mark.parametrize("timestamp_delta_ms", [0, 64])
def test_any_damage_to_a_record_and_any_end_is_what_it_is_one_by_one(
    values: list[bytes | None], first: int, timestamp_delta_ms: int
) -> None:
    count = 20
    section = alike(
        count, lambda i, _: Raw(timestamp_delta_ms, first + i, b"key", values[i % len(values)] if i else values[0])
    )
    starts = [each[0] for each in (found_in(one_by_one(section, count, 2**31 - 1)) or ([], []))[0]]  # type: ignore[index]
    for at in (*range(starts[1]), *range(starts[17], starts[18])):
        # Inside of keys and values, half of a record's bytes, one byte is like another.
        for byte in range(256) if section[at] not in b"keyvaluongr" else (0, 0x80):
            assert_same(section[:at] + bytes([byte]) + section[at + 1 :], count, MANY)
    for end in range(starts[16], len(section)):
        assert_same(section[:end], count, MANY)


@pytest.mark.parametrize("at", [0, 1, 14, 15, 16, 17, 39])
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw._replace(offset_delta=raw.offset_delta - 1),
        lambda raw: raw._replace(offset_delta=raw.offset_delta + 1),
        lambda raw: raw._replace(offset_delta=-raw.offset_delta - 1),
        lambda raw: raw._replace(value=None),
        lambda raw: raw._replace(key=None),
        lambda raw: raw._replace(key=None, value=b"12345678901"),  # as many bytes in all
        lambda raw: raw._replace(key=b"123456", value=b"123456"),
        lambda raw: raw._replace(timestamp_delta_ms=-1),
        lambda raw: raw._replace(timestamp_delta_ms=64, value=b"1234"),
        lambda raw: raw._replace(value=bytes(8192)),
    ],
)
def test_one_record_that_is_not_like_the_others_is_noticed_wherever_it_is(
    at: int, change: Callable[[Raw], Raw]
) -> None:
    assert_same(alike(40, lambda i, raw: change(raw) if i == at else raw), 40, MANY)


@pytest.mark.parametrize("first", [0, 20, 63, 64, 8150, 8191, 8192, 2**20 - 20, 2**20, 2**27])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_offsets_are_told_at_every_width_of_theirs_and_have_to_ascend(first: int, step: int) -> None:
    section = alike(40, lambda i, raw: raw._replace(offset_delta=first + i * step))
    assert_same(section, 40, MANY)
    assert_same(section, 40, MANY, last_offset_delta=first + 39 * step)
    assert_same(section, 40, MANY, last_offset_delta=first + 39 * step - 1)
    # Behind the border of two parts they go on ascending, too.
    assert_same(section + section, 80, 40)


@pytest.mark.parametrize("value", [b"value", b"longer"])
def test_key_that_ends_behind_its_record_is_refused_even_where_the_next_record_begins_in_it(value: bytes) -> None:
    lie = varint(6) + b"\0\0" + varint(20) + varint(7) + b"kk"
    before = alike(20)
    behind = alike(20, lambda i, raw: raw._replace(offset_delta=21 + i, value=value))
    assert_same(before + lie + behind, 41, MANY)
    assert found_in(record_columns(before + lie + behind, 41, MANY, MANY)) is None
    assert found_in(record_columns(before + behind, 40, MANY, MANY)) is not None


@pytest.mark.parametrize("extra", [0, 1])
def test_timestamp_that_is_no_number_of_64_bits_is_refused_among_many(extra: int) -> None:
    longest = alike(1, lambda _, raw: raw._replace(timestamp_delta_ms=-(2**63)))
    lie = longest.replace(b"\xff" * 9 + b"\x01", b"\xff" * 9 + bytes([1 + extra]))
    records = b"".join(
        each.replace(b"\x00\x0e", varint(i) + b"\x0e", 1)
        for i, each in enumerate([longest] * 20 + [lie] + [longest] * 20)
    )
    assert_same(records, 41, MANY)


@pytest.mark.parametrize("values", [[b"value"], [b"", b"longer", bytes(100)]], ids=["one length", "several lengths"])
def test_regular_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch, values: list[bytes]) -> None:
    monkeypatch.delattr(columns_module, "_columns")
    section = alike(8192 + 100, lambda i, raw: raw._replace(value=values[i % len(values)]))
    parts = list(record_columns(section, 8292, 8291, MANY))
    assert len(parts) == 3  # their offsets take one byte, two, and three
    assert [delta for part in parts for delta in part.offset_deltas] == list(range(8292))
    ends = [part.offset_deltas[-1] + 1 for part in record_columns(section, 8292, 8291, 1000)]
    assert {*range(1000, 8292, 1000)} <= {*ends}


def test_irregular_records_are_seldom_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    section = alike(4000, lambda i, raw: raw._replace(key=bytes(i % 7)))
    tries = []
    real = columns_module._alike

    def alike_(data: bytes, *arguments: int) -> RecordColumns | None:
        tries.append(arguments)
        return real(data, *arguments)

    monkeypatch.setattr(columns_module, "_alike", alike_)
    assert sum(len(part.keys) for part in record_columns(section, 4000, 3999, MANY)) == 4000
    assert len(tries) < 8
