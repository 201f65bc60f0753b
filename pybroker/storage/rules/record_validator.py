"""The rules of an append that only a batch's records can answer, and the rewriting of a batch.  Kafka's LogValidator.

Owns: that the records are what the header says, keys on compacted topics, the records' own timestamps, and the change
of codec that ``compression.type`` asks for. Owns which batches are too much for the loop, too: a few bytes may be a
hundred megabytes once they are decompressed. Loaded at first need: of an ordinary topic's batches only those are looked
at here that are large, or whose records are damaged or out of range (``maximum_timestamp`` sees that).

Invariants:
- The records are looked at, and rewritten, piece by piece (``record_walk``), with a pause every few hundred
  microseconds. Beside the batch that takes some pieces, and what the topic lets a batch be, however much it is
  decompressed.
- Records are copied as they are: their offsets are in order, or the batch is refused.

``pybroker.validate.records`` is off unless it is set, because of what a look at all of each record costs in Python. For
small records several times as much as all else that is done for their batch. What is looked at without it are the
lengths and times of records, from which count and maximum follow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from pybroker.storage.results import INVALID_RECORD, INVALID_TIMESTAMP
from pybroker.storage.rules.maximum_timestamp import with_largest_delta, with_maximum
from pybroker.storage.rules.validator import AppendRules, Rejection, too_large
from pybroker.storage_limits import INLINE_DECODE_BYTES_MAX
from pybroker_protocol.compression import (
    DECOMPRESSED_BYTES_MAX,
    PIECE_BYTES,
    Compressor,
    compressor,
    decompressed_pieces,
)
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_times import walk_times
from pybroker_protocol.record_walk import WalkNotes, walk_pieces, walk_section
from pybroker_protocol.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    PARTITION_LEADER_EPOCH,
    RECORDS_COUNT,
    HeaderFields,
    set_crc,
)
from pybroker_protocol.schema import Buffer

# Where records have to be looked at, batches that hold more of them are decoded in a thread, as those of more than
# ``INLINE_DECODE_BYTES_MAX`` are.
INLINE_DECODE_RECORDS_MAX = 1_000

# Records at fault that the answer to a Produce names: a few KB may be millions of them.
RECORD_ERRORS_MAX = 1_000

Prepared = tuple[memoryview, HeaderFields] | Rejection

# Timestamps that no limit keeps out.
_ANY_TIME = 1 << 66


def prepare_records(
    records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int
) -> Generator[None, None, Prepared]:
    """The batch as it is to be written, in the topic's codec, with its header; or why it is refused.  In portions."""
    try:
        return (yield from _prepare(records, header, rules, now_ms, DECOMPRESSED_BYTES_MAX))
    except ProtocolError as error:
        return _damaged(error)


def prepare_at_once(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> Prepared | None:
    """The same on the loop; ``None`` where it would hold the loop up: then it is a thread's."""
    if len(records) > INLINE_DECODE_BYTES_MAX or header[RECORDS_COUNT] > INLINE_DECODE_RECORDS_MAX:
        return None  # how large they are decompressed, only that shows
    if not header[ATTRIBUTES] & COMPRESSION_MASK and rules.codec <= 0:
        notes = _notes(header, rules, now_ms)
        try:
            walk_section(bytes(records[HEADER_BYTES:]), header[RECORDS_COUNT], notes)
        except ProtocolError as error:
            return _damaged(error)
        return _check_notes(notes, rules, now_ms) or (records, _with_true_time(records, header, notes, rules))
    steps = _prepare(records, header, rules, now_ms, INLINE_DECODE_BYTES_MAX)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        prepared: Prepared = end.value
        return prepared
    except ProtocolError:
        return None  # large once it is decompressed, or damaged: the thread finds out which


def _damaged(error: ProtocolError) -> Rejection:
    return Rejection(INVALID_RECORD, f"The records of the batch are damaged: {error}")


def _prepare(
    records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int, decompressed_bytes_max: int
) -> Generator[None, None, Prepared]:
    """Raises ProtocolError for damaged records, and for more than ``decompressed_bytes_max`` of them."""
    codec, count = header[ATTRIBUTES] & COMPRESSION_MASK, header[RECORDS_COUNT]

    def pieces() -> Iterator[Buffer]:
        return decompressed_pieces(codec, records[HEADER_BYTES:], PIECE_BYTES, decompressed_bytes_max)

    if not rules.needs_records:
        largest = yield from walk_times(pieces(), count)
        timely = with_largest_delta(records, header, largest, rules, now_ms)
        if timely is not None:
            return records, timely
    notes = _notes(header, rules, now_ms)
    rewriting = None if rules.codec in {-1, codec} else _Rewriting(rules)
    read = pieces() if rewriting is None else rewriting.read_through(pieces())
    yield from walk_pieces(read, count, notes)
    rejection = _check_notes(notes, rules, now_ms)
    if rejection is not None:
        return rejection
    if rewriting is None:
        return records, _with_true_time(records, header, notes, rules)
    batch = rewriting.batch(header)
    if isinstance(batch, Rejection):
        return batch
    return batch, _with_true_time(batch, HEADER.unpack_from(batch), notes, rules)


class _Rewriting:
    """The records in the codec that the topic asks for, as far as they have been read."""

    def __init__(self, rules: AppendRules) -> None:
        self._rules = rules
        self._stream: Compressor = compressor(rules.codec)
        self._payload = bytearray()

    def read_through(self, pieces: Iterator[Buffer]) -> Iterator[Buffer]:
        """The pieces, each of which is taken on its way; past what a batch may be they are no longer kept."""
        for piece in pieces:
            if len(self._payload) <= self._rules.max_message_bytes:
                self._payload += self._stream.compress(piece)
            yield piece

    def batch(self, header: HeaderFields) -> memoryview | Rejection:
        """All of it behind a header that is otherwise the same."""
        rules = self._rules
        if len(self._payload) <= rules.max_message_bytes:
            self._payload += self._stream.flush()
        size = HEADER_BYTES + len(self._payload)
        if size > rules.max_message_bytes:
            return too_large(size, rules)
        batch = bytearray(size)
        attributes = header[ATTRIBUTES] & ~COMPRESSION_MASK | rules.codec
        HEADER.pack_into(
            batch,
            0,
            header[BASE_OFFSET],
            size - LOG_OVERHEAD,
            *header[PARTITION_LEADER_EPOCH:ATTRIBUTES],
            attributes,
            *header[LAST_OFFSET_DELTA:],
        )
        batch[HEADER_BYTES:] = self._payload
        set_crc(batch)
        return memoryview(batch)


def _notes(header: HeaderFields, rules: AppendRules, now_ms: int) -> WalkNotes:
    """What the walk over a batch is to look for."""
    if rules.log_append_time:
        earliest, latest = -_ANY_TIME, _ANY_TIME
    else:
        earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    return WalkNotes(
        keys_wanted=rules.compacted,
        base_timestamp=header[BASE_TIMESTAMP],
        earliest=earliest,
        latest=latest,
        faults_max=RECORD_ERRORS_MAX,
    )


def _check_notes(notes: WalkNotes, rules: AppendRules, now_ms: int) -> Rejection | None:
    """Why the records are refused, ``None`` if they are not."""
    if not notes.faults_count:
        return None
    errors = [
        (
            index,
            "A compacted topic does not accept records without a key"
            if timestamp is None
            else _timestamp_error(timestamp, rules, now_ms),
        )
        for index, timestamp in notes.faults
    ]
    # Kafka's words: clients show them, and tests of clients compare them.
    if notes.any_untimely:
        return Rejection(INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors)
    count = notes.faults_count
    return Rejection(INVALID_RECORD, f"One or more records have been rejected due to {count} record errors", errors)


def _timestamp_error(timestamp: int, rules: AppendRules, now_ms: int) -> str:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    return f"The timestamp {timestamp} is not within [{earliest}, {latest}]"


def _with_true_time(batch: memoryview, header: HeaderFields, notes: WalkNotes, rules: AppendRules) -> HeaderFields:
    """The header, which says what the records' largest timestamp is; one that did not is written anew."""
    return header if rules.log_append_time else with_maximum(batch, header, notes.largest_timestamp)
