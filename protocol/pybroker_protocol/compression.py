"""The compression codecs of record batches.

Owns: the codecs' numbers, compressing and decompressing the records section of a batch in the framing that each of
Kafka's clients uses, at once or piece by piece.

Invariants: decompression never makes more than the bytes it was allowed, and piece by piece it holds no more than the
compressed bytes and a piece, but for the whole blocks of snappy, which have at most 32 times the compressed bytes, and
of lz4, which have at most 4 MiB.  A codec's library is imported at its first use.

Kafka counterpart: org.apache.kafka.common.compress.
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, Protocol

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_uvarint
from pybroker_protocol.schema import Buffer


class Compression(IntEnum):
    """A codec by the number in a batch's attributes; ``compression.type`` calls the first one "uncompressed"."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# A batch is bounded by max.message.bytes, but 1 MB of it can claim to be a gigabyte.  What well-behaved producers
# send (records of at most some MB each, ratios below 100) stays far below this.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

# How many bytes one compressed byte may stand for, by the codecs' numbers: the formats allow no more.  Deflate has two
# bits for 258 bytes, snappy three bytes for 64, lz4 one for 255, zstd four for a block of 128 KiB.
EXPANSION_MAX = (1, 1032, 32, 256, 32 * 1024)

# What is decompressed at a time where nobody says otherwise: less costs more calls than it saves memory.
PIECE_BYTES = 64 * 1024

_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_INT32 = Struct(">i")
# What a decompressor is given at a time where its output is taken in pieces: it copies what it has not come to.
_INPUT_BYTES = 64 * 1024
_ROOM_STEP_BYTES = 1024 * 1024

# The header of snappy-java's stream: magic, version 1, compatible with version 1.  Then blocks behind their int32 size.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES = 32 * 1024

# The head of an lz4 frame: magic, flags, the blocks' size by its number, a byte of the hash of those two.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"  # as Kafka's clients have it: independent blocks of 64 KiB, no checksums
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_SIZES = {number: 1 << (8 + 2 * number) for number in range(4, 8)}
# Of version 1, whose blocks are independent; what else a frame may have.
_LZ4_PLAIN, _LZ4_BLOCK_SUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_SUM = 0x60, 0x10, 0x08, 0x04
_LZ4_STORED = 1 << 31  # in a block's size: it is not compressed
# Room for a block, which no thread uses now: to find it anew takes longer than to decompress a small one.
_lz4_rooms: list[Any] = []
_LZ4_END = b"\0\0\0\0"
_UINT32 = Struct("<I")


class Compressor(Protocol):
    """Makes one stream of what it is given piece by piece; what ``compress`` and ``flush`` return belongs together."""

    def compress(self, data: Buffer, /) -> bytes: ...

    def flush(self) -> bytes:
        """The end of the stream."""
        ...


def compressor(codec: int) -> Compressor:
    """A stream in the Java client's framing; ValueError for an unknown codec."""
    match codec:
        case Compression.NONE:
            return _Verbatim()
        case Compression.GZIP:
            return zlib.compressobj(wbits=_GZIP_FORMAT)
        case Compression.SNAPPY:
            return _SnappyCompressor()
        case Compression.LZ4:
            return _Lz4Compressor()
        case Compression.ZSTD:
            stream: Compressor = _zstd().ZstdCompressor()
            return stream
    raise ValueError(f"no compression codec has the number {codec}")


def compress(codec: int, data: Buffer) -> bytes:
    """Compress a records section as the Java client frames it; ValueError for an unknown codec."""
    stream = compressor(codec)
    return stream.compress(data) + stream.flush()


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompress a records section; ``data`` itself where it is not compressed.

    Raises ProtocolError for an unknown codec, damaged data, or more than ``bytes_max`` bytes of output.
    """
    if codec == Compression.NONE:
        return data
    pieces = [piece for piece in decompressed_pieces(codec, data, bytes_max + 1, bytes_max) if piece]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decompressed_pieces(
    codec: int, data: Buffer, piece_bytes: int = PIECE_BYTES, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Buffer]:
    """What ``decompress`` makes, piece by piece, so that neither its time nor its memory goes by the whole.

    No piece has more than ``piece_bytes``; some are empty, as is one before a block of snappy's that may take longer.
    Raises ProtocolError as ``decompress`` does, possibly behind some pieces.
    """
    match codec:
        case Compression.NONE:
            return (data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes))
        case Compression.GZIP:
            return _no_more_than(bytes_max, _gzip_pieces(data, piece_bytes))
        case Compression.SNAPPY:
            return _snappy_pieces(data, piece_bytes, bytes_max)
        case Compression.LZ4:
            return _no_more_than(bytes_max, _lz4_pieces(memoryview(data), piece_bytes))
        case Compression.ZSTD:
            return _no_more_than(bytes_max, _zstd_pieces(data, piece_bytes))
    raise ProtocolError(f"no compression codec has the number {codec}")


def _no_more_than(bytes_max: int, pieces: Iterator[Buffer]) -> Iterator[Buffer]:
    used_bytes = 0
    for piece in pieces:
        used_bytes += len(piece)
        if used_bytes > bytes_max:
            raise _too_large(bytes_max)
        yield piece


def _too_large(bytes_max: int) -> ProtocolError:
    return ProtocolError(f"compressed records take more than {bytes_max} bytes")


def _inputs(data: Buffer) -> Iterator[Buffer]:
    return (data[at : at + _INPUT_BYTES] for at in range(0, len(data), _INPUT_BYTES))


def _gzip_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """All members of the file; as in Java what comes behind and is none is not looked at."""
    decompressor = zlib.decompressobj(wbits=_GZIP_FORMAT)
    try:
        for portion in _inputs(data):
            rest = portion
            while rest:
                if decompressor.eof:
                    if not _GZIP_MAGIC.startswith(rest[:2]):
                        return
                    decompressor = zlib.decompressobj(wbits=_GZIP_FORMAT)
                yield decompressor.decompress(rest, piece_bytes)
                rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
        while not decompressor.eof:
            piece = decompressor.decompress(b"", piece_bytes)
            if not piece and not decompressor.eof:
                raise ProtocolError("the gzip data ends too early")
            yield piece
    except zlib.error as error:
        raise ProtocolError(f"the gzip data is damaged: {error}") from error


def _lz4_pieces(data: memoryview, piece_bytes: int) -> Iterator[Buffer]:
    """The first frame; as in Kafka nothing behind it is looked at."""
    flags, block_bytes, pos = _lz4_header(data)
    total = _xxhash().xxh32() if flags & _LZ4_CONTENT_SUM else None
    try:
        while size := _UINT32.unpack_from(data, pos)[0]:
            pos += 4
            length = size & ~_LZ4_STORED
            if length > min(block_bytes, len(data) - pos):
                raise ProtocolError("the lz4 data ends too early, or has a block that is too long")
            block: Buffer = data[pos : pos + length]
            pos += length
            if flags & _LZ4_BLOCK_SUMS:
                if _UINT32.unpack_from(data, pos)[0] != _xxhash().xxh32_intdigest(block):
                    raise ProtocolError("the lz4 data is damaged: a block has another checksum")
                pos += 4
            if not size & _LZ4_STORED:
                if block_bytes > _LZ4_BLOCK_BYTES:
                    yield b""
                block = _lz4_block(block, block_bytes)
            if total is not None:
                total.update(block)
            yield from _cut(block, piece_bytes)
        if total is not None and _UINT32.unpack_from(data, pos + 4)[0] != total.intdigest():
            raise ProtocolError("the lz4 data is damaged: it has another checksum")
    except StructError:
        raise ProtocolError("the lz4 data ends too early") from None


def _xxhash() -> Any:
    import xxhash

    return xxhash


def _lz4_block(block: Buffer, block_bytes: int) -> Buffer:
    """A block, which says nowhere how long it is: where it is a client's, into room that is there already."""
    import cramjam

    if block_bytes > _LZ4_BLOCK_BYTES:
        room_bytes = min(block_bytes, EXPANSION_MAX[Compression.LZ4] * len(block))
        return _decompressed_block("lz4", cramjam.lz4.decompress_block_into, block, room_bytes)
    try:
        room = _lz4_rooms.pop()
    except IndexError:
        room = cramjam.Buffer(bytes(_LZ4_BLOCK_BYTES))
    try:
        length = cramjam.lz4.decompress_block_into(block, room)
        return memoryview(room)[:length].tobytes()
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"the lz4 data is damaged: {error}") from error
    finally:
        _lz4_rooms.append(room)


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """The flags of a frame, how many bytes its blocks have at most, and where they begin.

    ProtocolError for what Kafka's reader refuses, linked blocks and dictionaries among it.
    """
    if data[: len(_LZ4_HEADER)] == _LZ4_HEADER:
        return _LZ4_PLAIN, _LZ4_BLOCK_BYTES, len(_LZ4_HEADER)
    begin = len(_LZ4_MAGIC)
    if data[:begin] != _LZ4_MAGIC or len(data) <= begin + 2:
        raise ProtocolError("the lz4 data has no header of a frame")
    flags, size = data[begin], data[begin + 1]
    end = begin + 2 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    optional = _LZ4_BLOCK_SUMS | _LZ4_CONTENT_SIZE | _LZ4_CONTENT_SUM
    block_bytes = _LZ4_SIZES.get(size >> 4) if not size & 0x8F else None
    if flags & ~optional != _LZ4_PLAIN or block_bytes is None or len(data) <= end:
        raise ProtocolError("the lz4 data has a header that Kafka does not read; its blocks may be linked")
    if data[end] != _xxhash().xxh32_intdigest(data[begin:end]) >> 8 & 0xFF:
        raise ProtocolError("the lz4 data is damaged: its header has another checksum")
    return flags, block_bytes, end + 1


def _zstd_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """All frames; what comes behind and is none is damage, as in Java."""
    zstd = _zstd()
    decompressor = zstd.ZstdDecompressor()
    try:
        for portion in _inputs(data):
            rest = portion
            while rest:
                if decompressor.eof:
                    decompressor = zstd.ZstdDecompressor()
                yield decompressor.decompress(rest, piece_bytes)
                while not decompressor.eof and not decompressor.needs_input:
                    yield decompressor.decompress(b"", piece_bytes)
                rest = decompressor.unused_data
    except zstd.ZstdError as error:
        raise ProtocolError(f"the zstd data is damaged: {error}") from error
    if not decompressor.eof:
        raise ProtocolError("the zstd data ends too early")


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _snappy_pieces(data: Buffer, piece_bytes: int, bytes_max: int) -> Iterator[Buffer]:
    """Both framings: snappy-java's stream of blocks, and the one bare block that librdkafka sends."""
    import cramjam

    left = bytes_max
    is_stream = data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    for block in _xerial_blocks(data) if is_stream else (data,):
        length = _snappy_length(block, left, bytes_max)
        left -= length
        if length > piece_bytes:
            yield b""
        yield from _cut(_decompressed_block("snappy", cramjam.snappy.decompress_raw_into, block, length), piece_bytes)


def _cut(block: Buffer, piece_bytes: int) -> Iterator[Buffer]:
    return (block[at : at + piece_bytes] for at in range(0, len(block), piece_bytes))


def _xerial_blocks(data: Buffer) -> Iterator[Buffer]:
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        if pos + 4 > len(data):
            raise ProtocolError("the snappy data ends too early")
        (length,) = _INT32.unpack_from(data, pos)
        pos += 4
        if not 0 <= length <= len(data) - pos:
            raise ProtocolError("the snappy data ends too early")
        yield data[pos : pos + length]
        pos += length


def _snappy_length(block: Buffer, bytes_left: int, bytes_max: int) -> int:
    """How many bytes a block says that it has, where that can be."""
    length, _ = read_uvarint(block, 0)
    if length > bytes_left:
        raise _too_large(bytes_max)
    if length > EXPANSION_MAX[Compression.SNAPPY] * len(block):
        raise ProtocolError("the snappy data is shorter than it says")
    return length


def _decompressed_block(
    codec: str, decompress_into: Callable[[Buffer, bytearray], int], block: Buffer, room_bytes: int
) -> Buffer:
    """A block that takes no more than ``room_bytes``.

    Room is made by steps: all at once holds the interpreter for as long as the kernel takes to find that much memory.
    For the same reason nothing is copied as a whole here; the codecs let the interpreter go.
    """
    import cramjam

    output = bytearray(min(_ROOM_STEP_BYTES, room_bytes))
    while len(output) < room_bytes:
        output += bytes(min(_ROOM_STEP_BYTES, room_bytes - len(output)))
    try:
        return memoryview(output)[: decompress_into(block, output)]
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"the {codec} data is damaged: {error}") from error


class _Verbatim:
    def compress(self, data: Buffer, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


class _BlockCompressor:
    """A header, blocks of a certain length, the last of them shorter, and what ends the stream."""

    HEADER: ClassVar[bytes]
    BLOCK_BYTES: ClassVar[int]
    END: ClassVar[bytes] = b""

    def __init__(self) -> None:
        self._rest = b""
        self._header = self.HEADER

    def compress(self, data: Buffer, /) -> bytes:
        data = self._rest + bytes(data)
        end = len(data) - len(data) % self.BLOCK_BYTES
        self._rest = data[end:]
        return self._blocks(data[:end])

    def flush(self) -> bytes:
        rest, self._rest = self._rest, b""
        return self._blocks(rest) + self.END

    def _blocks(self, data: bytes) -> bytes:
        parts, self._header = [self._header], b""
        for pos in range(0, len(data), self.BLOCK_BYTES):
            parts += self._block(data[pos : pos + self.BLOCK_BYTES])
        return b"".join(parts)

    def _block(self, data: bytes) -> tuple[bytes, bytes]:
        """A block's size, and the block."""
        raise NotImplementedError


class _SnappyCompressor(_BlockCompressor):
    """snappy-java's stream."""

    HEADER = _XERIAL_HEADER
    BLOCK_BYTES = _XERIAL_BLOCK_BYTES

    def _block(self, data: bytes) -> tuple[bytes, bytes]:
        import cramjam

        block = bytes(cramjam.snappy.compress_raw(data))
        return _INT32.pack(len(block)), block


class _Lz4Compressor(_BlockCompressor):
    """A frame of blocks that are not linked, because Kafka's reader refuses linked ones."""

    HEADER = _LZ4_HEADER
    BLOCK_BYTES = _LZ4_BLOCK_BYTES
    END = _LZ4_END

    def _block(self, data: bytes) -> tuple[bytes, bytes]:
        import cramjam

        block = bytes(cramjam.lz4.compress_block(data, store_size=False))
        if len(block) < len(data):
            return _UINT32.pack(len(block)), block
        return _UINT32.pack(len(data) | _LZ4_STORED), data
