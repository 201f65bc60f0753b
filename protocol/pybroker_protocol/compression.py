"""The compression codecs of record batches.

Owns: the codecs' numbers, compressing and decompressing the records section of a batch in the framing that each of
Kafka's clients uses, at once or piece by piece.

Invariants:
- Decompression never makes more than the bytes it was allowed. Piece by piece it holds no more than the compressed
  bytes and a piece. Snappy, whose blocks are whole, may hold 32 times the compressed bytes.
- A codec's library is imported at its first use.

Kafka counterpart: org.apache.kafka.common.compress.
"""

import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, Protocol

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
_GROWTH_BYTES = 1024 * 1024

# The header of snappy-java's stream: magic, version 1, compatible with version 1.  Then blocks behind their int32 size.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES = 32 * 1024


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
            return _no_more_than(bytes_max, _lz4_pieces(data, piece_bytes))
        case Compression.ZSTD:
            return _no_more_than(bytes_max, _zstd_pieces(data, piece_bytes))
    raise ProtocolError(f"no compression codec has the number {codec}")


def _no_more_than(bytes_max: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
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


def _lz4_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    """The first frame; as in Kafka nothing behind it is looked at."""
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        for portion in _inputs(data):
            if decompressor.eof:
                return
            yield decompressor.decompress(portion, max_length=piece_bytes)
            while not decompressor.eof and not decompressor.needs_input:
                yield decompressor.decompress(b"", max_length=piece_bytes)
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the lz4 data is damaged: {error}") from error
    if not decompressor.eof:
        raise ProtocolError("the lz4 data ends too early")


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
    left = bytes_max
    is_stream = data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    for block in _xerial_blocks(data) if is_stream else (data,):
        length = _snappy_length(block, left, bytes_max)
        left -= length
        if length <= piece_bytes:
            yield _decompress_snappy_block(block, length)
        else:
            yield b""
            whole = _decompress_snappy_block(block, length)
            yield from (whole[at : at + piece_bytes] for at in range(0, length, piece_bytes))


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


def _decompress_snappy_block(block: Buffer, length: int) -> Buffer:
    """A block of that length.

    Space is made by steps: all at once holds the interpreter for as long as the kernel takes to find that much memory.
    For the same reason nothing is copied as a whole here; the codecs let the interpreter go.
    """
    import cramjam

    output = bytearray()
    while len(output) < length:
        output += bytes(min(_GROWTH_BYTES, length - len(output)))
    try:
        return memoryview(output)[: cramjam.snappy.decompress_raw_into(block, output)]
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"the snappy data is damaged: {error}") from error


class _Verbatim:
    def compress(self, data: Buffer, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


class _SnappyCompressor:
    """snappy-java's stream: blocks of 32 KiB, the last of them shorter."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def compress(self, data: Buffer, /) -> bytes:
        data = self._rest + bytes(data)
        end = len(data) - len(data) % _XERIAL_BLOCK_BYTES
        self._rest = data[end:]
        return self._blocks(data[:end])

    def flush(self) -> bytes:
        rest, self._rest = self._rest, b""
        return self._blocks(rest)

    def _blocks(self, data: bytes) -> bytes:
        import cramjam

        parts = [] if self._begun else [_XERIAL_HEADER]
        self._begun = True
        for pos in range(0, len(data), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK_BYTES]))
            parts += (_INT32.pack(len(block)), block)
        return b"".join(parts)


class _Lz4Compressor:
    """A frame of blocks that are not linked, because Kafka's reader refuses linked ones."""

    def __init__(self) -> None:
        import lz4.frame

        self._stream = lz4.frame.LZ4FrameCompressor(block_linked=False)
        self._head: bytes = self._stream.begin()

    def compress(self, data: Buffer, /) -> bytes:
        head, self._head = self._head, b""
        body: bytes = self._stream.compress(data)
        return head + body

    def flush(self) -> bytes:
        head, self._head = self._head, b""
        tail: bytes = self._stream.flush()
        return head + tail
