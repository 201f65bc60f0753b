"""When a produce is acknowledged: by whom it has to be written, until when it waits for that, and who may not begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import storage_limits
from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.config.resources import MIN_INSYNC_REPLICAS, TOPIC
from pybroker.replication.partition import ACKS_ALL, Partition
from pybroker.replication.purgatory import PURGATORY_TICK_MS
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.results import AppendResult
from pybroker_protocol.errors import ErrorCode
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID, Storage

VERSION = 13
TIMEOUT_MS = 5_000
ALONE = PartitionImage((1,), (1,), 1)
WITH_A_FOLLOWER = PartitionImage((1, 2), (1, 2), 1)
WITHOUT_ITS_FOLLOWER = PartitionImage((1, 2), (1,), 1)


class Leader:
    """This broker, which leads the only partition of a topic that may have replicas elsewhere."""

    def __init__(self, world: VirtualWorld, storage: Storage, state: PartitionImage, min_insync_replicas: int) -> None:
        self.world = world
        topic = TopicImage("t", TOPIC_ID, (state,))
        overrides = {(TOPIC, "t"): {MIN_INSYNC_REPLICAS: str(min_insync_replicas)}}
        image = ClusterImage(topics_by_name={"t": topic}, topics_by_id={TOPIC_ID: topic}, configs=overrides)
        self.metadata = MetadataCache(image)
        self.replicas = ReplicaManager(world.env, 1, self.metadata, storage.manager, BrokerConfig.load())
        found = self.replicas.partition("t", 0)
        assert found is not None
        self.partition: Partition = found
        self.later: list[AppendResult] = []

    def produce(self, acks: int = ACKS_ALL, data: bytearray | None = None) -> AppendResult | None:
        records = memoryview(batch() if data is None else data)
        return self.partition.append(records, acks, TIMEOUT_MS, VERSION, self.later.append)

    def learn(self, state: PartitionImage) -> None:
        """The cluster has the partition so from now on."""
        image = self.metadata.image
        before = image.topics_by_name["t"]
        after = before._replace(partitions=(state._replace(partition_epoch=image.epoch + 1),))
        changed = ClusterImage(
            epoch=image.epoch + 1, topics_by_name={"t": after}, topics_by_id={TOPIC_ID: after}, configs=image.configs
        )
        self.metadata.apply(changed, ImageDelta(topics_changed=((before, after),)))

    def rest(self) -> None:
        """What is due in this turn of the loop."""
        self.world.advance(0)

    def is_waited_for(self) -> bool:
        return bool(self.partition.waiting or any(self.replicas.purgatory._slots.values()))


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def storage(tmp_path: Path, world: VirtualWorld) -> Iterator[Storage]:
    storage = Storage(tmp_path / "data", world)
    yield storage
    storage.close()


@pytest.fixture
def leader(world: VirtualWorld, storage: Storage) -> Leader:
    return Leader(world, storage, WITH_A_FOLLOWER, min_insync_replicas=2)


class Follower:
    """The follower, broker 2, of which nothing is heard until it has caught up."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def catch_up(self) -> None:
        followers = self._leader.partition.followers
        assert followers is not None
        followers.on_fetch(2, 1, self._leader.partition.log.log_end_offset, 0)
        self._leader.rest()


@pytest.fixture
def follower(leader: Leader) -> Follower:
    return Follower(leader)


def test_acks_all_are_answered_at_once_by_the_only_replica(world: VirtualWorld, storage: Storage) -> None:
    leader = Leader(world, storage, ALONE, min_insync_replicas=2)
    result = leader.produce()
    assert result is not None
    assert (result.error_code, result.base_offset) == (0, 0)
    assert leader.partition.append_run([memoryview(batch())], ACKS_ALL, VERSION) == [1]
    assert not leader.is_waited_for()


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_of_the_leader_wait_for_no_other_replica(leader: Leader, follower: Follower, acks: int) -> None:
    result = leader.produce(acks)
    assert result is not None
    assert (result.error_code, result.base_offset) == (0, 0)
    assert leader.partition.append_run([memoryview(batch())], acks, VERSION) == [1]
    assert not leader.is_waited_for()


def test_acks_all_are_answered_when_the_high_watermark_has_passed_the_batch(leader: Leader, follower: Follower) -> None:
    assert [leader.produce(), leader.produce()] == [None, None]
    leader.rest()
    assert not leader.later
    follower.catch_up()
    assert [(result.error_code, result.base_offset) for result in leader.later] == [(0, 0), (0, 1)]
    assert not leader.is_waited_for()
    leader.world.advance(2 * TIMEOUT_MS)
    assert len(leader.later) == 2, "nobody is told twice"


def test_acks_all_of_a_batch_that_a_thread_has_written_wait_all_the_same(leader: Leader, follower: Follower) -> None:
    large = batch(values=[bytes(2 * storage_limits.INLINE_WRITE_BYTES_MAX)])
    assert leader.produce(data=large) is None
    leader.world.executor("writer").run()
    leader.rest()
    assert leader.partition.log.log_end_offset == 1
    assert not leader.later
    follower.catch_up()
    assert [result.error_code for result in leader.later] == [0]


def test_a_batch_that_is_refused_is_answered_at_once_whatever_the_acks(leader: Leader, follower: Follower) -> None:
    broken = batch()
    broken[-1] ^= 1
    result = leader.produce(data=broken)
    assert result is not None
    assert result.error_code == ErrorCode.CORRUPT_MESSAGE
    assert not leader.is_waited_for()


def test_a_wait_for_replicas_has_an_end_and_the_batch_stays_written(leader: Leader, follower: Follower) -> None:
    assert leader.produce() is None
    leader.world.advance(TIMEOUT_MS - 1)
    assert not leader.later
    leader.world.advance(2 * PURGATORY_TICK_MS)
    assert [(result.error_code, result.base_offset) for result in leader.later] == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    assert leader.partition.log.log_end_offset == 1
    assert not leader.is_waited_for()
    follower.catch_up()
    assert len(leader.later) == 1, "nobody is told twice"


def test_a_wait_ends_with_the_leadership(leader: Leader, follower: Follower) -> None:
    assert leader.produce() is None
    leader.learn(WITH_A_FOLLOWER._replace(leader=2, leader_epoch=1))
    assert [result.error_code for result in leader.later] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not leader.is_waited_for()
    for acks in (0, 1, ACKS_ALL):
        refused = leader.produce(acks)
        assert refused is not None
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.partition.append_run([memoryview(batch())], acks, VERSION) == []
    assert leader.partition.log.log_end_offset == 1


def test_too_few_replicas_in_sync_take_no_batch_that_all_of_them_shall_have(leader: Leader) -> None:
    leader.learn(WITHOUT_ITS_FOLLOWER)
    refused = leader.produce()
    assert refused is not None
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.partition.append_run([memoryview(batch())], ACKS_ALL, VERSION) == []
    assert leader.partition.log.log_end_offset == 0
    taken = leader.produce(acks=1)
    assert taken is not None
    assert taken.error_code == 0
    leader.learn(WITH_A_FOLLOWER)
    assert leader.produce() is None, "it is taken, and waits"


def test_nothing_is_committed_while_too_few_replicas_are_in_sync(leader: Leader, follower: Follower) -> None:
    assert leader.produce() is None
    leader.learn(WITHOUT_ITS_FOLLOWER)
    follower.catch_up()
    assert not leader.later
    assert leader.partition.log.high_watermark == 0
    leader.learn(WITH_A_FOLLOWER)
    leader.rest()
    assert [result.error_code for result in leader.later] == [0]


def test_too_few_replicas_by_the_time_of_the_acknowledgement_are_told(leader: Leader, follower: Follower) -> None:
    assert leader.produce() is None
    followers = leader.partition.followers
    assert followers is not None
    followers.on_fetch(2, 1, 1, 0)  # it is committed, and who waits for that is looked at after this turn
    leader.learn(WITHOUT_ITS_FOLLOWER)
    leader.rest()
    assert [result.error_code for result in leader.later] == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_run_of_batches_waits_as_its_last_batch_does(leader: Leader, follower: Follower) -> None:
    leader.produce(acks=1)  # the first batch of a segment goes by itself
    assert leader.partition.append_run([memoryview(batch()), memoryview(batch())], ACKS_ALL, VERSION) == [1, 2]
    leader.partition.await_run(1, TIMEOUT_MS, leader.later.append)
    followers = leader.partition.followers
    assert followers is not None
    followers.on_fetch(2, 1, 2, 0)
    leader.rest()
    assert not leader.later
    follower.catch_up()
    assert [(result.error_code, result.base_offset, result.last_offset) for result in leader.later] == [(0, 1, 2)]
    assert not leader.is_waited_for()


def test_a_run_that_is_committed_already_waits_for_nobody(leader: Leader) -> None:
    leader.learn(WITHOUT_ITS_FOLLOWER)
    leader.metadata.image.configs[TOPIC, "t"][MIN_INSYNC_REPLICAS] = "1"  # type: ignore[index]
    leader.replicas.on_broker_config()
    leader.world.advance(60_000)  # the follower is not waited for any more
    leader.produce(acks=1)
    assert leader.partition.append_run([memoryview(batch())], ACKS_ALL, VERSION) == [1]
    leader.partition.await_run(1, TIMEOUT_MS, leader.later.append)
    assert [(result.error_code, result.last_offset) for result in leader.later] == [(0, 1)]
