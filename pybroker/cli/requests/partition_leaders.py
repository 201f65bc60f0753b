"""Partitions by name, and their leaders.

Owns: how partitions are named on the command line (``TOPIC``, ``TOPIC:N,M``, and ``TOPIC-N`` as they are printed). Also
owns the look at the metadata that tells their leaders, at each attempt to ask them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import is_passing_with_brokers, retried
from pybroker.cli.requests import topic_requests
from pybroker.cli.requests.offset_reset import parse_topic_partitions
from pybroker.cli.terminal.error_names import refused
from pybroker_protocol.errors import ErrorCode

T = TypeVar("T")

NO_LEADER: Final = -1
_PRINTED: Final = re.compile(r"(.+)-([0-9]{1,9})")


class Partition(NamedTuple):
    """A partition by name, in the order of tables."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


def find_leaders(client: AdminClient, topics: Iterable[str] | None) -> dict[Partition, int]:
    """The leader of every partition of the topics that exist (``None``: of all), or ``NO_LEADER``."""
    names = None if topics is None else sorted(set(topics))
    return {
        Partition(topic["name"], partition["partition_index"]): partition["leader_id"]
        for topic in (topic_requests.described(client, names) if names is None or names else [])
        if not topic["error_code"]
        for partition in topic["partitions"]
    }


def asked_of_leaders(
    client: AdminClient, partitions: Iterable[Partition] | None, ask: Callable[[dict[Partition, int]], T]
) -> T:
    """``ask`` of these partitions (None: all) with their leaders, which each attempt finds anew: they move, and die.

    Of a partition that does not exist the leader is ``NO_LEADER``.
    """
    wanted = None if partitions is None else set(partitions)

    def attempt() -> T:
        if wanted is None:
            return ask(find_leaders(client, None))
        found = find_leaders(client, {each.topic for each in wanted})
        return ask({each: found.get(each, NO_LEADER) for each in wanted})

    return retried(attempt, passes=is_passing_with_brokers)


def named_partitions(client: AdminClient, texts: Iterable[str]) -> list[tuple[str, list[int] | None]]:
    """Topics, and which of their partitions (None: all), that texts name; a usage error for a text that names none.

    ``orders-0``, as partitions are printed, is one of ``orders`` where that has it and no topic has the whole name.
    """
    try:
        wanted = [parse_topic_partitions(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    printed = {topic: match for topic, numbers in wanted if numbers is None and (match := _PRINTED.fullmatch(topic))}
    if not printed:
        return wanted
    asked = {*printed, *(match[1] for match in printed.values())}
    existing = retried(lambda: find_leaders(client, asked))
    topics = {each.topic for each in existing}
    found: list[tuple[str, list[int] | None]] = []
    for topic, numbers in wanted:
        match = printed.get(topic)
        if match is not None and topic not in topics and Partition(match[1], int(match[2])) in existing:
            found.append((match[1], [int(match[2])]))
        else:
            found.append((topic, numbers))
    return found


def choose_partitions(client: AdminClient, texts: Sequence[str]) -> list[Partition]:
    """The partitions that texts name, in their order; raises ``CommandFailed`` for one that does not exist."""
    wanted = named_partitions(client, texts)
    leaders = retried(lambda: find_leaders(client, [topic for topic, _ in wanted]))
    chosen: dict[Partition, None] = {}
    for topic, indexes in wanted:
        existing = [partition for partition in leaders if partition.topic == topic]
        named = existing or [Partition(topic, 0)] if indexes is None else [Partition(topic, index) for index in indexes]
        for partition in named:
            if partition not in leaders:
                raise refused(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            chosen[partition] = None
    return list(chosen)
