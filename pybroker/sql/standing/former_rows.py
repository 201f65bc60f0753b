"""The rows that a topic has of a table's former query: they are deleted before another query writes there.

Owns the keys that are there, and their tombstones.  The former query has ended when this is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pybroker.sql.fetching.record_columns import KEY, VALUE, Position, next_offset, raw_batches
from pybroker.sql.relations.cluster_port import Bounds, Changes, Cluster, Written
from pybroker.sql.sql_errors import Interrupted, SqlError

_FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 100
_RECORDS_AT_ONCE: Final = 10_000
_PATIENCE_S: Final = 60.0


def delete_rows(cluster: Cluster, changes: Changes, topic: str, is_interrupted: Callable[[], bool]) -> int:
    """Write a tombstone for each key that has a row; how many.  All keys are in memory.  Raises ``Interrupted``."""
    keys = _keys(cluster, topic, is_interrupted)
    for first in range(0, len(keys), _RECORDS_AT_ONCE):
        changes.write(topic, [Written(key, None) for key in keys[first : first + _RECORDS_AT_ONCE]])
    return len(keys)


def has_records(cluster: Cluster, topic: str) -> bool:
    """Whether a topic that is there has any."""
    partitions = cluster.partitions(topic)
    return partitions is not None and any(at.end > at.begin for at in cluster.bounds(topic, partitions).values())


def _keys(cluster: Cluster, topic: str, is_interrupted: Callable[[], bool]) -> list[bytes]:
    found: dict[bytes, None] = {}
    for partition, bounds in cluster.bounds(topic, cluster.partitions(topic) or ()).items():
        for key, is_row in _records(cluster, topic, partition, bounds, is_interrupted):
            if is_row:
                found[key] = None
            else:
                found.pop(key, None)
    return list(found)


def _records(
    cluster: Cluster, topic: str, partition: int, bounds: Bounds, is_interrupted: Callable[[], bool]
) -> Iterator[tuple[bytes, bool]]:
    """Each key, and whether its record has a value."""
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
            for batch in raw_batches(each, Position(at, bounds.end), [KEY, VALUE]):
                pairs: Iterable[tuple[bytes | None, bool]] = zip(
                    batch.column(KEY).to_pylist(), batch.column(VALUE).is_valid().to_pylist(), strict=True
                )
                yield from ((key, is_row) for key, is_row in pairs if key is not None)
        at, patience = following[0], time.monotonic() + _PATIENCE_S
