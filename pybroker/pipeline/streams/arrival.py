"""The order in which the rows of one key in one micro-batch count; pure.

Spark gives a key's rows in any order. Here they come as a task of Kafka Streams takes them (its class PartitionGroup):
each partition in the order of its offsets. Of several the one whose next record is older comes first, and a table's
where both are as old. Offsets of two partitions are never compared. Rows without offsets go by their times.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Protocol, TypeVar


class Arrived(Protocol):
    """What a row tells of its place.

    ``offset`` is ``None`` where times tell the order, ``partition`` where a key is in one alone.
    """

    @property
    def at(self) -> int: ...

    @property
    def partition(self) -> int | None: ...

    @property
    def offset(self) -> int | None: ...


A = TypeVar("A", bound=Arrived)


def in_order(rows: Iterable[A]) -> list[A]:
    """Rows of one topic."""
    return list(merged(rows, ()))


def merged(table: Iterable[A], stream: Iterable[A]) -> Iterator[A]:
    """Rows of a table's topic and of a stream's."""
    partitions: dict[tuple[int, int], list[A]] = {}
    for side, rows in enumerate((table, stream)):
        for row in rows:
            partitions.setdefault((side, -1 if row.partition is None else row.partition), []).append(row)
    # The last is the next: a list gives that away cheaply.
    queues = {which: sorted(rows, key=_place)[::-1] for which, rows in partitions.items()}
    heads = [(queue[-1].at, which) for which, queue in queues.items()]
    heapify(heads)
    while heads:
        _, which = heads[0]
        queue = queues[which]
        yield queue.pop()
        if queue:
            heapreplace(heads, (queue[-1].at, which))
        else:
            heappop(heads)


def _place(row: Arrived) -> tuple[int, int]:
    return -1 if row.offset is None else row.offset, row.at
