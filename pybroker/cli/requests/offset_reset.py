"""Which offset a reset gives each partition: the rules of kafka-consumer-groups.sh --reset-offsets.  Pure.

Owns: the choice of target and its clamping to what the log has.  Owns no request: the caller hands in what the
brokers said of each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Target(Enum):
    """What ``groups reset-offsets`` may reset to."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    OFFSET = "to-offset"
    SHIFT = "shift-by"
    DATETIME = "to-datetime"


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What is known of a partition; ``None``: nothing committed, or no record at or after the asked time."""

    earliest: int
    latest: int
    committed: int | None = None
    at_timestamp: int | None = None


def new_offset(target: Target, value: int, known: PartitionOffsets) -> int:
    """The offset to commit, always between ``earliest`` and ``latest``.

    ``value`` is the offset of ``OFFSET`` and the signed distance of ``SHIFT``.  Raises ``ValueError`` when the
    target builds on a committed offset and there is none.
    """
    if target is Target.EARLIEST:
        return known.earliest
    if target is Target.LATEST:
        return known.latest
    if target is Target.DATETIME:
        return known.latest if known.at_timestamp is None else known.at_timestamp
    if target is Target.OFFSET:
        return clamp(value, known)
    if known.committed is None:
        if target is Target.SHIFT:
            raise ValueError("nothing is committed to shift from")
        # Kafka's tool resets to the latest offset what was never committed.
        return known.latest
    return clamp(known.committed + (value if target is Target.SHIFT else 0), known)


def clamp(offset: int, known: PartitionOffsets) -> int:
    """``offset``, or the end of the log that it lies beyond."""
    return max(known.earliest, min(offset, known.latest))


def parse_topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """``topic`` or ``topic:0,2`` as Kafka's tool spells them; ``None`` means all partitions.  Raises ``ValueError``."""
    topic, colon, numbers = text.partition(":")
    if not topic:
        raise ValueError(f"{text!r} names no topic")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not all(part.isdigit() for part in parts):
        raise ValueError(f"{text!r}: partitions must be numbers, as in topic:0,2")
    return topic, [int(part) for part in parts]
