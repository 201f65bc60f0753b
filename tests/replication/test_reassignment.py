"""Partitions on their way to other brokers: records get there, leaders change, and replicas that go leave nothing."""

from __future__ import annotations

from collections.abc import Callable

from pybroker_protocol.errors import ErrorCode
from tests.replication.cluster import NAME, Cluster
from tests.replication.moving_cluster import MovingCluster
from tests.storage.logs import TOPIC_ID

MakeMoving = Callable[..., MovingCluster]


def produce(cluster: Cluster, count: int) -> None:
    for _ in range(count):
        cluster.brokers[cluster.state().leader].produce(acks=1)


def has_files(cluster: Cluster, broker_id: int) -> bool:
    folder = cluster.path / f"broker-{broker_id}"
    return any(path.name == f"{NAME}-0" for path in folder.rglob("*") if path.is_dir())


def test_a_partition_moves_to_a_broker_that_had_nothing_and_is_led_there(
    make_moving: MakeMoving,
) -> None:
    cluster = make_moving(replicas=(1, 2))
    produce(cluster, 5)
    cluster.settle()
    before = cluster.brokers[1].contents()
    cluster.start(3)
    cluster.move(3, 2)
    cluster.tell()
    cluster.settle()
    state = cluster.state()
    assert (state.replicas, state.leader, set(state.isr)) == ((3, 2), 3, {2, 3})
    assert cluster.brokers[3].contents() == before
    produce(cluster, 1)
    cluster.settle()
    for broker_id in (2, 3):
        assert cluster.brokers[broker_id].offsets() == (0, 6, 6)
    assert not has_files(cluster, 1)
    assert cluster.brokers[1].replicas.error_of(NAME, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_of_one_replica_gets_others_and_loses_them_under_the_same_leader(
    make_moving: MakeMoving,
) -> None:
    cluster = make_moving(replicas=(1,))
    produce(cluster, 3)
    for broker_id in (2, 3):
        cluster.start(broker_id)
    cluster.move(1, 2, 3)
    cluster.tell()
    cluster.settle()
    assert (cluster.state().replicas, set(cluster.state().isr)) == ((1, 2, 3), {1, 2, 3})
    produce(cluster, 1)
    cluster.settle()
    for broker_id in (1, 2, 3):
        assert cluster.brokers[broker_id].offsets() == (0, 4, 4)
    cluster.move(1)
    cluster.tell()
    cluster.settle()
    results = cluster.brokers[1].produce()
    cluster.settle()
    assert [result.error_code for result in results] == [0]
    assert cluster.brokers[1].offsets() == (0, 5, 5)
    assert not has_files(cluster, 2)
    assert not has_files(cluster, 3)


def test_the_only_replica_that_is_left_follows_nobody(make_moving: MakeMoving) -> None:
    cluster = make_moving(replicas=(1,))
    produce(cluster, 3)
    cluster.start(2)
    cluster.move(2)
    cluster.tell()
    cluster.settle()
    assert (cluster.state().replicas, cluster.state().leader) == ((2,), 2)
    assert cluster.brokers[2].replicas.followed(TOPIC_ID, 0) is None


def test_nothing_goes_while_the_new_replica_is_not_there(make_moving: MakeMoving) -> None:
    cluster = make_moving(replicas=(1, 2, 3))
    cluster.settle()
    cluster.move(1, 2)
    cluster.tell()
    cluster.settle()
    cluster.cut |= {(3, 1)}
    cluster.move(1, 3)
    cluster.tell()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(1_000)
    assert [result.error_code for result in results] == [0], "who is on the way in is not waited for"
    assert cluster.state().replicas == (1, 3, 2)
    assert has_files(cluster, 2)
    cluster.heal()
    cluster.pass_ms(30_000)
    assert cluster.state().replicas == (1, 3)
    assert cluster.brokers[3].contents() == cluster.brokers[1].contents()
    assert not has_files(cluster, 2)


def test_a_move_that_is_taken_back_leaves_nothing_where_it_went(make_moving: MakeMoving) -> None:
    cluster = make_moving(replicas=(1, 2))
    produce(cluster, 3)
    cluster.settle()
    cluster.start(3)
    cluster.controller_answers = False
    cluster.move(3, 2)
    cluster.tell()
    cluster.pass_ms(1_000)
    assert cluster.brokers[3].offsets() == (0, 3, 3)
    assert has_files(cluster, 3)
    cluster.controller_answers = True
    cluster.move()
    cluster.tell()
    cluster.settle()
    assert set(cluster.state().replicas) == {1, 2}
    assert not has_files(cluster, 3)
    results = cluster.brokers[1].produce()
    cluster.settle()
    assert [result.error_code for result in results] == [0]
