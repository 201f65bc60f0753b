"""Who is in the ISR: who leaves it and joins it, by what the controller says, and what counts until it has said so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.batches import batch

from pybroker.replication.followers import Follower
from pybroker_protocol.errors import ErrorCode
from tests.replication.cluster import LAG_MS, Cluster

MakeCluster = Callable[..., Cluster]
LOG_DIR, OTHER_LOG_DIR = bytes(15) + b"a", bytes(15) + b"b"


def is_changing(cluster: Cluster) -> bool:
    followers = cluster.brokers[1].partition().followers
    assert followers is not None
    return followers._in_sync.is_changing


def test_a_follower_that_does_not_catch_up_leaves_and_no_longer_holds_up_the_high_watermark(cluster: Cluster) -> None:
    cluster.settle()
    cluster.isolate(3)
    results = cluster.brokers[1].produce()
    cluster.pass_ms(LAG_MS - 2_000)
    assert cluster.state().isr == (1, 2, 3)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.pass_ms(LAG_MS // 2 + 3_000)
    assert cluster.state().isr == (1, 2)
    assert cluster.brokers[1].log().high_watermark == 1
    assert [result.error_code for result in results] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_follower_that_is_cut_off_from_its_leader_leaves_after_a_session_whatever_its_lag_may_be(
    cluster: Cluster,
) -> None:
    leader = cluster.brokers[1]
    leader.replicas.session_ms, leader.replicas.lag_time_max_ms = 5_000, 10 * LAG_MS
    cluster.settle()
    cluster.isolate(3)
    leader.produce()
    cluster.pass_ms(9_000)
    assert cluster.state().isr == (1, 2, 3), "it is late, and is heard"
    leader.replicas.is_cut_off = lambda broker_id: broker_id == 3
    followers = leader.partition().followers
    assert followers is not None
    followers.look_at_time()
    cluster.pass_ms(1_000)
    assert cluster.state().isr == (1, 2)
    assert leader.log().high_watermark == 1, "it is not waited for as one that may join, either"


def test_a_follower_that_is_cut_off_and_fetched_lately_or_has_everything_stays(cluster: Cluster) -> None:
    leader = cluster.brokers[1]
    leader.replicas.is_cut_off = lambda broker_id: True
    cluster.settle()
    leader.produce()
    cluster.pass_ms(2_000)
    cluster.isolate(3)
    cluster.pass_ms(LAG_MS)
    assert cluster.altered == []


def test_a_follower_that_has_everything_stays_however_long_it_is_silent(cluster: Cluster) -> None:
    cluster.brokers[1].produce()
    cluster.settle()
    cluster.isolate(3)
    cluster.pass_ms(10 * LAG_MS)
    assert cluster.altered == []


def test_a_follower_that_is_always_a_little_behind_stays() -> None:
    follower = Follower(2, last_caught_up_ms=0)
    for turn in range(1, 100):
        follower.fetched(10 * (turn - 1), 0, 1, leader_end_offset=10 * turn, now_ms=500 * turn)
        assert follower.is_caught_up(10 * turn, 500 * turn + 400, 1_000)


def test_a_follower_that_falls_behind_more_and_more_is_late() -> None:
    follower = Follower(2, last_caught_up_ms=0)
    for turn in range(1, 100):
        follower.fetched(5 * (turn - 1), 0, 1, leader_end_offset=10 * turn, now_ms=500 * turn)
    assert not follower.is_caught_up(1_000, 50_000, 10_000)


def test_a_follower_joins_again_when_it_has_what_is_committed(cluster: Cluster) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(2 * LAG_MS)
    assert cluster.state().isr == (1, 2)
    cluster.heal()
    cluster.pass_ms(35_000)
    assert cluster.state().isr == (1, 2, 3)
    results = cluster.brokers[1].produce()
    cluster.isolate(3)
    cluster.pass_ms(100)
    assert results == [], "it is waited for again"


def test_a_follower_joins_not_before_it_has_what_was_written_before_its_leader_began(cluster: Cluster) -> None:
    """The leader's high watermark may be older than what the last leader has acknowledged."""
    cluster.brokers[1].produce()
    cluster.settle()
    cluster.isolate(3)
    cluster.fence(3)
    cluster.set(isr=(1, 2))
    cluster.tell()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(11)
    assert [result.error_code for result in results] == [0]
    assert cluster.brokers[2].log().high_watermark == 1, "it has not heard how far the second one is committed"
    cluster.brokers[1].kill()
    cluster.elect(2, isr=(2, 1))
    cluster.fence(3, fenced=False)
    cluster.tell()
    followers = cluster.brokers[2].partition().followers
    assert followers is not None
    epoch = cluster.brokers[3].epoch
    followers.on_fetch(3, epoch, 1, 0)
    assert not followers._in_sync.is_changing
    followers.on_fetch(3, epoch, 2, 0)
    assert followers._in_sync.is_changing


@pytest.mark.parametrize("how", ["fenced", "leaves", "restarted", "log_dir_failed", "unknown"])
def test_a_follower_that_does_not_live_here_and_now_may_not_join(cluster: Cluster, how: str) -> None:
    cluster.settle()
    cluster.set(isr=(1, 2))
    brokers = dict(cluster.image.brokers)
    epoch = brokers[3].epoch
    if how == "fenced":
        brokers[3] = brokers[3]._replace(fenced=True)
    elif how == "leaves":
        brokers[3] = brokers[3]._replace(in_controlled_shutdown=True)
    elif how == "restarted":
        brokers[3] = brokers[3]._replace(epoch=epoch + 1)
    elif how == "log_dir_failed":
        cluster.set(directories=(LOG_DIR, LOG_DIR, LOG_DIR))
        brokers[3] = brokers[3]._replace(log_dirs=(OTHER_LOG_DIR,))
    else:
        del brokers[3]
    cluster._change(brokers=brokers)
    cluster.tell()
    followers = cluster.brokers[1].partition().followers
    assert followers is not None
    followers.on_fetch(3, epoch, 0, 0)
    assert not is_changing(cluster)


def test_a_follower_whose_log_dir_failed_is_not_waited_for(cluster: Cluster) -> None:
    cluster.settle()
    brokers = dict(cluster.image.brokers)
    brokers[3] = brokers[3]._replace(log_dirs=(OTHER_LOG_DIR,))
    cluster._change(brokers=brokers)
    cluster.set(isr=(1, 2), directories=(LOG_DIR, LOG_DIR, LOG_DIR))
    cluster.tell()
    cluster.isolate(3)
    results = cluster.brokers[1].produce()
    cluster.pass_ms(100)  # far less than replica.lag.time.max.ms
    assert [result.error_code for result in results] == [0]


def test_a_follower_on_its_way_in_is_waited_for_until_it_is_fenced(cluster: Cluster) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.set(isr=(1, 2))
    cluster.tell()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(100)
    assert results == [], "it has fetched a moment ago, and may join"
    cluster.fence(3)
    cluster.tell()
    cluster.pass_ms(100)  # far less than replica.lag.time.max.ms
    assert [result.error_code for result in results] == [0]


def test_who_may_have_joined_counts_until_the_controller_has_answered(cluster: Cluster) -> None:
    cluster.settle()
    cluster.set(isr=(1, 2))
    cluster.controller_answers = False
    cluster.tell()
    cluster.settle()
    assert is_changing(cluster)
    cluster.isolate(3)
    assert cluster.brokers[1].produce() == []
    cluster.pass_ms(60_000)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.set(isr=(1, 2))
    cluster.tell()
    assert not is_changing(cluster)
    cluster.pass_ms(60_000)
    assert cluster.brokers[1].log().high_watermark == 1


def test_who_is_to_leave_counts_until_the_controller_has_answered(cluster: Cluster) -> None:
    cluster.settle()
    cluster.controller_answers = False
    cluster.isolate(3)
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(3 * LAG_MS)
    assert is_changing(cluster)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.set(isr=(1, 2))
    cluster.tell()
    assert cluster.brokers[1].log().high_watermark == 1


def test_who_has_left_counts_until_the_image_says_so_which_has_the_minimum_that_it_may_still_lead_by(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.settle()
    cluster.isolate(2)
    cluster.controller_tells = False
    cluster.configure_topic(min_insync_replicas="2")  # so 2 stays eligible to lead when it leaves (KIP-966)
    cluster.brokers[1].produce()
    cluster.pass_ms(3 * LAG_MS)
    assert cluster.state().isr == (1,)
    assert is_changing(cluster)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.tell()
    cluster.pass_ms(3 * LAG_MS)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.heal()
    cluster.controller_tells = True
    cluster.pass_ms(60_000)
    assert cluster.state().isr == (1, 2)
    assert cluster.brokers[1].log().high_watermark == 1


def test_a_higher_minimum_counts_before_the_replicas_that_leave_in_the_same_image(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.settle()
    cluster.isolate(2)
    cluster.controller_answers = False
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(3 * LAG_MS)
    cluster.configure_topic(min_insync_replicas="2")
    cluster.set(isr=(1,), elr=(2,))
    cluster.tell()
    assert cluster.brokers[1].log().high_watermark == 0


def test_the_minimum_in_sync_is_of_those_that_are_certainly_in_sync(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(min_isr=3)
    cluster.settle()
    cluster.set(isr=(1, 2))
    cluster.controller_answers = False
    cluster.tell()
    cluster.settle()
    assert is_changing(cluster), "3 may be in it"
    assert [result.error_code for result in cluster.brokers[1].produce()] == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_a_coordinators_records_need_as_many_in_sync_as_a_clients(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(min_isr=3)
    cluster.settle()
    partition = cluster.brokers[1].partition()
    taken = partition.append_internal(batch(b"v"), lambda _: None)
    assert taken is not None
    assert taken.error_code == 0
    cluster.set(isr=(1, 2))
    cluster.tell()
    refused = partition.append_internal(batch(b"v"), lambda _: None)
    assert refused is not None
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_no_more_replicas_are_asked_for_than_there_are(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2), min_isr=3)
    cluster.settle()
    results = cluster.brokers[1].produce()
    cluster.pass_ms(20)
    assert [result.error_code for result in results] == [0]


@pytest.mark.parametrize("refusal", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_change_that_the_controller_has_not_made_is_taken_back(cluster: Cluster, refusal: int) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.refusal = refusal
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(2 * LAG_MS)
    assert not is_changing(cluster)
    assert cluster.brokers[1].log().high_watermark == 0
    cluster.refusal = 0
    cluster.pass_ms(2 * LAG_MS)
    assert cluster.state().isr == (1, 2)


@pytest.mark.parametrize("refusal", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION])
def test_a_change_of_what_the_controller_knows_otherwise_waits_for_the_image(cluster: Cluster, refusal: int) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.refusal = refusal
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(2 * LAG_MS)
    cluster.refusal = 0
    cluster.pass_ms(2 * LAG_MS)
    assert is_changing(cluster)
    assert cluster.altered == []
    cluster.set(isr=(1, 2, 3))
    cluster.tell()
    cluster.pass_ms(2 * LAG_MS)
    assert cluster.state().isr == (1, 2)


def test_a_change_that_nobody_answers_for_is_asked_for_again(cluster: Cluster) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.refusal = ErrorCode.NETWORK_EXCEPTION
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(4 * LAG_MS)
    assert is_changing(cluster)
    cluster.refusal = 0
    cluster.pass_ms(2_000)
    assert cluster.state().isr == (1, 2)


def test_a_leader_that_is_deposed_asks_for_nothing_any_more(cluster: Cluster) -> None:
    cluster.settle()
    cluster.isolate(3)
    cluster.refusal = ErrorCode.NETWORK_EXCEPTION
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(2 * LAG_MS)
    cluster.elect(2, isr=(2,))
    cluster.tell()
    cluster.heal()
    cluster.refusal = 0
    cluster.pass_ms(4 * LAG_MS)
    assert cluster.altered[-1] == (2, 1, 3) or cluster.altered[-1] == (2, 3, 1)
    assert all(isr[0] == 2 for isr in cluster.altered)


def test_an_image_that_is_older_than_the_answer_changes_nothing(cluster: Cluster) -> None:
    cluster.settle()
    known = cluster.state()
    cluster.isolate(3)
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(2 * LAG_MS)
    partition = cluster.brokers[1].partition()
    partition.on_state(known)
    assert partition.followers is not None
    assert partition.followers._in_sync.committed == (1, 2)


def test_isrs_are_looked_at_only_where_partitions_with_followers_are_led(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(replicas=(1, 2))
    cluster.settle()

    def are_looked_at(broker_id: int) -> bool:
        roles = cluster.brokers[broker_id].replicas._roles
        return roles is not None and roles._isr_check is not None

    assert (are_looked_at(1), are_looked_at(2)) == (True, False)
    cluster.elect(2)
    cluster.tell()
    cluster.pass_ms(2 * LAG_MS)
    assert (are_looked_at(1), are_looked_at(2)) == (False, True)
