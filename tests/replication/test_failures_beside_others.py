"""What fails for one partition, or for one who waits for it, is nobody else's business."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.handlers import list_offsets
from pybroker.handlers.context import RequestContext
from pybroker.handlers.services import Services
from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.partition import MAX_TIMESTAMP, Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.replication.transaction_markers import TransactionMarkers
from pybroker.storage.files.segment import Segment
from pybroker.storage.log import retention, timestamp_search
from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.handled import answer_of
from tests.replication.replicas import leader_of
from tests.storage.batches import batch
from tests.storage.logs import Storage

COUNT = 3
MAX_TIMESTAMP_VERSION = 7


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def replicas(tmp_path: Path, world: VirtualWorld) -> Iterator[ReplicaManager]:
    """A topic of three partitions with a record in each."""
    storage = Storage(tmp_path / "data", world)
    replicas = leader_of(world, storage, COUNT)
    for index in range(COUNT):
        produce(replicas, index)
    yield replicas
    storage.close()


class Waiting:
    """Stands where a fetch waits."""

    def __init__(self, fails: bool = False) -> None:
        self.told = 0
        self.fails = fails

    def try_complete(self, partition: Partition) -> None:
        self.told += 1
        if self.fails:
            raise RuntimeError("one fetch among many")


def led(replicas: ReplicaManager, index: int) -> Partition:
    partition = replicas.partition("t", index)
    assert partition is not None
    return partition


def produce(replicas: ReplicaManager, index: int) -> None:
    result = led(replicas, index).append(memoryview(batch([b"v"])), -1, 1_000, 13, lambda _: None)
    assert result is not None
    assert result.error_code == 0


def wait(replicas: ReplicaManager, fails: Callable[[int], bool]) -> list[Waiting]:
    """Two wait for each partition; ``fails`` says of which partitions the first one fails."""
    operations = []
    for index in range(COUNT):
        for first in (True, False):
            operation = Waiting(first and fails(index))
            led(replicas, index).waiting[cast("ConsumerFetch", operation)] = None
            operations.append(operation)
    return operations


def test_fetch_that_fails_at_an_append_keeps_nobody_else_waiting(
    replicas: ReplicaManager, world: VirtualWorld, caplog: pytest.LogCaptureFixture
) -> None:
    operations = wait(replicas, fails=lambda index: index == 0)
    for times in (1, 2):
        for index in range(COUNT):
            produce(replicas, index)
        world.advance(0)
        assert [operation.told for operation in operations] == [times] * len(operations)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_fetch_that_fails_at_a_deletion_keeps_nobody_else_waiting(replicas: ReplicaManager) -> None:
    operations = wait(replicas, fails=lambda _: True)
    partitions = [led(replicas, index) for index in range(COUNT)]
    replicas._drop_topic(replicas._metadata.image.topics_by_name["t"])
    assert [operation.told for operation in operations] == [1] * len(operations)
    assert all(partition.gone for partition in partitions)


def test_search_that_the_disk_fails_is_a_storage_error_of_its_partition(
    replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = retention.largest_timestamp

    def largest_timestamp(segment: Segment) -> int:
        if segment.directory.name == "t-1":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return largest(segment)

    for module in (retention, timestamp_search):
        monkeypatch.setattr(module, "largest_timestamp", largest_timestamp)
    for timestamp in (0, MAX_TIMESTAMP):
        asked = [
            ListOffsetsPartition(partition_index=i, timestamp=timestamp, current_leader_epoch=-1) for i in range(COUNT)
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=asked)], timeout_ms=1_000
        )
        ctx = RequestContext()
        ctx.services = cast("Services", SimpleNamespace(authorizer=None, replicas=replicas))
        ctx.api_version = MAX_TIMESTAMP_VERSION
        response = answer_of(list_offsets.handle(ctx, request))
        assert isinstance(response, ListOffsetsResponse)
        assert [(answer.error_code, answer.offset) for answer in response.topics[0].partitions] == [
            (ErrorCode.NONE, 0),
            (ErrorCode.KAFKA_STORAGE_ERROR, -1),
            (ErrorCode.NONE, 0),
        ]


@pytest.mark.parametrize("at_once", [1, COUNT])
def test_marker_that_fails_is_told_and_keeps_no_other_from_being_written(
    world: VirtualWorld, replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("pybroker.replication.transaction_markers.MARKERS_AT_ONCE", at_once)
    markers = TransactionMarkers(world.env.clock, replicas, lambda *_: None)
    told: list[PartitionErrors] = []

    def write(
        _: TransactionMarkers, __: TransactionMarker, ___: bytes, key: TopicPartition, written: Callable[..., None]
    ) -> None:
        if key[1] == 0:
            raise ZeroDivisionError
        written(key, 0)

    monkeypatch.setattr(TransactionMarkers, "_write_one", write)
    keys = [("t", index) for index in range(COUNT)]
    markers.write(TransactionMarker(1, 0, 0, True, 1), keys, told.append)
    world.advance(1)
    assert told == [{("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR, ("t", 1): 0, ("t", 2): 0}]
