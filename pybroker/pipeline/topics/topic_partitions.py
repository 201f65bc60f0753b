"""Partitions and their offsets, and the JSON in which options and checkpoints name them.

Owns the forms ``{"topic": [0, 1]}`` and ``{"topic": {"0": 23}}``, which are those of Spark's Kafka connector (its class
JsonUtils). So options and checkpoints can be taken over as they are, by either from the other. In a checkpoint of an
earlier version a topic has its id (KIP-516) beside its partitions: ``{"topic": {"0": 23, "id": "Zm9v…"}}``.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]
OffsetTree: TypeAlias = dict[str, dict[str, int]]

_ID = "id"


def partitions_of_json(text: str) -> frozenset[TopicPartition]:
    """The partitions that ``{"topic": [0, 1]}`` names; raises ValueError where it is of another form."""
    try:
        named = json.loads(text)
        return frozenset(TopicPartition(topic, int(p)) for topic, partitions in named.items() for p in partitions)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f'expected {{"topic": [0, 1]}}, got {text}') from error


def offsets_of_json(text: str) -> dict[TopicPartition, int]:
    """The numbers that ``{"topic": {"0": 23}}`` gives to partitions; raises ValueError where it is of another form."""
    try:
        return offsets_of_tree(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f'expected {{"topic": {{"0": 23}}}}, got {text}') from error


def offsets_of_tree(tree: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The same of what was JSON: the form in which Spark keeps a source's offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(p)): int(at)
        for topic, partitions in tree.items()
        for p, at in partitions.items()
        if p != _ID
    }


def ids_of_tree(tree: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The ids that topics have in a checkpoint of an earlier version; in any other they have none."""
    return {topic: str(partitions[_ID]) for topic, partitions in tree.items() if _ID in partitions}


def tree_of_offsets(offsets: Offsets) -> OffsetTree:
    """What `offsets_of_tree` reads, in the order of topics and partitions."""
    tree: OffsetTree = {}
    for topic_partition in sorted(offsets):
        tree.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return tree


def listed(topic_partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a message: ``t-0, t-1``."""
    return ", ".join(map(str, sorted(topic_partitions)))
