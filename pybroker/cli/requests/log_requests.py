"""Requests about the logs of partitions: offsets by time, the end of old records, and how much lies in which log dir.

Owns: the requests, and which broker is asked: a partition's leader of its log, each broker of its own log dirs.
Counterparts: kafka-get-offsets.sh, kafka-delete-records.sh, kafka-log-dirs.sh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.requests.partition_leaders import NO_LEADER, Partition
from pybroker.cli.requests.wire_requests import raise_passing
from pybroker_protocol.errors import ErrorCode

EARLIEST, LATEST = -2, -1  # in place of a timestamp
_CLIENT: Final = -1  # in place of a replica's id


class Replica(NamedTuple):
    """What a log dir has of a partition; ``is_future`` while it is on its way there from another dir."""

    topic: str
    partition: int
    size: int
    lag: int
    is_future: bool


class LogDirectory(NamedTuple):
    """One log dir of a broker; what the broker does not tell is ``None``."""

    broker: int
    path: str
    error_code: int
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    replicas: list[Replica]


def offsets_at(
    client: AdminClient, leaders: Mapping[Partition, int], timestamp: int, *, committed: bool = False
) -> dict[Partition, tuple[int, int]]:
    """Each partition's error code, and the offset of the first record from a time on, or of a special time; -1 where
    there is no such record.  ``committed``: the end is before the first open transaction.
    """
    from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    found = _without_leader(leaders, leaders)
    for leader, by_topic in _by_leader(leaders).items():
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in numbers],
            )
            for topic, numbers in by_topic.items()
        ]
        request = ListOffsetsRequest(replica_id=_CLIENT, isolation_level=int(committed), topics=topics)
        found |= {
            Partition(topic.name, answer.partition_index): (int(answer.error_code), int(answer.offset))
            for topic in client.ask(request, leader).topics
            for answer in topic.partitions
        }
    raise_passing(code for code, _ in found.values())
    return found


def delete_records(
    client: AdminClient, leaders: Mapping[Partition, int], offsets: Mapping[Partition, int], timeout_ms: int
) -> dict[Partition, tuple[int, int]]:
    """DeleteRecords before these offsets: each partition's error code and where its log begins now."""
    from pybroker_protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    found = _without_leader(offsets, leaders)
    for leader, by_topic in _by_leader({partition: leaders[partition] for partition in offsets}).items():
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=offsets[Partition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic.items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        answers = client.ask(request, leader, takes_ms=timeout_ms).topics
        found |= {
            Partition(topic.name, answer.partition_index): (int(answer.error_code), int(answer.low_watermark))
            for topic in answers
            for answer in topic.partitions
        }
    raise_passing(code for code, _ in found.values())
    return found


def log_directories(client: AdminClient, broker_ids: Iterable[int]) -> tuple[list[LogDirectory], dict[int, int]]:
    """The log dirs of brokers with all replicas in them, and the error codes of brokers that did not tell."""
    from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    found: list[LogDirectory] = []
    refused: dict[int, int] = {}
    for broker_id in broker_ids:
        response = client.ask(DescribeLogDirsRequest(topics=None), broker_id)
        if response.error_code:
            refused[broker_id] = int(response.error_code)
        found += [_log_directory(broker_id, result) for result in response.results]
    return sorted(found), refused


def _log_directory(broker_id: int, result: Any) -> LogDirectory:
    replicas = [
        Replica(topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in result.topics
        for each in topic.partitions
    ]
    total, usable = (None if each < 0 else int(each) for each in (result.total_bytes, result.usable_bytes))
    return LogDirectory(
        broker_id, result.log_dir, int(result.error_code), total, usable, result.is_cordoned, sorted(replicas)
    )


def _without_leader(
    partitions: Iterable[Partition], leaders: Mapping[Partition, int]
) -> dict[Partition, tuple[int, int]]:
    return {each: (int(ErrorCode.LEADER_NOT_AVAILABLE), -1) for each in partitions if leaders[each] == NO_LEADER}


def _by_leader(leaders: Mapping[Partition, int]) -> dict[int, dict[str, list[int]]]:
    """The partitions of each leader, by topic; not those without one."""
    grouped: dict[int, dict[str, list[int]]] = {}
    for partition, leader in sorted(leaders.items()):
        if leader != NO_LEADER:
            grouped.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.number)
    return grouped
