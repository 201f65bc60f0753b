"""Record batches (magic 2), as far as their header goes.

Owns: the header's layout, reading and patching it in place, walking batches in a buffer, and the checksum.
Owns no records: ``record_codec`` decodes and encodes what is behind the header.

Invariant: nothing here copies a batch; views go in, views and numbers come out.

Kafka counterpart: org.apache.kafka.common.record.DefaultRecordBatch.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from pybroker_protocol.checksum import crc32c
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.schema import Buffer

# Offsets of the header's fields inside of a batch.
BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
PARTITION_LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORDS_COUNT_AT = 57

HEADER_BYTES = 61
LOG_OVERHEAD = 12  # base offset and batch length: what the batch length does not count
CURRENT_MAGIC = 2
OFFSET_MAX = (1 << 63) - 2  # of a record: the offset behind it, where its log ends, has to fit into 64 bits, too
RECORD_BYTES_MIN = 7  # of a record with its length in front, uncompressed

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_PARTITION_LEADER_EPOCH = -1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

HEADER = Struct(">qiibIhiqqqhii")

# Where each field stands in what ``HEADER`` unpacks.
BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 1
PARTITION_LEADER_EPOCH: Final = 2
MAGIC: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORDS_COUNT: Final = 12

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")


class BatchHeader(NamedTuple):
    """The 61 bytes at the start of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch's size, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record (or of the last one there was, in a compacted batch)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequence numbers wrap to 0 behind 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def compression(self) -> int:
        """The number of the compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock made the timestamps (of all records: ``max_timestamp``)."""
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which clients skip."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the batch's tombstones and markers, if it has said so (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


# The same as the bare tuple that ``Struct`` makes: an append path has no time for more.
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def read_batch_header(view: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header at ``pos``; ProtocolError if the buffer ends inside of it.

    Nothing of it is checked: ``batches`` and ``is_intact`` do that.
    """
    if len(view) - pos < HEADER_BYTES:
        raise ProtocolError(f"{len(view) - pos} bytes are too few for the header of a record batch")
    return BatchHeader._make(HEADER.unpack_from(view, pos))


def batches(view: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Walk whole batches from ``pos``: yields (position, header), and stops before a batch that is cut off.

    Raises ProtocolError for a batch of another magic, or one shorter than its header.  No checksum is computed.
    """
    end = len(view)
    while end - pos >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(view, pos))
        if header.magic != CURRENT_MAGIC:
            raise ProtocolError(f"a record batch of magic {header.magic}")
        size_bytes = header.batch_length + LOG_OVERHEAD
        if size_bytes < HEADER_BYTES:
            raise ProtocolError(f"a record batch of {size_bytes} bytes")
        if size_bytes > end - pos:
            return
        yield pos, header
        pos += size_bytes


def end_offset_of(view: Buffer) -> int:
    """The offset after the last of the whole batches that ``view`` holds, which lie in the log; -1 without any."""
    end, pos, last = len(view), 0, -1
    unpack = _INT32.unpack_from
    while end - pos >= HEADER_BYTES:
        size_bytes = unpack(view, pos + BATCH_LENGTH_AT)[0] + LOG_OVERHEAD
        if not HEADER_BYTES <= size_bytes <= end - pos:
            break
        last = pos
        pos += size_bytes
    if last < 0:
        return -1
    base_offset: int = _INT64.unpack_from(view, last + BASE_OFFSET_AT)[0]
    return base_offset + int(unpack(view, last + LAST_OFFSET_DELTA_AT)[0]) + 1


def compute_crc(batch: Buffer, pos: int = 0) -> int:
    """The CRC-32C of the batch at ``pos``, as its length has it, over all behind the checksum itself."""
    (length,) = _INT32.unpack_from(batch, pos + BATCH_LENGTH_AT)
    with memoryview(batch) as view, view[pos + ATTRIBUTES_AT : pos + LOG_OVERHEAD + length] as covered:
        return crc32c(covered)


def is_intact(batch: Buffer, pos: int = 0) -> bool:
    """Whether a whole batch of magic 2 with the right checksum stands at ``pos``."""
    if len(batch) - pos < HEADER_BYTES:
        return False
    header = read_batch_header(batch, pos)
    if header.magic != CURRENT_MAGIC or not HEADER_BYTES <= header.size_bytes <= len(batch) - pos:
        return False
    return header.crc == compute_crc(batch, pos)


def set_base_offset(batch: bytearray | memoryview, base_offset: int, pos: int = 0) -> None:
    """Give the batch its offset in the log; the checksum does not cover it."""
    _INT64.pack_into(batch, pos + BASE_OFFSET_AT, base_offset)


def set_partition_leader_epoch(batch: bytearray | memoryview, leader_epoch: int, pos: int = 0) -> None:
    """Stamp the batch with the epoch of the leader that appends it; the checksum does not cover it."""
    _INT32.pack_into(batch, pos + PARTITION_LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, timestamp_ms: int, pos: int = 0) -> None:
    """Stamp the batch with the broker's time, which then counts for all its records, and renew the checksum."""
    attributes = batch[pos + ATTRIBUTES_AT + 1]
    batch[pos + ATTRIBUTES_AT + 1] = attributes | TIMESTAMP_TYPE_FLAG
    _INT64.pack_into(batch, pos + MAX_TIMESTAMP_AT, timestamp_ms)
    set_crc(batch, pos)


def set_crc(batch: bytearray | memoryview, pos: int = 0) -> None:
    """Renew the checksum after a change behind it."""
    _UINT32.pack_into(batch, pos + CRC_AT, compute_crc(batch, pos))
