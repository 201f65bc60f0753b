"""A consumer's records up to the end of its topics, for examples whose consumer ends when nothing has come for a while.

Imported by the interactive Python that an example is pasted into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_POLL_MS = 2_000  # joining a group takes a while, which a shorter poll gives up


def until_the_end(consumer: Any) -> Iterator[Any]:
    """What a ``KafkaConsumer`` reads until it stands at the end of all partitions that it is assigned."""
    while not _has_read_all(consumer):
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            yield from records


def _has_read_all(consumer: Any) -> bool:
    ends = consumer.end_offsets(consumer.assignment()) if consumer.assignment() else {}
    return bool(ends) and all(consumer.position(partition) >= end for partition, end in ends.items())
