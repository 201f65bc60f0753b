"""Throttled replicas (KIP-73): they are copied at the rate that is allowed, and nobody else waits for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.replication.partition import ACKS_ALL
from pybroker_protocol import codec
from pybroker_protocol.messages.fetch import FetchRequest
from tests.replication.cluster import Broker
from tests.replication.moving_cluster import MovingCluster
from tests.replication.test_follower_fetch import answer, request_of

MakeMoving = Callable[..., MovingCluster]
BATCH = 100_000
RATE = 1_000_000
SIDES = ["leader", "follower", "both"]
SMALL_FETCHES: dict[str, Any] = {"replica_fetch_max_bytes": 2 * BATCH, "replica_fetch_response_max_bytes": 2 * BATCH}


@pytest.fixture
def moving(make_moving: MakeMoving) -> MovingCluster:
    """Brokers 1 and 2 have 4 MB of one partition, and broker 3, which is new, has nothing."""
    cluster = make_moving(replicas=(1, 2), **SMALL_FETCHES)
    fill(cluster, 40)
    cluster.start(3)
    return cluster


def fill(cluster: MovingCluster, batches: int, index: int = 0) -> None:
    for _ in range(batches):
        cluster.brokers[cluster.state(index).leader].produce(acks=1, index=index, value=bytes(BATCH))
    cluster.settle()


def throttle(cluster: MovingCluster, side: str = "both", replicas: str = "*", rate: int = RATE) -> None:
    sides = ("leader", "follower") if side == "both" else (side,)
    cluster.configure_topic(**{f"{side}_replication_throttled_replicas": replicas for side in sides})
    cluster.configure_brokers(**{f"{side}_replication_throttled_rate": rate for side in sides})
    cluster.tell()


def move(cluster: MovingCluster, *replicas: int, indexes: tuple[int, ...] = (0,)) -> None:
    cluster.move(*replicas, indexes=indexes)
    cluster.tell()


def copied(broker: Broker, index: int = 0) -> int:
    """How many of the batches, of one record each, the broker has."""
    return broker.log(index).log_end_offset


def ms_until(cluster: MovingCluster, is_so: Callable[[], bool], patience_ms: int = 60_000) -> int:
    for passed_ms in range(0, patience_ms, 10):
        if is_so():
            return passed_ms
        cluster.pass_ms(10)
    raise AssertionError("it did not come about")


def fetches_of(broker: Broker) -> int:
    return sum(isinstance(request, FetchRequest) for _, request in broker.asked)


@pytest.mark.parametrize("side", SIDES)
def test_a_move_takes_as_long_as_the_rate_says(moving: MovingCluster, side: str) -> None:
    throttle(moving, side)
    move(moving, 1, 2, 3)
    took_ms = ms_until(moving, lambda: 3 in moving.state().isr)
    assert 3_700 <= took_ms <= 4_300
    assert moving.brokers[3].contents() == moving.brokers[1].contents()


def test_a_move_that_is_not_throttled_takes_no_time(moving: MovingCluster) -> None:
    throttle(moving, replicas="1:1,1:3")
    move(moving, 1, 2, 3)
    assert ms_until(moving, lambda: 3 in moving.state().isr) < 1_000


@pytest.mark.parametrize(("side", "replica"), [("leader", 1), ("follower", 3)])
def test_a_list_names_the_replica_of_the_side_that_is_throttled(moving: MovingCluster, side: str, replica: int) -> None:
    throttle(moving, side, f"0:{4 - replica}")
    throttle(moving, side, f"0:{replica}")
    move(moving, 1, 2, 3)
    moving.pass_ms(2_000)
    assert 10 < copied(moving.brokers[3]) < 30


@pytest.mark.parametrize("side", SIDES)
def test_fetches_of_what_is_throttled_come_as_often_as_the_rate_says(moving: MovingCluster, side: str) -> None:
    """And not again and again: whoever waits is woken when there may be more."""
    throttle(moving, side, rate=RATE // 10)
    move(moving, 1, 2, 3)
    moving.pass_ms(1_000)
    before, has = fetches_of(moving.brokers[3]), copied(moving.brokers[3])
    moving.pass_ms(10_000)
    assert 8 <= copied(moving.brokers[3]) - has <= 12
    assert fetches_of(moving.brokers[3]) - before <= 10_000 // 500 + 12


@pytest.mark.parametrize("side", SIDES)
def test_whoever_is_in_sync_is_not_kept_waiting(moving: MovingCluster, side: str) -> None:
    throttle(moving, side, rate=1)
    move(moving, 1, 2, 3)
    moving.pass_ms(500)
    for _ in range(20):
        results = moving.brokers[1].produce(acks=ACKS_ALL, value=bytes(BATCH))
        moving.pass_ms(20)
        assert [result.error_code for result in results] == [0]
    assert copied(moving.brokers[2]) == 60
    assert copied(moving.brokers[3]) < 10


@pytest.mark.parametrize("side", SIDES)
def test_what_those_in_sync_fetch_counts_too(moving: MovingCluster, side: str) -> None:
    throttle(moving, side)
    move(moving, 1, 2, 3)
    moving.pass_ms(1_000)
    has = copied(moving.brokers[3])
    for _ in range(10):  # as much as the rate, to broker 2
        moving.brokers[1].produce(acks=ACKS_ALL, value=bytes(BATCH))
        moving.pass_ms(100)
    came = copied(moving.brokers[3]) - has
    assert came <= 4 if side != "follower" else came >= 8, "a follower's quota is its own"


def test_a_consumer_is_not_kept_waiting(moving: MovingCluster) -> None:
    throttle(moving, rate=1)
    move(moving, 1, 2, 3)
    moving.pass_ms(500)
    asked = request_of(-1, -1, 0)
    asked.replica_id = -1
    assert len(answer(moving.brokers[1].serve(1, 17, codec.encode(asked, 17))).records or b"") >= BATCH


@pytest.mark.parametrize("side", SIDES)
def test_partitions_beside_a_throttled_one_are_fetched_at_once(make_moving: MakeMoving, side: str) -> None:
    cluster = make_moving(replicas=(1, 2), partitions=2, **SMALL_FETCHES)
    fill(cluster, 20, index=0)
    fill(cluster, 20, index=1)
    cluster.start(3)
    throttle(cluster, side, "0:1,0:3", rate=1)
    move(cluster, 1, 2, 3, indexes=(0, 1))
    assert ms_until(cluster, lambda: 3 in cluster.state(1).isr) < 1_000
    results = cluster.brokers[1].produce(index=1)
    cluster.pass_ms(20)
    assert [result.error_code for result in results] == [0], "and a fetch that waits for the quota ends for them"
    assert copied(cluster.brokers[3]) < 10


@pytest.mark.parametrize("side", SIDES)
def test_many_partitions_share_the_rate(make_moving: MakeMoving, side: str) -> None:
    cluster = make_moving(replicas=(1, 2), partitions=4, **SMALL_FETCHES)
    for index in range(4):
        fill(cluster, 20, index)
    cluster.start(3)
    throttle(cluster, side)
    move(cluster, 1, 2, 3, indexes=(0, 1, 2, 3))
    cluster.pass_ms(4_000)
    have = [copied(cluster.brokers[3], index) for index in range(4)]
    assert 36 <= sum(have) <= 44
    assert min(have) >= 6


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("change", ["no rate", "no list"])
def test_a_throttle_that_is_removed_holds_nothing_back_any_more(moving: MovingCluster, side: str, change: str) -> None:
    throttle(moving, side, rate=1)
    move(moving, 1, 2, 3)
    moving.pass_ms(3_000)
    assert copied(moving.brokers[3]) < 10
    if change == "no rate":
        moving.configure_brokers()
    else:
        throttle(moving, side, "", rate=1)
    assert ms_until(moving, lambda: 3 in moving.state().isr) <= 1_500


@pytest.mark.parametrize("side", SIDES)
def test_a_move_goes_on_at_its_rate_after_both_brokers_were_gone(moving: MovingCluster, side: str) -> None:
    """The one that it goes to is killed in the middle, and then the leader, which another one takes over from."""
    throttle(moving, side)
    move(moving, 1, 2, 3)
    moving.pass_ms(1_500)
    moving.brokers[3].kill()
    moving.pass_ms(200)
    moving.start(3)
    moving.pass_ms(500)
    has = copied(moving.brokers[3])
    assert 10 < has < 30
    moving.brokers[1].kill()
    moving.elect(2, isr=(2,))
    moving.tell([2, 3])
    moving.pass_ms(200)
    moving.start(1)
    took_ms = ms_until(moving, lambda: {1, 2, 3} == set(moving.state().isr))
    assert took_ms >= 500, "a quota begins anew with its broker, with a fetch or two"
    assert moving.state().replicas == (1, 2, 3)
    for broker_id in (1, 3):
        assert moving.brokers[broker_id].contents() == moving.brokers[2].contents()


def test_a_throttled_move_is_the_same_in_every_run(tmp_path: Path) -> None:
    def run(name: str) -> list[tuple[int, int]]:
        cluster = MovingCluster(tmp_path / name, VirtualWorld(), replicas=(1, 2), **SMALL_FETCHES)
        fill(cluster, 20)
        cluster.start(3)
        throttle(cluster)
        move(cluster, 1, 2, 3)
        seen = []
        for _ in range(25):
            cluster.pass_ms(100)
            seen.append((copied(cluster.brokers[3]), fetches_of(cluster.brokers[3])))
        cluster.close()
        return seen

    assert run("first") == run("second")
