"""Partitions by name, and who leads them.

Owns: how partitions are named on the command line (``TOPIC``, ``TOPIC:N,M``), and the look at the metadata that tells
their leaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import typer

from pybroker.cli import topic_requests
from pybroker.cli.connection import retried
from pybroker.cli.error_names import refused
from pybroker.cli.offset_reset import parse_topic_partitions
from pybroker_protocol.errors import ErrorCode

NO_LEADER: Final = -1


class Partition(NamedTuple):
    """A partition by name, in the order of tables."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


def find_leaders(client: Any, topics: Iterable[str] | None) -> dict[Partition, int]:
    """The leader of every partition of the topics that exist (``None``: of all), or ``NO_LEADER``."""
    names = None if topics is None else sorted(set(topics))
    return {
        Partition(topic["name"], partition["partition_index"]): partition["leader_id"]
        for topic in (topic_requests.described(client, names) if names is None or names else [])
        if not topic["error_code"]
        for partition in topic["partitions"]
    }


def choose_partitions(client: Any, texts: Sequence[str]) -> dict[Partition, int]:
    """The leaders of the partitions that texts name; raises ``CommandFailed`` for one that does not exist."""
    try:
        wanted = [parse_topic_partitions(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    leaders = retried(lambda: find_leaders(client, [topic for topic, _ in wanted]))
    chosen: dict[Partition, int] = {}
    for topic, indexes in wanted:
        existing = [partition for partition in leaders if partition.topic == topic]
        named = existing or [Partition(topic, 0)] if indexes is None else [Partition(topic, index) for index in indexes]
        for partition in named:
            if partition not in leaders:
                raise refused(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            chosen[partition] = leaders[partition]
    return chosen
