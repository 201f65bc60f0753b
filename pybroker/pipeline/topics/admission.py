"""How much of what is there a micro-batch takes.

Owns the arithmetic of ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger`` (Spark's KafkaMicroBatchStream); the clock
is the caller's.
"""

import math

from pybroker.pipeline.topics.topic_partitions import Offsets, TopicPartition


def limited(starts: Offsets, ends: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Where to end so that about ``offsets_max`` are read: each partition by its share, none left out.

    A partition without a start is taken whole, for `directory.Directory` gives every known one a start.
    """
    sizes = {at: end - starts.get(at, end) for at, end in ends.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= offsets_max:
        return dict(ends)
    return {
        at: _end(starts[at], end, offsets_max * sizes[at] / total) if sizes[at] > 0 else end for at, end in ends.items()
    }


def _end(start: int, end: int, share: float) -> int:
    return min(end, start + (math.ceil(share) if share < 1 else math.floor(share)))


def available(starts: Offsets, ends: Offsets) -> int:
    """How many offsets there are to be read."""
    return sum(end - starts.get(at, 0) for at, end in ends.items())
