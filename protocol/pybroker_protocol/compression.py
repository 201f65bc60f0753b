"""The compression codecs of record batches.

Owns: the codecs' numbers, compressing and decompressing the records section of a batch in the framing that each of
Kafka's clients uses.

Invariant: decompression never makes more than the bytes it was allowed; a codec's library is imported at its first use.

Kafka counterpart: org.apache.kafka.common.compress.
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

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

_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_INT32 = Struct(">i")
# What a decompressor is given at a time where its output is taken in pieces: it copies what it has not come to.
_INPUT_BYTES = 64 * 1024
_ROOM_STEP_BYTES = 1024 * 1024

# The header of snappy-java's stream: magic, version 1, compatible with version 1.  Then blocks behind their int32 size.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES = 32 * 1024
_ZSTD_FIRST_GUESS_BYTES = 64 * 1024
_ZSTD_OUTPUT_FULL = "failed to write whole buffer"  # the library has one type for all errors


def compress(codec: int, data: Buffer) -> bytes:
    """Compress a records section as the Java client frames it; ValueError for an unknown codec."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            compressor = zlib.compressobj(wbits=_GZIP_FORMAT)
            return compressor.compress(data) + compressor.flush()
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            import lz4.frame

            # Kafka's reader refuses linked blocks.
            compressed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
            return compressed
        case Compression.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(data))
    raise ValueError(f"no compression codec has the number {codec}")


def decompress(codec: int, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompress a records section; ``data`` itself where it is not compressed.

    Raises ProtocolError for an unknown codec, damaged data, or more than ``bytes_max`` bytes of output.
    """
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _decompress_gzip(data, bytes_max)
        case Compression.SNAPPY:
            return _decompress_snappy(data, bytes_max)
        case Compression.LZ4:
            return _decompress_lz4(data, bytes_max)
        case Compression.ZSTD:
            return _decompress_zstd(data, bytes_max)
    raise ProtocolError(f"no compression codec has the number {codec}")


def decompressed_pieces(
    codec: int, data: Buffer, piece_bytes: int, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Buffer]:
    """What ``decompress`` makes, piece by piece, so that neither its time nor its memory goes by the whole.

    Pieces have about ``piece_bytes``, where the codec can stop there; where it cannot, an empty one comes before
    anything that takes longer.  Raises ProtocolError as ``decompress`` does, possibly behind some pieces.
    """
    match codec:
        case Compression.NONE:
            for pos in range(0, len(data), piece_bytes):
                yield data[pos : pos + piece_bytes]
        case Compression.GZIP:
            yield from _no_more_than(bytes_max, _gzip_pieces(data, piece_bytes))
        case Compression.LZ4:
            yield from _no_more_than(bytes_max, _lz4_pieces(data, piece_bytes))
        case Compression.SNAPPY if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            yield from _xerial_blocks(data, bytes_max)
        case _:
            try:
                whole = decompress(codec, data, min(piece_bytes, bytes_max))
            except ProtocolError:  # more than a piece, or damaged
                yield b""
                whole = decompress(codec, data, bytes_max)
            view = memoryview(whole)
            for pos in range(0, len(view), piece_bytes):
                yield view[pos : pos + piece_bytes]


def _no_more_than(bytes_max: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    used_bytes = 0
    for piece in pieces:
        used_bytes += len(piece)
        if used_bytes > bytes_max:
            raise _too_large(bytes_max)
        yield piece


def _too_large(bytes_max: int) -> ProtocolError:
    return ProtocolError(f"compressed records take more than {bytes_max} bytes")


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=_GZIP_FORMAT)
    try:
        output = decompressor.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise ProtocolError(f"the gzip data is damaged: {error}") from error
    if len(output) > bytes_max:
        raise _too_large(bytes_max)
    if not decompressor.eof:
        raise ProtocolError("the gzip data ends too early")
    return output


def _gzip_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=_GZIP_FORMAT)
    try:
        for pos in range(0, len(data), _INPUT_BYTES):
            rest: Buffer = data[pos : pos + _INPUT_BYTES]
            while rest and not decompressor.eof:
                yield decompressor.decompress(rest, piece_bytes)
                rest = decompressor.unconsumed_tail
        while not decompressor.eof:
            piece = decompressor.decompress(b"", piece_bytes)
            if not piece and not decompressor.eof:
                raise ProtocolError("the gzip data ends too early")
            yield piece
    except zlib.error as error:
        raise ProtocolError(f"the gzip data is damaged: {error}") from error


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    for pos in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bytes_max: int) -> Buffer:
    """Both framings: snappy-java's stream of blocks, and the one bare block that librdkafka sends."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, 0, bytes_max)
    return b"".join(_xerial_blocks(data, bytes_max))


def _xerial_blocks(data: Buffer, bytes_max: int) -> Iterator[Buffer]:
    used_bytes = 0
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        if pos + 4 > len(data):
            raise ProtocolError("the snappy data ends too early")
        (length,) = _INT32.unpack_from(data, pos)
        pos += 4
        if not 0 <= length <= len(data) - pos:
            raise ProtocolError("the snappy data ends too early")
        block = _decompress_snappy_block(data[pos : pos + length], used_bytes, bytes_max)
        used_bytes += len(block)
        yield block
        pos += length


def _decompress_snappy_block(block: Buffer, used_bytes: int, bytes_max: int) -> Buffer:
    import cramjam

    length, _ = read_uvarint(block, 0)
    if length > bytes_max - used_bytes:
        raise _too_large(bytes_max)
    # Three bytes of a block stand for at most 64 bytes of output, so a larger claim is a lie.
    if length > 32 * len(block):
        raise ProtocolError("the snappy data is shorter than it says")
    output = bytearray()
    _grow(output, length)
    try:
        return memoryview(output)[: cramjam.snappy.decompress_raw_into(block, output)]
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"the snappy data is damaged: {error}") from error


def _decompress_lz4(data: Buffer, bytes_max: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        output: bytes = decompressor.decompress(data, max_length=bytes_max + 1)
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the lz4 data is damaged: {error}") from error
    if len(output) > bytes_max:
        raise _too_large(bytes_max)
    if not decompressor.eof:
        raise ProtocolError("the lz4 data ends too early")
    return output


def _lz4_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        for pos in range(0, len(data), _INPUT_BYTES):
            if decompressor.eof:
                return
            yield decompressor.decompress(data[pos : pos + _INPUT_BYTES], max_length=piece_bytes)
            while not decompressor.eof and not decompressor.needs_input:
                yield decompressor.decompress(b"", max_length=piece_bytes)
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the lz4 data is damaged: {error}") from error
    if not decompressor.eof:
        raise ProtocolError("the lz4 data ends too early")


def _decompress_zstd(data: Buffer, bytes_max: int) -> Buffer:
    """Streams do not say how large they are: try with more and more room, ``bytes_max`` in the end."""
    import cramjam

    size = min(max(_ZSTD_FIRST_GUESS_BYTES, 4 * len(data)), bytes_max)
    output = bytearray()
    while True:
        _grow(output, size)
        try:
            written = cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _ZSTD_OUTPUT_FULL not in str(error):
                raise ProtocolError(f"the zstd data is damaged: {error}") from error
            if size == bytes_max:
                raise _too_large(bytes_max) from error
            size = min(4 * size, bytes_max)
        else:
            return memoryview(output)[:written]


def _grow(buffer: bytearray, size: int) -> None:
    """Make room by steps: all at once holds the interpreter for as long as the kernel takes to find that much memory.

    For the same reason nothing that is decompressed is copied as a whole here; the codecs let the interpreter go.
    """
    while len(buffer) < size:
        buffer += bytes(min(_ROOM_STEP_BYTES, size - len(buffer)))
