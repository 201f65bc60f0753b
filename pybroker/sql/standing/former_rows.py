"""The rows that a topic has of a table's former query: they are deleted when another query writes there.

Owns the keys that are there, and their tombstones.  The former query has ended, and the new one is at rest: of a key
that it has told already, a tombstone would delete the new row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pybroker.sql.fetching.record_columns import KEY, OFFSET, VALUE, Position, next_offset, raw_batches
from pybroker.sql.relations.cluster_port import Bounds, Changes, Cluster, Written
from pybroker.sql.sql_errors import Interrupted, SqlError

_FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 100
_RECORDS_AT_ONCE: Final = 10_000
_PATIENCE_S: Final = 60.0


def ends_of(cluster: Cluster, topic: str) -> dict[int, int]:
    """Where the former query's rows end while it is at rest, by partition, of those that have any."""
    bounds = cluster.bounds(topic, cluster.partitions(topic) or ())
    return {partition: at.end for partition, at in bounds.items() if at.end > at.begin}


def delete_rows(
    cluster: Cluster, changes: Changes, topic: str, ends: Mapping[int, int], is_interrupted: Callable[[], bool]
) -> int:
    """Write a tombstone for each key that has a row before ``ends`` and nothing behind them; how many.

    All keys are in memory.  Raises ``Interrupted``.
    """
    keys = _keys(cluster, topic, ends, is_interrupted)
    for first in range(0, len(keys), _RECORDS_AT_ONCE):
        changes.write(topic, [Written(key, None) for key in keys[first : first + _RECORDS_AT_ONCE]])
    return len(keys)


def has_records(cluster: Cluster, topic: str) -> bool:
    """Whether a topic that is there has any."""
    partitions = cluster.partitions(topic)
    return partitions is not None and any(at.end > at.begin for at in cluster.bounds(topic, partitions).values())


def _keys(cluster: Cluster, topic: str, ends: Mapping[int, int], is_interrupted: Callable[[], bool]) -> list[bytes]:
    found: dict[bytes, None] = {}
    newer: set[bytes] = set()
    for partition, bounds in cluster.bounds(topic, cluster.partitions(topic) or ()).items():
        end = ends.get(partition, 0)
        for offset, key, is_row in _records(cluster, topic, partition, bounds, is_interrupted):
            if offset >= end:
                newer.add(key)
            elif is_row:
                found[key] = None
            else:
                found.pop(key, None)
    return [key for key in found if key not in newer]


def _records(
    cluster: Cluster, topic: str, partition: int, bounds: Bounds, is_interrupted: Callable[[], bool]
) -> Iterator[tuple[int, bytes, bool]]:
    """The offset and the key of each record that has one, and whether it has a value."""
    at, patience = bounds.begin, time.monotonic() + _PATIENCE_S
    while at < bounds.end:
        if is_interrupted():
            raise Interrupted
        fetched = cluster.fetch(topic, {partition: at}, _FETCH_BYTES, _WAIT_MS)
        following = [offset for each in fetched if (offset := next_offset(each)) is not None]
        if not following:
            if time.monotonic() > patience:
                raise SqlError(f"{topic} partition {partition}: nothing came from offset {at} on")
            continue
        for each in fetched:
            for batch in raw_batches(each, Position(at, bounds.end), [KEY, OFFSET, VALUE]):
                columns = (batch.column(OFFSET), batch.column(KEY), batch.column(VALUE).is_valid())
                rows = zip(*(each.to_pylist() for each in columns), strict=True)
                yield from ((offset, key, is_row) for offset, key, is_row in rows if key is not None)
        at, patience = following[0], time.monotonic() + _PATIENCE_S
