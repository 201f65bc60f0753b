"""Divides what is to be read among tasks.

Owns the arithmetic alone.  A partition is one task unless more are asked for (Spark's KafkaOffsetRangeCalculator, whose
rule for ``minPartitions`` is met: about so many tasks, the larger ranges in more pieces).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pybroker.pipeline.topics.topic_partitions import TopicPartition


class OffsetRange(NamedTuple):
    """Offsets ``start`` to before ``end`` of a partition; there may be fewer records.

    ``topic_id`` tells its topic from others of that name; empty where the cluster gives topics none.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start


def divide(
    ranges: Iterable[OffsetRange], min_partitions: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    """The ranges that are not empty, in pieces: at most so long, and about ``min_partitions`` of them where fewer."""
    pieces = [found for found in ranges if found.size > 0]
    if records_per_partition_max is not None:
        pieces = [part for found in pieces for part in _in_parts(found, -(-found.size // records_per_partition_max))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    # What stays whole takes no share of the tasks that the rest is divided among.
    whole = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    total -= sum(piece.size for piece in whole)
    tasks = max(min_partitions - len(whole), 1)
    return [
        part for piece in pieces for part in _in_parts(piece, 1 if piece in whole else _share(piece.size, total, tasks))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    return max(round(size / total * tasks), 1)


def _in_parts(found: OffsetRange, count: int) -> Iterator[OffsetRange]:
    for i in range(count):
        start, end = found.start + found.size * i // count, found.start + found.size * (i + 1) // count
        if end > start:
            yield found._replace(start=start, end=end)
