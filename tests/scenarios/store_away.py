"""A metadata store that is away for a minute, whichever it is: what is asked of three brokers meanwhile, and after.

Records go on; a change of the metadata waits, as long as who asks for it has patience, and is then done wholly or not
at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from harness.waiting import wait_until

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.record_codec import decode_records

from .running_cluster import IDS, TOPIC, Partition

AWAY_S = 60.0
PAUSE_S = 0.1  # between two records, while the other processor runs tests, too


def new_topic(name: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    """Two partitions, with a replica on each broker."""
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


def create(partition: Partition, broker_id: int, name: str) -> int:
    """Ask a broker for the topic; the error code."""
    with partition.at(broker_id) as client:
        return int(client.ask(new_topic(name), 5).topics[0].error_code)


def told(partition: Partition, name: str) -> set[tuple[int, ...] | None]:
    """How many replicas in sync each partition has, as each broker tells; None where it knows no such topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    found = set()
    for broker_id in IDS:
        with partition.at(broker_id) as client:
            (topic,) = client.ask(request, 9).topics
        in_sync = tuple(len(each.isr_nodes) for each in topic.partitions)
        found.add(None if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else in_sync)
    return found


def has_all_replicas(partition: Partition, name: str) -> bool:
    """Whether all brokers know the topic, with all replicas in sync."""
    return told(partition, name) == {(3, 3)}


def directories(folder: Path, name: str) -> set[str]:
    """Of a topic, at all brokers."""
    return {path.name for path in folder.glob(f"broker-*/data/{name}-*")}


def fetched(partition: Partition, leader: int, offset: int) -> bytes:
    """The record at an offset, as the leader gives it once the followers have it."""
    with partition.at(leader) as client:
        row = client.fetch(TOPIC, offset, replica_id=-1, max_wait_ms=10_000).responses[0].partitions[0]
    assert row.error_code == 0, row
    (record,) = decode_records(bytes(row.records or b""))
    return bytes(record.value or b"")


def serve_while_the_store_is_away(
    partition: Partition, folder: Path, leave: Callable[[], object], come_back: Callable[[], object]
) -> None:
    """The whole of it; ``folder`` has the brokers' directories."""
    leader = partition.leader
    written = partition.write_each_way("before")
    leave()
    ends = time.monotonic() + AWAY_S
    patience_ms = {1: 1_000, 2: 10_000, 3: 120_000}  # the last one's is over when the store is back
    with ExitStack() as connections:
        askers = {broker_id: connections.enter_context(partition.at(broker_id)) for broker_id in IDS}
        for broker_id, asker in askers.items():
            asker.send(new_topic(f"asked-{broker_id}", patience_ms[broker_id]), 5)
        while time.monotonic() < ends:
            for acks in (1, -1):
                written.append(b"%d with acks %d" % (len(written), acks))
                assert partition.write(written[-1], acks, at=leader) == 0
            assert fetched(partition, leader, len(written) - 1) == written[-1]
            time.sleep(PAUSE_S)
        come_back()
        answers = {broker_id: asker.receive().topics[0].error_code for broker_id, asker in askers.items()}
    partition.wait_for(isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)
    # Whose time was over while the store was away may be done all the same, as in Kafka: wholly, or not at all.
    assert {answers[1], answers[2]} == {ErrorCode.REQUEST_TIMED_OUT}
    assert answers[3] in {0, ErrorCode.REQUEST_TIMED_OUT}
    for broker_id, answer in answers.items():
        name = f"asked-{broker_id}"
        if answer:
            wait_until(lambda name=name: told(partition, name) in ({None}, {(3, 3)}), f"all or nothing of {name}")  # type: ignore[misc]
            is_there = told(partition, name) == {(3, 3)}
            assert is_there or not directories(folder, name)
            assert create(partition, broker_id, name) == (ErrorCode.TOPIC_ALREADY_EXISTS if is_there else 0)
        wait_until(partial(has_all_replicas, partition, name), f"{name} with all its replicas in sync")
