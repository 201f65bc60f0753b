"""One reference to a topic in one query: fetched in a thread, decoded in others, and read by DuckDB as it comes.

Owns the plan (which offsets of which partitions), the threads and how much of a topic is held at a time.  Owns neither
the requests (``cluster_port``) nor what a record says (``record_columns``, ``relation_decoding``).

Invariants: the ends of the partitions are those of the query's start, so that a query over a topic that grows ends.  At
most ``_AHEAD`` batches are held.  What fails in a thread is raised where the batch would have been read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Final

import pyarrow as pa

from pybroker.sql.fetching.record_columns import Position, has_brokers_time, next_offset, raw_batches
from pybroker.sql.fetching.relation_decoding import Decoding, Misfits
from pybroker.sql.parsing.pushdown import Restriction
from pybroker.sql.relations.catalog import Column, Relation
from pybroker.sql.relations.cluster_port import Bounds, Cluster, Connect
from pybroker.sql.sql_errors import Interrupted, SqlError

# The first fetch is small, so that the first row comes soon; each next one is four times as large.
_FETCH_BYTES_MIN: Final = 64 << 10
_FETCH_BYTES_MAX: Final = 8 << 20
_GROWTH: Final = 4
_AHEAD: Final = 4
_DECODERS: Final = 2
_WAIT_MS: Final = 500
# A leader that gives nothing before the end it has told of has lost it, or stands still.
_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What is fetched of a topic: offsets per partition, in order.  ``kept``: what is not pushed down, in words."""

    relation: Relation
    columns: tuple[Column, ...]
    positions: dict[int, Position]
    wanted: Restriction
    kept: tuple[str, ...] = ()


def plan(cluster: Cluster, relation: Relation, columns: Sequence[Column], wanted: Restriction) -> Plan:
    """Which offsets a query needs of a topic as it stands now."""
    partitions = cluster.partitions(relation.topic)
    if partitions is None:
        raise SqlError(f"topic {relation.topic} is gone")
    if wanted.partitions is not None:
        partitions = [each for each in partitions if each in wanted.partitions]
    bounds = cluster.bounds(relation.topic, partitions) if partitions else {}
    kept: list[str] = []
    end_ms = wanted.end_ms
    if end_ms is not None and bounds and not cluster.has_broker_times(relation.topic):
        # Records may lie behind later ones where producers give the timestamps.
        kept.append("the end of the range of _timestamp, because producers give the timestamps")
        end_ms = None
    firsts = _from_time(cluster, relation.topic, bounds, wanted.first_ms)
    ends = _from_time(cluster, relation.topic, bounds, end_ms)
    topic = relation.topic
    unordered = [each for each, end in ends.items() if not _is_in_order(cluster, topic, each, end, bounds[each])]
    if unordered:
        kept.append("the end of the range of _timestamp, because producers gave the timestamps once")
        ends = {each: end for each, end in ends.items() if each not in unordered}
    positions = {}
    for partition, at in sorted(bounds.items()):
        start, end = max(at.begin, firsts.get(partition, at.begin)), min(at.end, ends.get(partition, at.end))
        start = max(start, wanted.first_offset or 0)
        end = end if wanted.end_offset is None else min(end, wanted.end_offset)
        if start < end:
            positions[partition] = Position(start, end)
    return Plan(relation, tuple(columns), positions, wanted, tuple(kept))


def _from_time(cluster: Cluster, topic: str, bounds: dict[int, Bounds], at_ms: int | None) -> dict[int, int]:
    if at_ms is None or not bounds:
        return {}
    found = cluster.offsets_from(topic, sorted(bounds), at_ms)
    return {each: bounds[each].end if offset is None else offset for each, offset in found.items()}


def _is_in_order(cluster: Cluster, topic: str, partition: int, end: int, bounds: Bounds) -> bool:
    """Whether all times behind an offset are later than those before it.

    They are from the first batch on that has the broker's time: a topic may have had producers' times before.
    """
    if end >= bounds.end:
        return True
    return any(has_brokers_time(each, end) for each in cluster.fetch(topic, {partition: end}, 1, _WAIT_MS))


class Scan:
    """The records of a plan as a stream of Arrow's, which can be read once."""

    def __init__(self, connect: Connect, wanted: Plan, misfits: Misfits) -> None:
        self._connect = connect
        self._plan = wanted
        self._decoding = Decoding(wanted.relation, wanted.columns, misfits)
        self._stop = Event()
        self._queue: Queue[Future[pa.RecordBatch] | BaseException | None] = Queue(_AHEAD)
        self._thread: Thread | None = None
        self.fetched_rows = 0
        self.error: BaseException | None = None

    @property
    def offsets(self) -> int:
        """How many offsets the plan has, which is about how many records."""
        return sum(at.end - at.start for at in self._plan.positions.values())

    def stream(self) -> Any:
        """The capsule of a stream of Arrow's; nothing is fetched before its first batch is asked for."""
        reader = pa.RecordBatchReader.from_batches(self._decoding.schema(), self._batches())
        return reader.__arrow_c_stream__()

    def stop(self) -> None:
        """Fetch no more; who waits for a batch hears ``Interrupted``."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and wait for the thread; idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self._thread = Thread(target=self._run, name="sql-fetch", daemon=True)
        self._thread.start()
        try:
            while (found := self._next()) is not None:
                if isinstance(found, BaseException):
                    raise found
                batch = found.result()
                if batch.num_rows:
                    yield batch
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.error = error
            raise
        finally:
            self._stop.set()

    def _next(self) -> Future[pa.RecordBatch] | BaseException | None:
        while True:
            try:
                return self._queue.get(timeout=_LOOK_S)
            except Empty:
                if self._stop.is_set():
                    raise Interrupted from None

    def _run(self) -> None:
        """The thread: fetch, and hand the records to those who decode."""
        end: BaseException | None = None
        with ThreadPoolExecutor(_DECODERS, "sql-decode") as decoders:
            try:
                with self._connect() as cluster:
                    for partition, position in self._plan.positions.items():
                        for raw in self._fetch(cluster, partition, position):
                            self._put(decoders.submit(self._decoding.decoded, raw, partition))
            except Interrupted:
                return
            except BaseException as error:
                end = error
            try:
                self._put(end)
            except Interrupted:
                return

    def _put(self, item: Future[pa.RecordBatch] | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_S)
                return
            except Full:
                continue
        raise Interrupted

    def _fetch(self, cluster: Cluster, partition: int, wanted: Position) -> Iterator[pa.RecordBatch]:
        topic, at = self._plan.relation.topic, wanted.start
        size, patience = _FETCH_BYTES_MIN, time.monotonic() + _PATIENCE_S
        while at < wanted.end:
            if self._stop.is_set():
                raise Interrupted
            before = at
            for fetched in cluster.fetch(topic, {partition: at}, size, _WAIT_MS):
                for raw in raw_batches(fetched, Position(at, wanted.end), self._decoding.fields):
                    self.fetched_rows += raw.num_rows
                    yield raw
                at = next_offset(fetched) or at
            size = min(size * _GROWTH, _FETCH_BYTES_MAX)
            if at > before:
                patience = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                told = f"nothing came from offset {at} on in {_PATIENCE_S:.0f} s"
                raise SqlError(f"{topic} partition {partition}: {told}")
