"""What a topic has told of each key, in order, and whether one changelog may stand for another.

Kafka Streams without caches tells each change.  A job of ours tells what has come of a micro-batch's changes: the last
of them, and nothing where they have come to nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

# A value, or None for a tombstone.
Told: TypeAlias = str | None
Changelog: TypeAlias = Mapping[str, Sequence[Told]]


def told(bootstrap: str, topic: str) -> dict[str, list[Told]]:
    """All that the topic's only partition has, for a reader of what is committed."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[str, list[Told]] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        found.setdefault(key.decode(), []).append(None if value is None else value.decode())
    consumer.close()
    end = None if message is None else message.error()
    assert end is not None
    assert end.code() == KafkaError._PARTITION_EOF
    return found


def differences(ours: Changelog, theirs: Changelog) -> list[str]:
    """A line for each key of which ours does not stand for theirs."""
    found = ((key, difference(ours.get(key, ()), theirs.get(key, ()))) for key in sorted({*ours, *theirs}))
    return [f"{key} {reason}: {ours.get(key)}, not {theirs.get(key)}" for key, reason in found if reason is not None]


def difference(ours: Sequence[Told], theirs: Sequence[Told]) -> str | None:
    """Why ours does not stand for theirs; None where it does.  Of a key that theirs ends without, ours may be empty."""
    left = iter(theirs)
    if not all(value in left for value in ours):
        return "has what was not told, or not in this order"
    if (ours or [None])[-1] != (theirs or [None])[-1]:
        return "ends with another value"
    if _repeated(ours) - _repeated(theirs):
        return "has a value twice in a row"
    return None


def _repeated(values: Iterable[Told]) -> set[Told]:
    return {value for value, after in pairwise(values) if value == after}
