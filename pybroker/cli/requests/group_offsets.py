"""The committed offsets of a group: what they are, and the requests that move or delete them.

Owns: the plan of a reset and its commit.  ``offset_reset`` has the rules, ``groups`` the commands.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import group_requests, log_requests, topic_requests
from pybroker.cli.requests.offset_reset import PartitionOffsets, Target, new_offset
from pybroker.cli.requests.offsets import parse_timestamp_ms
from pybroker.cli.requests.partition_leaders import (
    NO_LEADER,
    Partition,
    asked_of_leaders,
    find_leaders,
    named_partitions,
)
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused
from pybroker_protocol.errors import ErrorCode


def committed_offsets(client: AdminClient, group: str) -> dict[Partition, int]:
    """What the group has committed, by partition."""
    found = retried(lambda: group_requests.committed(client, [group]))[group]
    if isinstance(found, int):
        raise refused(f"group {group}", found)
    return found


def existing_partitions(client: AdminClient, topics: Iterable[str]) -> dict[str, list[int]]:
    """The partition numbers of each of ``topics`` that exists."""
    names = sorted(set(topics))
    if not names:
        return {}
    return {
        topic["name"]: sorted(partition["partition_index"] for partition in topic["partitions"])
        for topic in retried(lambda: topic_requests.described(client, names))
        if not topic["error_code"]
    }


def end_offsets(client: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The log end of each partition that still exists: offsets may outlive a topic."""
    partitions = set(partitions)
    leaders = retried(lambda: find_leaders(client, {each.topic for each in partitions}))
    led = [each for each, leader in leaders.items() if each in partitions and leader != NO_LEADER]
    return offsets_at(client, led, log_requests.LATEST)


def offsets_at(client: AdminClient, partitions: Iterable[Partition], timestamp: int) -> dict[Partition, int]:
    """The offset of a moment in each partition, -1 where there is none; ``CommandFailed`` for one that is refused."""
    found = asked_of_leaders(client, partitions, lambda leaders: log_requests.offsets_at(client, leaders, timestamp))
    for partition, (code, _) in sorted(found.items()):
        if code:
            raise refused(partition, code)
    return {partition: offset for partition, (_, offset) in found.items()}


def chosen_partitions(client: AdminClient, group: str, topics: list[str], all_topics: bool) -> list[Partition]:
    """The partitions that ``--topic`` and ``--all-topics`` name; raises ``CommandFailed`` for one that is missing."""
    if all_topics:
        return sorted(committed_offsets(client, group))
    wanted = named_partitions(client, topics)
    existing = existing_partitions(client, (topic for topic, _ in wanted))
    chosen: set[Partition] = set()
    for topic, numbers in wanted:
        if missing := sorted(set(numbers or [0]) - set(existing.get(topic, []))):
            raise refused(f"{topic}-{missing[0]}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        chosen |= {Partition(topic, number) for number in (existing[topic] if numbers is None else numbers)}
    return sorted(chosen)


def choose_target(options: dict[Target, Any]) -> tuple[Target, int]:
    """The one target that was given, and its value; anything but one is a usage error."""
    given = [(target, value) for target, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{target.value}" for target in options)
        raise misused(f"give exactly one of {names}")
    target, value = given[0]
    if target is Target.DATETIME:
        try:
            return target, parse_timestamp_ms(value, now_ms=int(time.time() * 1000))
        except ValueError as error:
            raise typer.BadParameter(f"--{target.value}: {error}") from error
    return target, 0 if value is True else value


def plan_reset(
    client: AdminClient, group: str, partitions: list[Partition], target: Target, value: int
) -> list[dict[str, Any]]:
    """Old and new offset of each partition; commits nothing."""
    committed = committed_offsets(client, group)
    earliest, latest = (offsets_at(client, partitions, at) for at in (log_requests.EARLIEST, log_requests.LATEST))
    timed = offsets_at(client, partitions, value) if target is Target.DATETIME else {}
    plan = []
    for partition in partitions:
        known = PartitionOffsets(
            earliest=earliest[partition],
            latest=latest[partition],
            committed=committed.get(partition),
            at_timestamp=timed[partition] if timed.get(partition, -1) >= 0 else None,
        )
        try:
            offset = new_offset(target, value, known)
        except ValueError as error:
            raise CommandFailed(f"{partition}: {error}") from error
        plan.append(
            {
                "topic": partition.topic,
                "partition": partition.number,
                "current_offset": known.committed,
                "new_offset": offset,
            }
        )
    return plan


def commit_plan(client: AdminClient, group: str, plan: list[dict[str, Any]]) -> None:
    """Commit the new offsets; raises ``CommandFailed`` when a partition was refused."""
    offsets = {Partition(entry["topic"], entry["partition"]): entry["new_offset"] for entry in plan}
    raise_refused(retried(lambda: group_requests.commit(client, group, offsets)))


def raise_refused(answer: Mapping[Partition, int]) -> None:
    """Raise ``CommandFailed`` naming the first partition that the coordinator refused."""
    for partition, code in sorted(answer.items()):
        if code:
            raise refused(partition, code)
