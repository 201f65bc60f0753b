"""The walk over a batch's records finds what an independent reader finds, whatever the pieces, and holds little."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.compression import Compression, compress, decompressed_pieces
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch
from pybroker_protocol.record_walk import WalkNotes, walk_pieces, walk_section
from pybroker_protocol.records import HEADER_BYTES

TIME_MS = 1_700_000_000_000


def notes(base: int = 0, earliest: int = -(1 << 66), latest: int = 1 << 66, faults_max: int = 100) -> WalkNotes:
    return WalkNotes(keys_wanted=True, base_timestamp=base, earliest=earliest, latest=latest, faults_max=faults_max)


def section(records: Sequence[NewRecord]) -> bytes:
    return build_batch(records, timestamp_ms=TIME_MS)[HEADER_BYTES:]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def walk(data: bytes, count: int, found: WalkNotes, piece_bytes: int) -> int:
    """Walk in pieces; how many pauses there were."""
    return sum(1 for _ in walk_pieces(pieces(data, piece_bytes), count, found))


texts = st.binary(max_size=200) | st.none()
headers = st.lists(st.tuples(st.text(max_size=80), texts), max_size=3)
some_records = st.lists(
    st.builds(NewRecord, texts, texts, headers, st.integers(TIME_MS - 10**9, TIME_MS + 10**9)), min_size=1, max_size=30
)


@given(some_records, st.integers(1, 300))
def test_sound_records_are_found_sound_by_pieces_of_any_size(records: list[NewRecord], piece_bytes: int) -> None:
    first = records[0].timestamp_ms or 0
    times = [record.timestamp_ms or 0 for record in records]
    at_once, by_pieces = (notes(first, first - 1000, first + 1000) for _ in range(2))
    data = section(records)
    walk_section(data, len(records), at_once)
    walk(data, len(records), by_pieces, piece_bytes)
    expected = [
        (i, None if record.key is None else time)
        for i, (record, time) in enumerate(zip(records, times, strict=True))
        if record.key is None or not -1000 <= time - first <= 1000
    ]
    for found in (at_once, by_pieces):
        assert (found.faults, found.faults_count, found.largest_timestamp) == (expected, len(expected), max(times))
        assert found.any_untimely == any(time is not None for _, time in expected)


@given(some_records, st.data())
def test_damage_is_found_in_pieces_of_any_size_where_it_is_found_in_the_whole(
    records: list[NewRecord], data: st.DataObject
) -> None:
    damaged = bytearray(section(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    piece_bytes = data.draw(st.integers(1, 300))
    assert is_refused(cut, len(records), piece_bytes) == is_refused(cut, len(records), len(cut) + 1)


def is_refused(data: bytes, count: int, piece_bytes: int) -> bool:
    try:
        if piece_bytes > len(data):
            walk_section(data, count, notes())
        else:
            walk(data, count, notes(), piece_bytes)
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize("count", [64, 65, 8_192, 8_193, 20_000])
def test_offsets_of_every_length_are_read(count: int) -> None:
    data = section([NewRecord(b"k", b"v")] * count)
    walk_section(data, count, notes())
    walk(data, count, notes(), 1000)
    with pytest.raises(ProtocolError, match="bytes after the last record"):
        walk(data, count - 1, notes(), 1000)
    with pytest.raises(ProtocolError, match="end too early"):
        walk(data, count + 1, notes(), 1000)


def test_only_the_first_records_at_fault_are_named_and_all_are_counted() -> None:
    found = notes(faults_max=3)
    walk_section(section([NewRecord(None, b"v")] * 10), 10, found)
    assert (found.faults, found.faults_count) == ([(0, None), (1, None), (2, None)], 10)


def test_many_records_are_looked_at_with_pauses() -> None:
    count = 50_000
    data = section([NewRecord(b"k", None)] * count)
    assert walk(data, count, notes(), 1 << 30) >= count // 500


def test_many_headers_are_looked_at_with_pauses() -> None:
    count = 100_000
    data = section([NewRecord(b"k", b"v", [("", b"")] * count)])
    assert walk(data, 1, notes(), 16 << 10) >= count // 1_000


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.SNAPPY])
@pytest.mark.parametrize("count", [1, 20_000], ids=["one large record", "many small records"])
def test_what_a_walk_holds_does_not_grow_with_what_is_decompressed(codec: Compression, count: int) -> None:
    value = bytes(8_000_000 // count)
    payload = compress(codec, section([NewRecord(b"k", value)] * count))
    largest = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in walk_pieces(decompressed_pieces(codec, payload), count, notes()):
            largest = max(largest, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    # Four pieces, and what the codec has not come to.
    assert largest < (256 << 10) + (len(payload) if codec else 0)
