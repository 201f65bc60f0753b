"""Rebuilds a shard's state from its partition's log, without keeping the loop busy.

Owns: reading one partition from start to end and replaying what it finds, in slices.  Changes nothing but the state.

Invariant: a partition counts as loaded only when everything up to its end was read. Where the log reports an error, or
what it holds are no batches or no records, loading has failed: whatever lies behind would be missing without a word. A
record that was read but means nothing here (a version of the future, a damaged value) is passed over with one log line.
It stays in the log, and the partition's other groups are served.

Counterpart in Kafka: ``CoordinatorLoaderImpl``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from pybroker.coordinators.coordinator_ports import PartitionReader
from pybroker.coordinators.coordinator_shard import CoordinatorShard
from pybroker.env import Cancellable, Env
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import ControlRecordType, Record, control_type, decode_records
from pybroker_protocol.records import NO_PRODUCER_ID, BatchHeader, batches

# A slice of loading a coordinator's partition holds the loop for about this long, then everybody else has a turn.
LOAD_SLICE_MS = 2

# Bytes copied out of the log at a time while loading; small enough that the copy itself stays within a slice.
LOAD_READ_BYTES = 256 << 10

logger = logging.getLogger(__name__)

# The clock has a resolution of a millisecond and costs about as much as a record, so it is asked once in so many.
RECORDS_PER_CLOCK_READ = 32


class Loader:
    """Replays one partition from ``start_offset`` to ``end_offset`` into ``state``."""

    __slots__ = (
        "_env",
        "_failed",
        "_loaded",
        "_name",
        "_next",
        "_offset",
        "_partition",
        "_reader",
        "_records",
        "_state",
        "_topic",
        "end_offset",
    )

    def __init__(
        self,
        env: Env,
        reader: PartitionReader,
        topic: str,
        partition: int,
        state: CoordinatorShard,
        start_offset: int,
        end_offset: int,
    ) -> None:
        self._env = env
        self._reader = reader
        self._topic = topic
        self._partition = partition
        self._name = f"{topic}-{partition}"
        self._state = state
        self._offset = start_offset
        self.end_offset = end_offset
        self._records: Iterator[None] = iter(())
        self._next: Cancellable | None = None
        self._loaded: Callable[[], None] | None = None
        self._failed: Callable[[], None] | None = None

    def start(self, loaded: Callable[[], None], failed: Callable[[], None]) -> None:
        """Begin in the next turn of the loop; ``loaded()`` runs once all is replayed, or ``failed()``, which leaves a
        state that must serve no request; neither after ``cancel``."""
        self._loaded, self._failed = loaded, failed
        self._next = self._env.timers.call_soon(self._read)

    def cancel(self) -> None:
        """Stop where it stands."""
        self._loaded = self._failed = None
        if self._next is not None:
            self._next.cancel()

    def _fail(self, reason: str) -> None:
        logger.error("cannot load %s from offset %d to %d: %s", self._name, self._offset, self.end_offset, reason)
        failed = self._failed
        self.cancel()
        if failed is not None:
            failed()

    def _read(self) -> None:
        if self._loaded is None:
            return
        if self._offset >= self.end_offset:
            self._loaded()
            return
        self._reader.read(self._topic, self._partition, self._offset, LOAD_READ_BYTES, self._on_read)

    def _on_read(self, error_code: int, records: memoryview) -> None:
        if self._loaded is None:
            return
        if error_code:
            self._fail(f"error {error_code}")
            return
        if not len(records):
            # Nothing is left: the records at the end were compacted away.
            self._offset = self.end_offset
        self._records = self._replay(bytes(records))
        self._slice()

    def _slice(self) -> None:
        if self._loaded is None:
            return
        clock = self._env.clock
        stop_ms = clock.monotonic_ms() + LOAD_SLICE_MS
        try:
            for count, _ in enumerate(self._records, 1):
                if count % RECORDS_PER_CLOCK_READ == 0 and clock.monotonic_ms() >= stop_ms:
                    self._next = self._env.timers.call_soon(self._slice)
                    return
        except Exception as error:
            # Whatever it is, the partitions behind this one are to be loaded.
            self._fail(f"{type(error).__name__}: {error}")
            return
        self._next = self._env.timers.call_soon(self._read)

    def _replay(self, data: bytes) -> Iterator[None]:
        """Replay what was read; pauses after each record.  ProtocolError where it cannot be read on."""
        view, before = memoryview(data), self._offset
        for position, header in batches(view):
            if header.next_offset > self._offset:
                now_ms = self._env.clock.now_ms()
                for record in decode_records(view[position : position + header.size_bytes]):
                    self._replay_record(header, record, now_ms)
                    yield
                self._offset = header.next_offset
        if data and self._offset == before:
            raise ProtocolError(f"{len(data)} bytes without a batch")

    def _replay_record(self, header: BatchHeader, record: Record, now_ms: int) -> None:
        try:
            if header.is_control:
                kind = control_type(record.key)
                if kind in {ControlRecordType.COMMIT, ControlRecordType.ABORT}:
                    self._state.replay_end_transaction(header.producer_id, kind == ControlRecordType.COMMIT)
                return
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            self._state.replay(record.key or b"", record.value, record.offset, producer_id, now_ms)
        except Exception:
            logger.exception("passed over the record at offset %d of %s", record.offset, self._name)
