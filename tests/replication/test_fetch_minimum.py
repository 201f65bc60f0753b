"""When a fetch has enough: by the bytes that stand in the log, as Kafka counts them, not by those that it brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.fetch_session import FetchPartition
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager
from tests.replication.replicas import leader_of
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, TRANSACTIONAL_FLAG, Client, Storage

OUT_OF_REACH = 1 << 20
WAIT_MS = 60_000
BATCH = batch([b"v" * 100])


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def replicas(tmp_path: Path, world: VirtualWorld) -> Iterator[ReplicaManager]:
    """A topic of two partitions."""
    storage = Storage(tmp_path / "data", world)
    yield leader_of(world, storage, 2)
    storage.close()


@pytest.fixture
def partition(replicas: ReplicaManager) -> Partition:
    found = replicas.partition("t", 0)
    assert found is not None
    return found


class Fetch:
    """One fetch of both partitions."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        offset: int = 0,
        min_bytes: int = OUT_OF_REACH,
        partition_max_bytes: int = OUT_OF_REACH,
        read_committed: bool = False,
    ) -> None:
        self.asked = [FetchPartition("t", TOPIC_ID, index) for index in range(2)]
        self.asked[0].ask(offset, partition_max_bytes, -1)
        self.asked[1].ask(0, partition_max_bytes, -1)
        self.times_done = 0
        self.operation = ConsumerFetch(
            replicas,
            self.asked,
            min_bytes=min_bytes,
            max_bytes=OUT_OF_REACH,
            read_committed=read_committed,
            done=self._done,
        )
        self.operation.start(WAIT_MS)

    def _done(self, _: object) -> None:
        self.times_done += 1

    def batches(self) -> float:
        """How many batches it brought of the first partition."""
        return len(self.asked[0].records) / len(BATCH)


def produce(world: VirtualWorld, partition: Partition, count: int = 1, data: bytearray = BATCH) -> None:
    """Append a batch so many times, and let the turn end that looks at waiting fetches."""
    for _ in range(count):
        result = partition.append(memoryview(bytearray(data)), -1, 1_000, 13, lambda result: None)
        assert result is not None
        assert result.error_code == 0
    world.advance(0)


def roll_segment(partition: Partition) -> None:
    partition.log.roll()
    assert partition.log.active.base_offset == partition.log.log_end_offset


def test_fetch_with_too_little_in_the_last_segment_waits(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    produce(world, partition)
    roll_segment(partition)
    produce(world, partition)
    fetch = Fetch(replicas, offset=1)
    world.advance(WAIT_MS - 10)
    assert fetch.times_done == 0
    world.advance(20)
    assert (fetch.times_done, fetch.batches()) == (1, 1)


def test_fetch_of_an_earlier_segment_does_not_wait(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    """A read ends with its segment: however long it waited, it would bring no more."""
    produce(world, partition, 2)
    roll_segment(partition)
    produce(world, partition)
    fetch = Fetch(replicas, offset=1)
    assert (fetch.times_done, fetch.batches()) == (1, 1)
    world.advance(WAIT_MS + 10)
    assert fetch.times_done == 1
    assert not partition.waiting


def test_waiting_fetch_ends_when_its_segment_is_followed_by_another(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    produce(world, partition)
    fetch = Fetch(replicas)
    produce(world, partition)
    assert fetch.times_done == 0
    roll_segment(partition)
    produce(world, partition)
    assert (fetch.times_done, fetch.batches()) == (1, 2)


def test_fetch_at_the_end_of_a_segment_waits_for_its_minimum_in_the_next(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    produce(world, partition)
    roll_segment(partition)
    fetch = Fetch(replicas, offset=1, min_bytes=len(BATCH) + 1)
    produce(world, partition)
    assert fetch.times_done == 0
    produce(world, partition)
    assert (fetch.times_done, fetch.batches()) == (1, 2)


def test_committed_reader_is_behind_by_no_segment_that_lies_past_an_open_transaction(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    produce(world, partition)
    Client(partition.log).verify(producer_id=7, producer_epoch=0)
    produce(world, partition, data=batch(producer_id=7, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_FLAG))
    roll_segment(partition)
    produce(world, partition)
    fetch = Fetch(replicas, read_committed=True)
    assert fetch.times_done == 0
    world.advance(WAIT_MS + 10)
    assert (fetch.times_done, fetch.batches()) == (1, 1)


def test_minimum_that_whole_batches_do_not_meet_is_met_by_what_lies_in_the_log(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    """Kafka cuts the last batch and has met it; no batch is cut here, and to wait would bring nothing more."""
    produce(world, partition, 3)
    limit = 2 * len(BATCH) + 10
    fetch = Fetch(replicas, min_bytes=limit, partition_max_bytes=limit)
    assert (fetch.times_done, fetch.batches()) == (1, 2)


def test_partition_counts_no_more_than_may_be_read_of_it(
    replicas: ReplicaManager, partition: Partition, world: VirtualWorld
) -> None:
    produce(world, partition, 3)
    limit = 2 * len(BATCH) + 10
    fetch = Fetch(replicas, min_bytes=limit + 1, partition_max_bytes=limit)
    assert fetch.times_done == 0
    other = replicas.partition("t", 1)
    assert other is not None
    produce(world, other)
    assert (fetch.times_done, fetch.batches()) == (1, 2)
