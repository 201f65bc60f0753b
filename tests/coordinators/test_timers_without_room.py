"""What a timer of a coordinator could not write is written when there is room again."""

from __future__ import annotations

from pybroker.coordinators.coordinator_context import TIMER_RETRY_MS
from pybroker_protocol.errors import ErrorCode
from tests.coordinators.consumer_support import LEAVE, SESSION_MS, ConsumerCluster, Member, settle


def test_a_dead_member_whose_end_could_not_be_written_is_fenced_later() -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(t=2)
    assert cluster.enter("m", "t").error == 0
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.world.advance(SESSION_MS + 3 * TIMER_RETRY_MS)
    assert set(cluster.group().members) == {"m"}
    cluster.world.partitions.append_error = 0
    cluster.world.advance(TIMER_RETRY_MS)
    assert not cluster.group().members


def test_a_member_whose_leaving_could_not_be_written_is_fenced_when_its_session_ends() -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(t=2)
    assert cluster.enter("m", "t").error == 0
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.beat("m", LEAVE).error
    cluster.world.partitions.append_error = 0
    assert set(cluster.group().members) == {"m"}
    cluster.world.advance(SESSION_MS + 1)
    assert not cluster.group().members


def test_a_member_that_gave_up_partitions_without_room_for_it_is_waited_for_no_longer_than_before() -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(t=2)
    first, second = Member(cluster, "a", "t", rebalance_ms=5_000), Member(cluster, "b", "t", rebalance_ms=5_000)
    settle(cluster, first)
    second.beat()
    cluster.world.advance(1_000)
    second.beat()
    first.beat()
    assert cluster.group().members["a"].pending_revocation
    cluster.world.partitions.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    first.beat()  # says that it gave them up
    cluster.world.partitions.append_error = 0
    cluster.world.advance(5_000)
    assert set(cluster.group().members) == {"b"}
