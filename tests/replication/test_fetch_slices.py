"""A fetch of very many partitions is read over several turns of the loop, and answers as if it had been one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import limits
from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.fetch_session import FetchPartition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.log.log import Log
from pybroker.storage.results import ReadResult
from tests.replication.replicas import leader_of
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, Storage

COUNT = 10
WAIT_MS = 60_000


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def replicas(tmp_path: Path, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicaManager]:
    """A topic of ten partitions, which a fetch reads two in a turn."""
    monkeypatch.setattr(limits, "FETCH_PARTITIONS_AT_ONCE", 4)
    monkeypatch.setattr("pybroker.replication.fetch_operation.FETCH_PARTITIONS_PER_LOOK", 2)
    monkeypatch.setattr("pybroker.replication.fetch_operation.FETCH_SLICE_MS", 0)
    storage = Storage(tmp_path / "data", world)
    yield leader_of(world, storage, COUNT)
    storage.close()


class Fetch:
    """One fetch of all partitions from offset 0."""

    def __init__(self, replicas: ReplicaManager, *, min_bytes: int = 1, wait_ms: int = WAIT_MS) -> None:
        self.asked = [FetchPartition("t", TOPIC_ID, index) for index in range(COUNT)]
        for fetched in self.asked:
            fetched.ask(0, 1 << 20, -1)
        self.times_done = 0
        self.operation = ConsumerFetch(
            replicas, self.asked, min_bytes=min_bytes, max_bytes=1 << 20, read_committed=False, done=self._done
        )
        self.operation.start(wait_ms)

    def _done(self, _: object) -> None:
        self.times_done += 1

    def sizes(self) -> list[int]:
        return [len(fetched.records) for fetched in self.asked]


def produce(replicas: ReplicaManager, index: int) -> None:
    partition = replicas.partition("t", index)
    assert partition is not None
    result = partition.append(memoryview(batch([b"v"])), -1, 1_000, 13, lambda result: None)
    assert result is not None
    assert result.error_code == 0


def waiting(replicas: ReplicaManager) -> int:
    return sum(len(partition.waiting) for partition in replicas._topics.get("t", {}).values())


def test_slices_bring_what_one_read_brings(replicas: ReplicaManager, world: VirtualWorld) -> None:
    for index in (0, 3, 4, 9):
        produce(replicas, index)
    world.advance(0)
    fetch = Fetch(replicas)
    turns = 0
    while not fetch.times_done:
        assert [fetched.partition is not None for fetched in fetch.asked].count(True) <= 2 * (turns + 1)
        world.turn()
        turns += 1
    assert turns == COUNT / 2  # the last slice ends in a turn of its own
    assert [index for index, size in enumerate(fetch.sizes()) if size] == [0, 3, 4, 9]
    world.advance(WAIT_MS + 10)
    assert (fetch.times_done, waiting(replicas)) == (1, 0)


def test_append_behind_the_slices_ends_the_fetch_without_a_wait(replicas: ReplicaManager, world: VirtualWorld) -> None:
    fetch = Fetch(replicas)
    world.turn()
    produce(replicas, 0)
    world.advance(0)
    assert fetch.times_done == 1
    assert [index for index, size in enumerate(fetch.sizes()) if size] == [0]
    assert waiting(replicas) == 0


def test_too_small_an_append_behind_the_slices_goes_on_waiting(replicas: ReplicaManager, world: VirtualWorld) -> None:
    fetch = Fetch(replicas, min_bytes=100)
    world.turn()
    produce(replicas, 0)
    world.advance(100)
    assert (fetch.times_done, waiting(replicas)) == (0, COUNT)
    produce(replicas, 7)
    world.advance(0)
    assert (fetch.times_done, waiting(replicas)) == (1, 0)
    assert [index for index, size in enumerate(fetch.sizes()) if size] == [0, 7]


def test_fetch_that_finds_nothing_waits_to_its_end(replicas: ReplicaManager, world: VirtualWorld) -> None:
    fetch = Fetch(replicas)
    world.advance(WAIT_MS - 10)
    assert (fetch.times_done, waiting(replicas)) == (0, COUNT)
    world.advance(20)
    assert (fetch.times_done, waiting(replicas)) == (1, 0)


def test_client_that_goes_away_in_the_middle_leaves_nothing(replicas: ReplicaManager, world: VirtualWorld) -> None:
    produce(replicas, 0)
    fetch = Fetch(replicas)
    world.turn()
    assert any(fetch.sizes())
    fetch.operation.abandon()
    world.advance(WAIT_MS + 10)
    assert (fetch.times_done, waiting(replicas)) == (0, 0)
    assert not any(fetch.sizes())  # the partitions of a session live on, and must pin no segment
    assert fetch.asked[-1].partition is None


def test_partition_that_goes_in_the_middle_is_answered_with_its_error(
    replicas: ReplicaManager, world: VirtualWorld
) -> None:
    fetch = Fetch(replicas)
    world.turn()
    topic = replicas._metadata.image.topics_by_name["t"]
    gone = topic._replace(partitions=(topic.partitions[0]._replace(leader=2), *topic.partitions[1:]))
    replicas._metadata.image = ClusterImage(epoch=1, topics_by_name={"t": gone}, topics_by_id={TOPIC_ID: gone})
    replicas._update_topic(topic, gone)
    world.advance(0)
    assert fetch.times_done == 1
    assert [fetched.error_code for fetched in fetch.asked] == [6] + [0] * (COUNT - 1)


@pytest.fixture
def cold_ends(world: VirtualWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data of the first and of the last partition are not in memory: their reads end in a later turn."""
    read = Log.read

    class Cold(ColdRead):
        def __init__(self, result: ReadResult) -> None:
            self.max_bytes = len(result.records)
            self.result = result

        def start(self, done: Callable[[ReadResult], None]) -> None:
            world.timers.call_soon(done, self.result)

    def read_cold(log: Log, *args: Any) -> ReadResult | ColdRead:
        result = read(log, *args)
        return Cold(result) if log.partition in (0, COUNT - 1) and isinstance(result, ReadResult) else result

    monkeypatch.setattr(Log, "read", read_cold)


def produce_to_all(replicas: ReplicaManager, world: VirtualWorld) -> None:
    for index in range(COUNT):
        produce(replicas, index)
    world.advance(0)


@pytest.mark.usefixtures("cold_ends")
def test_cold_reads_that_end_before_the_last_slice_do_not_end_the_fetch(
    replicas: ReplicaManager, world: VirtualWorld
) -> None:
    produce_to_all(replicas, world)
    fetch = Fetch(replicas)
    world.advance(0)
    assert fetch.times_done == 1
    assert all(fetch.sizes())


@pytest.mark.usefixtures("cold_ends")
def test_cold_read_that_ends_after_the_client_has_gone_brings_nothing(
    replicas: ReplicaManager, world: VirtualWorld
) -> None:
    """The partitions are the session's: a later fetch may be under way with them."""
    produce_to_all(replicas, world)
    fetch = Fetch(replicas)
    fetch.operation.abandon()
    world.advance(0)
    assert (fetch.times_done, any(fetch.sizes())) == (0, False)
