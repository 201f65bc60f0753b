"""What introductions to Kafka's replication tell, played: who is down, who leads, what is kept, what may be lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.waiting import wait_until

from pybroker_protocol.errors import ErrorCode

from .conftest import MakePartition
from .running_cluster import IDS, Partition, RunningCluster, begin_to_write, error_of

Fault = Callable[[RunningCluster, int], None]
END: dict[Fault, Fault] = {
    RunningCluster.kill: RunningCluster.start,
    RunningCluster.stop: RunningCluster.start,
    RunningCluster.pause: RunningCluster.resume,
}
each_fault = pytest.mark.parametrize("fault", END, ids=lambda fault: fault.__name__)
also_over_zookeeper = pytest.mark.parametrize(
    "make_partition",
    ["sqlite", pytest.param("zookeeper", marks=pytest.mark.jvm(needs="zookeeper"))],
    indirect=True,
)
each_acks = pytest.mark.parametrize("acks", [0, 1, -1], ids=["acks_0", "acks_1", "acks_all"])


@each_fault
def test_follower_goes_the_isr_shrinks_produce_goes_on_and_it_comes_back_in_sync(
    partition: Partition, fault: Fault
) -> None:
    leader, (follower, other) = partition.leader, partition.followers()
    written = partition.write_each_way("before")
    fault(partition.cluster, follower)
    written += partition.write_each_way("at once")
    partition.wait_for(leader=leader, isr={leader, other})
    written += partition.write_each_way("without it")
    END[fault](partition.cluster, follower)
    partition.wait_for(leader=leader, isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)


@also_over_zookeeper
@each_fault
def test_leader_goes_another_in_sync_replica_leads_and_nothing_is_lost(partition: Partition, fault: Fault) -> None:
    leader, followers = partition.leader, partition.followers()
    written = partition.write_each_way("before")
    partition.wait_for_values(written)
    fault(partition.cluster, leader)
    partition.wait_for(isr=followers)
    assert partition.leader in followers
    written += partition.write_each_way("without it")
    END[fault](partition.cluster, leader)
    partition.wait_for(isr=IDS)
    partition.wait_for_values(written)


@each_acks
def test_leader_dies_with_what_no_follower_has_and_only_acks_all_had_not_acknowledged_it(
    partition: Partition, acks: int
) -> None:
    leader, followers = partition.leader, partition.followers()
    written = partition.write_each_way("before")
    partition.wait_for_values(written)
    for follower in followers:
        partition.cluster.pause(follower)
    # Followers have fetches on their way, which take the first record along.
    assert partition.write(b"perhaps", 1, at=leader) == 0
    answer = partition.write(b"lost", acks, at=leader, timeout_ms=50)
    assert answer == (ErrorCode.REQUEST_TIMED_OUT if acks == -1 else 0)
    partition.cluster.kill(leader)
    for follower in followers:
        partition.cluster.resume(follower)
    partition.wait_for(isr=followers)
    written += partition.write_each_way("after")
    kept = partition.values(partition.leader)
    assert [value for value in kept if value != b"perhaps"] == written
    partition.cluster.start(leader)
    partition.wait_for(isr=IDS)
    partition.wait_for_values(kept)  # the old leader has cut off what it alone had


@pytest.fixture
def leader_that_was_last(partition: Partition) -> tuple[Partition, int, list[bytes]]:
    """All are down: first the followers died, then, with records of its own, the leader."""
    return last_of_all(partition)


def last_of_all(partition: Partition) -> tuple[Partition, int, list[bytes]]:
    leader, followers = partition.leader, partition.followers()
    written = partition.write_each_way("before")
    partition.wait_for_values(written)
    for follower in followers:
        partition.cluster.kill(follower)
    partition.wait_for(leader=leader, isr={leader})
    written += partition.write_each_way("alone")
    partition.cluster.kill(leader)
    return partition, leader, written


def test_all_are_down_and_the_old_leader_is_back_first(
    leader_that_was_last: tuple[Partition, int, list[bytes]],
) -> None:
    partition, leader, written = leader_that_was_last
    partition.cluster.start(leader)
    partition.wait_for(leader=leader, isr={leader})
    assert partition.values(leader) == written
    written += partition.write_each_way("back")
    for broker_id in sorted(set(IDS) - {leader}):
        partition.cluster.start(broker_id)
    partition.wait_for(leader=leader, isr=IDS)
    partition.wait_for_values(written)


def test_all_are_down_and_followers_are_back_first_which_wait_for_the_replica_in_sync(
    leader_that_was_last: tuple[Partition, int, list[bytes]],
) -> None:
    partition, leader, written = leader_that_was_last
    followers = sorted(set(IDS) - {leader})
    for broker_id in followers:
        partition.cluster.start(broker_id)
        partition.wait_for_no_leader()
        assert partition.write(b"refused", -1, at=broker_id) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.cluster.start(leader)
    partition.wait_for(leader=leader, isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)


@also_over_zookeeper
def test_all_are_down_and_a_follower_is_back_first_and_leads_uncleanly_where_that_is_allowed(
    make_partition: MakePartition,
) -> None:
    partition, leader, written = last_of_all(make_partition(unclean_leader_election_enable=True))
    follower = min(set(IDS) - {leader})
    partition.cluster.start(follower)
    partition.wait_for(leader=follower, isr={follower})
    written = [value for value in written if not value.startswith(b"alone")]
    assert partition.values(follower) == written
    written += partition.write_each_way("unclean")
    for broker_id in sorted(set(IDS) - {follower}):
        partition.cluster.start(broker_id)
    partition.wait_for(isr=IDS)
    partition.wait_for_values(written)  # the old leader has cut off what diverged
    written += partition.write_each_way("after")
    partition.wait_for_values(written)


@also_over_zookeeper
@pytest.mark.parametrize("first_is_leader", [True, False], ids=["leader_first", "follower_first"])
def test_all_die_at_once_and_when_all_are_back_nothing_is_lost(partition: Partition, first_is_leader: bool) -> None:
    """Whoever comes back after a crash may have lost what was not synced: the last one in sync leads (KIP-966)."""
    leader, followers = partition.leader, partition.followers()
    written = partition.write_each_way("before")
    partition.wait_for_values(written)
    for broker_id in IDS:
        partition.cluster.kill(broker_id)
    for broker_id in (leader, *followers) if first_is_leader else (*followers, leader):
        partition.cluster.start(broker_id)
    partition.wait_for(isr=IDS)
    written += partition.write_each_way("after")
    partition.wait_for_values(written)


@also_over_zookeeper
def test_leader_that_was_deposed_while_it_stood_still_acknowledges_nothing_to_acks_all(partition: Partition) -> None:
    leader, followers = partition.leader, partition.followers()
    partition.cluster.pause(leader)
    with partition.at(leader) as client:
        begin_to_write(client, b"to a deposed leader", -1)
        partition.wait_for(isr=followers)
        written = partition.write_each_way("after")
        partition.cluster.resume(leader)
        assert error_of(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.wait_for(isr=IDS)
    partition.wait_for_values(written)


# min.insync.replicas ------------------------------------------------------------------------------------------------


def test_with_two_in_sync_of_two_wanted_produce_goes_on_and_with_one_acks_all_is_refused_before_the_append(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(min_insync_replicas=2)
    leader, (first, second) = partition.leader, partition.followers()
    partition.cluster.kill(first)
    partition.wait_for(isr={leader, second})
    written = partition.write_each_way("two in sync")
    partition.cluster.kill(second)
    partition.wait_for(isr={leader})
    assert partition.write(b"refused", -1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.write(b"taken", 1) == 0
    assert partition.values(leader) == written, "nothing is committed while too few are in sync"
    partition.cluster.start(first)
    partition.wait_for(isr={leader, first})
    partition.wait_for_values([*written, b"taken"])


def test_what_acks_all_appended_before_the_isr_became_too_small_is_not_acknowledged_and_not_shown(
    make_partition: MakePartition,
) -> None:
    """The high watermark stands still then (KIP-966), so that the producer hears of its time-out as in Kafka 4."""
    partition = make_partition(min_insync_replicas=2)
    leader, followers = partition.leader, partition.followers()
    for follower in followers:
        partition.cluster.pause(follower)
    with partition.at(leader) as in_time, partition.at(leader) as too_late:
        begin_to_write(in_time, b"in time", -1)
        begin_to_write(too_late, b"too late", -1, timeout_ms=100)
        assert error_of(too_late) == ErrorCode.REQUEST_TIMED_OUT
        partition.wait_for(leader=leader, isr={leader})
        assert partition.values(leader) == []
        for follower in followers:
            partition.cluster.resume(follower)
        assert error_of(in_time) == 0
    partition.wait_for(leader=leader, isr=IDS)
    wait_until(lambda: sorted(partition.values(leader)) == [b"in time", b"too late"], "both are committed")
    partition.wait_for_values(partition.values(leader))


def test_with_two_wanted_in_sync_two_brokers_die_one_after_another_and_nothing_of_acks_all_is_lost(
    make_partition: MakePartition,
) -> None:
    partition = make_partition(min_insync_replicas=2)
    written = partition.write_each_way("before")
    partition.wait_for_values(written)
    first = partition.leader
    partition.cluster.kill(first)
    partition.wait_for(isr=set(IDS) - {first})
    assert partition.write(b"to two", -1) == 0
    second = partition.leader
    partition.cluster.kill(second)
    (last,) = set(IDS) - {first, second}
    partition.wait_for(leader=last, isr={last})
    assert partition.write(b"refused", -1) == ErrorCode.NOT_ENOUGH_REPLICAS
    partition.cluster.start(first)
    partition.wait_for(leader=last, isr={first, last})
    partition.wait_for_values([*written, b"to two"])
