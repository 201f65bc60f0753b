"""The codecs: what each client sends is read, and no batch grows beyond what is allowed."""

from __future__ import annotations

import gzip
import tracemalloc

import cramjam
import lz4.frame
import pytest
from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from pybroker_protocol.compression import Compression, compress, decompress
from pybroker_protocol.errors import ProtocolError

COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]
DATA = [b"", b"a", bytes(range(256)) * 40, b"abc" * 100_000]
THEIR_DECODERS = {
    Compression.GZIP: gzip_decode,
    Compression.SNAPPY: snappy_decode,
    Compression.LZ4: lz4_decode,
    Compression.ZSTD: zstd_decode,
}


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", DATA, ids=len)
def test_data_survives_a_round_trip(codec: Compression, data: bytes) -> None:
    assert bytes(decompress(codec, memoryview(compress(codec, data)))) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", DATA[1:], ids=len)
def test_kafka_python_reads_what_we_compress(codec: Compression, data: bytes) -> None:
    assert bytes(THEIR_DECODERS[codec](compress(codec, data))) == data


def test_bare_snappy_block_of_librdkafka_is_read() -> None:
    data = b"abc" * 1000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_of_other_lz4_writers_are_read(linked: bool, checksum: bool) -> None:
    data = b"abc" * 100_000
    frame = lz4.frame.compress(data, block_linked=linked, content_checksum=checksum, store_size=checksum)
    assert decompress(Compression.LZ4, frame) == data


def test_lz4_blocks_are_independent_as_kafkas_reader_wants_them() -> None:
    flags = compress(Compression.LZ4, b"abc" * 100_000)[4]
    assert flags & 0b0010_0000


def test_uncompressed_data_is_handed_on_as_it_is() -> None:
    data = memoryview(b"data")
    assert decompress(Compression.NONE, data) is data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_above_the_limit_is_refused(codec: Compression) -> None:
    compressed = compress(codec, b"abc" * 1000)
    assert len(decompress(codec, compressed, 3000)) == 3000
    with pytest.raises(ProtocolError, match="more than 2999 bytes"):
        decompress(codec, compressed, 2999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_does_not_take_more_memory_than_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_snappy_block_that_claims_to_be_large_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(ProtocolError, match="shorter than it says"):
        decompress(Compression.SNAPPY, b"\x80\x80\x80\x20" + bytes(10))


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_data_is_refused(codec: Compression, damage: str) -> None:
    compressed = compress(codec, b"abc" * 1000)
    data = {"cut": compressed[:-5], "empty": b"", "noise": b"this was never compressed"}[damage]
    with pytest.raises(ProtocolError):
        decompress(codec, data)


@pytest.mark.parametrize("tail", [b"\x00", b"\x00\x00\x00\x09abc", b"\xff\xff\xff\xff"])
def test_damaged_stream_of_snappy_blocks_is_refused(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"abc") + tail)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(ProtocolError, match="no compression codec"):
        decompress(codec, b"")
    with pytest.raises(ValueError, match="no compression codec"):
        compress(codec, b"")


def test_gzip_of_another_writer_is_read() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"abc" * 1000)) == b"abc" * 1000
