"""The first record of a batch that is late enough is the one that decoding them all finds, and costs no more than its
portion at a time."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Generator
from typing import TypeVar

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.compression import (
    Compression,
    compress,
    decompress,
    decompressed_pieces,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records
from pybroker_protocol.record_search import FoundRecord, first_record_since

T = TypeVar("T")
BASE_MS = 1_000_000
LOG_APPEND_TIME = 8
ATTRIBUTES_AT = 22
RECORDS_AT = 61
CODECS = st.sampled_from(list(Compression))
ALL_CODECS = pytest.mark.parametrize("codec", list(Compression))
# Deltas around where their encoding gets another byte, and times before the batch's first.
DELTAS = st.sampled_from([0, 1, 63, 64, 65, 8_191, 8_192, 1 << 20, 1 << 40, -1, -64, -65, -(1 << 20)])
DATA = st.one_of(st.none(), st.binary(max_size=5), st.integers(0, 300).map(bytes))


def end_of(steps: Generator[int, None, T]) -> tuple[T, int]:
    """What it comes to, and how many portions end before."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def by_decoding(data: bytes, timestamp_ms: int, from_offset: int) -> FoundRecord | None:
    for record in decode_records(data):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return FoundRecord(record.offset, record.timestamp_ms)
    return None


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    records = draw(
        st.lists(
            st.builds(
                lambda key, value, delta: NewRecord(key, value, timestamp_ms=BASE_MS + delta), DATA, DATA, DELTAS
            ),
            min_size=1,
            max_size=30,
        )
    )
    data = bytearray(
        build_batch(records, timestamp_ms=BASE_MS, base_offset=draw(st.integers(0, 5)), compression=draw(CODECS))
    )
    data[ATTRIBUTES_AT] |= draw(st.sampled_from([0, 0, LOG_APPEND_TIME]))
    return bytes(data)


@given(
    data=batches(),
    since=DELTAS,
    from_offset=st.integers(0, 40),
    records_max=st.sampled_from([1, 3, 1_000]),
    piece_bytes=st.sampled_from([1, 22, 100, 1 << 16]),
)
def test_search_finds_what_decoding_finds(
    data: bytes, since: int, from_offset: int, records_max: int, piece_bytes: int
) -> None:
    found, _ = end_of(first_record_since(data, BASE_MS + since, from_offset, records_max, piece_bytes))
    assert found == by_decoding(data, BASE_MS + since, from_offset)


@given(data=batches(), at=st.integers(RECORDS_AT, 400), garbage=st.binary(min_size=1, max_size=8))
def test_damaged_records_are_an_error_and_nothing_else(data: bytes, at: int, garbage: bytes) -> None:
    damaged = data[:at] + garbage + data[at + len(garbage) :]
    try:
        found, _ = end_of(first_record_since(damaged, BASE_MS, 0, 3, 50))
    except ProtocolError:
        return
    assert found is None or isinstance(found, FoundRecord)


@pytest.mark.parametrize("count", [0, 4, 6, (1 << 31) - 1, -1])
def test_count_that_is_not_the_records_is_an_error_where_none_is_found(count: int) -> None:
    data = bytearray(build_batch([(None, b"v")] * 5, timestamp_ms=BASE_MS))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(ProtocolError):
        end_of(first_record_since(data, BASE_MS + 1, 0, 3, 50))


@pytest.mark.parametrize("cut", [0, 10, RECORDS_AT - 1, RECORDS_AT + 5])
def test_batch_that_is_cut_is_an_error(cut: int) -> None:
    with pytest.raises(ProtocolError):
        end_of(first_record_since(build_batch([(None, b"v")] * 5, timestamp_ms=BASE_MS)[:cut], BASE_MS, 0, 3, 50))


@ALL_CODECS
def test_portions_are_bounded_by_records(codec: Compression) -> None:
    data = build_batch([(None, b"")] * 10_000, timestamp_ms=BASE_MS, compression=codec)
    found, portions = end_of(first_record_since(data, BASE_MS + 1, 0, 100, 1 << 20))
    assert found is None
    assert portions >= 99


@ALL_CODECS
def test_search_goes_no_further_than_the_record(codec: Compression) -> None:
    late = NewRecord(None, b"", timestamp_ms=BASE_MS + 1)
    data = build_batch([(None, b""), late, *[(None, b"x")] * 10_000], timestamp_ms=BASE_MS, compression=codec)
    found, portions = end_of(first_record_since(data, BASE_MS + 1, 0, 100, 1 << 20))
    assert found == FoundRecord(1, BASE_MS + 1)
    assert portions == 0


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD])
def test_memory_does_not_go_by_what_is_decompressed(codec: Compression) -> None:
    data = build_batch([(None, bytes(1 << 20))] * 32, timestamp_ms=BASE_MS, compression=codec)
    compress(codec, b"")  # the codec's library is loaded
    tracemalloc.start()
    try:
        end_of(first_record_since(data, BASE_MS + 1, 0, 1_000, 1 << 16))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20


@ALL_CODECS
@pytest.mark.parametrize("size", [0, 1, 1_000, 300_000])
@pytest.mark.parametrize("piece_bytes", [1_000, 1 << 16, 1 << 20])
def test_pieces_are_the_whole(codec: Compression, size: int, piece_bytes: int) -> None:
    data = b"".join(b"%d" % i for i in range(size // 5))
    compressed = compress(codec, data)
    assert b"".join(map(bytes, decompressed_pieces(codec, compressed, piece_bytes))) == data


@ALL_CODECS
def test_pieces_are_no_longer_than_asked_for(codec: Compression) -> None:
    pieces = [len(piece) for piece in decompressed_pieces(codec, compress(codec, bytes(1 << 20)), 1_000)]
    assert max(pieces) == 1_000


def test_snappy_block_comes_behind_an_empty_piece_where_it_is_larger_than_one() -> None:
    bare = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    assert [len(piece) for piece in decompressed_pieces(Compression.SNAPPY, bare, 1 << 19)] == [0, 1 << 19, 1 << 19]
    assert [len(piece) for piece in decompressed_pieces(Compression.SNAPPY, bare, 1 << 20)] == [1 << 20]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("size", [100, 300_000])
def test_streams_behind_one_another_are_one(codec: Compression, size: int) -> None:
    parts = [random.Random(i).randbytes(size) for i in range(3)]
    compressed = b"".join(compress(codec, part) for part in parts)
    assert b"".join(map(bytes, decompressed_pieces(codec, compressed))) == b"".join(parts)


@given(codec=CODECS, data=st.binary(max_size=200), cut=st.integers(0, 250), garbage=st.binary(max_size=3))
def test_pieces_of_damaged_data_fail_as_the_whole_does(
    codec: Compression, data: bytes, cut: int, garbage: bytes
) -> None:
    damaged = compress(codec, data)[:cut] + garbage
    try:
        whole = bytes(decompress(codec, damaged))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            list(decompressed_pieces(codec, damaged, 50))
    else:
        assert b"".join(map(bytes, decompressed_pieces(codec, damaged, 50))) == whole


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD])
def test_pieces_come_to_no_more_than_is_allowed(codec: Compression) -> None:
    data = bytes(100_000)
    compressed = compress(codec, data)
    assert sum(map(len, decompressed_pieces(codec, compressed, 1_000, len(data)))) == len(data)
    with pytest.raises(ProtocolError, match="more than"):
        list(decompressed_pieces(codec, compressed, 1_000, len(data) - 1))
