"""The committed offsets of a group: what they are, and the requests that move or delete them.

Owns: the plan of a reset and its commit.  ``offset_reset`` has the rules, ``groups`` the commands.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import typer

from pybroker.cli.connection import retried
from pybroker.cli.error_names import refused
from pybroker.cli.failure import CommandFailed
from pybroker.cli.offset_reset import PartitionOffsets, Target, new_offset, parse_topic_partitions
from pybroker.cli.offsets import parse_timestamp_ms
from pybroker_protocol.errors import ErrorCode


def committed_offsets(client: Any, group: str) -> dict[Any, int]:
    """What the group has committed, by partition."""
    answer = retried(lambda: client.list_group_offsets({group: None}))
    return {partition: entry.offset for partition, entry in answer[group].items() if entry.offset >= 0}


def existing_partitions(client: Any, topics: Iterable[str]) -> dict[str, list[int]]:
    """The partition numbers of each of ``topics`` that exists."""
    names = sorted(set(topics))
    if not names:
        return {}
    return {
        topic["name"]: sorted(partition["partition_index"] for partition in topic["partitions"])
        for topic in retried(lambda: client.describe_topics(names))
        if not topic["error_code"]
    }


def end_offsets(client: Any, partitions: Iterable[Any]) -> dict[Any, int]:
    """The log end of each partition that still exists: offsets may outlive a topic."""
    from kafka import OffsetSpec

    partitions = list(partitions)
    existing = existing_partitions(client, (partition.topic for partition in partitions))
    asked = {p: OffsetSpec.LATEST for p in partitions if p.partition in existing.get(p.topic, [])}
    if not asked:
        return {}
    answer = retried(lambda: client.list_partition_offsets(asked))
    return {partition: entry.offset for partition, entry in answer.items()}


def chosen_partitions(client: Any, group: str, topics: list[str], all_topics: bool) -> list[Any]:
    """The partitions that ``--topic`` and ``--all-topics`` name; raises ``CommandFailed`` for one that is missing."""
    from kafka import TopicPartition

    if all_topics:
        return sorted(committed_offsets(client, group))
    try:
        wanted = [parse_topic_partitions(text) for text in topics]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    existing = existing_partitions(client, (topic for topic, _ in wanted))
    chosen: set[Any] = set()
    for topic, numbers in wanted:
        if missing := sorted(set(numbers or [0]) - set(existing.get(topic, []))):
            raise refused(f"{topic}-{missing[0]}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        chosen |= {TopicPartition(topic, number) for number in (existing[topic] if numbers is None else numbers)}
    return sorted(chosen)


def choose_target(options: dict[Target, Any]) -> tuple[Target, int]:
    """The one target that was given, and its value; anything but one is a usage error."""
    given = [(target, value) for target, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{target.value}" for target in options)
        raise typer.BadParameter(f"give exactly one of {names}")
    target, value = given[0]
    if target is Target.DATETIME:
        try:
            return target, parse_timestamp_ms(value, now_ms=int(time.time() * 1000))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return target, 0 if value is True else value


def plan_reset(client: Any, group: str, partitions: list[Any], target: Target, value: int) -> list[dict[str, Any]]:
    """Old and new offset of each partition; commits nothing."""
    from kafka import OffsetSpec

    committed = committed_offsets(client, group)
    earliest = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))
    latest = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))
    timed: dict[Any, Any] = {}
    if target is Target.DATETIME:
        timed = retried(lambda: client.list_partition_offsets(dict.fromkeys(partitions, value)))
    plan = []
    for partition in partitions:
        known = PartitionOffsets(
            earliest=earliest[partition].offset,
            latest=latest[partition].offset,
            committed=committed.get(partition),
            at_timestamp=timed[partition].offset if partition in timed and timed[partition].offset >= 0 else None,
        )
        try:
            offset = new_offset(target, value, known)
        except ValueError as error:
            raise CommandFailed(f"{partition.topic}-{partition.partition}: {error}") from error
        plan.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": known.committed,
                "new_offset": offset,
            }
        )
    return plan


def commit_plan(client: Any, group: str, plan: list[dict[str, Any]]) -> None:
    """Commit the new offsets; raises ``CommandFailed`` when a partition was refused."""
    from kafka import OffsetAndMetadata, TopicPartition

    offsets = {
        TopicPartition(entry["topic"], entry["partition"]): OffsetAndMetadata(entry["new_offset"], "", -1)
        for entry in plan
    }
    answer = retried(lambda: client.alter_group_offsets(group, offsets))
    raise_refused(answer)


def raise_refused(answer: dict[Any, Any]) -> None:
    """Raise ``CommandFailed`` naming the first partition that the coordinator refused."""
    for partition, error in sorted(answer.items()):
        if error.errno:
            raise refused(f"{partition.topic}-{partition.partition}", error.errno)
