"""A follower's fetch at its leader: whose it is, what it moves, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.handlers.context import Parked
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.authorizers import AnyOfType
from tests.replication.cluster import NAME, Cluster
from tests.storage.logs import TOPIC_ID

MakeCluster = Callable[..., Cluster]
LATEST = -1


@pytest.fixture
def quiet(make_cluster: MakeCluster) -> Cluster:
    """A leader with one record whose followers say nothing but what the test has them say."""
    cluster = make_cluster()
    cluster.isolate(1)
    cluster.brokers[1].produce(acks=1)
    return cluster


def request_of(
    replica_id: int, epoch: int, offset: int, *, leader_epoch: int = 0, last_epoch: int = -1, wait_ms: int = 0
) -> FetchRequest:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=0,
        topics=[FetchTopic(topic=NAME, topic_id=TOPIC_ID, partitions=[asked])],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetch(cluster: Cluster, request: FetchRequest, *, version: int = 17, listener: str = "PLAINTEXT") -> Any:
    if version >= 15:
        request.replica_id = -1
    else:
        request.replica_state = ReplicaState()
    return cluster.brokers[1].serve(1, version, codec.encode(request, version), listener)


def answer(response: Any) -> PartitionData:
    assert not isinstance(response, Parked)
    found = response.responses[0].partitions[0]
    assert isinstance(found, PartitionData)
    return found


def epoch_of(cluster: Cluster, broker_id: int) -> int:
    return cluster.image.brokers[broker_id].epoch


def end_offsets(cluster: Cluster) -> list[int]:
    followers = cluster.brokers[1].partition().followers
    assert followers is not None
    return [follower.log_end_offset for follower in followers._by_id.values()]


def test_a_follower_reads_past_the_high_watermark_and_a_consumer_does_not(quiet: Cluster) -> None:
    assert len(answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 0))).records or b"")
    assert not answer(fetch(quiet, request_of(-1, -1, 0))).records


def test_the_high_watermark_that_a_follower_is_told_counts_its_own_fetch(quiet: Cluster) -> None:
    fetch(quiet, request_of(3, epoch_of(quiet, 3), 1))
    quiet.brokers[1].produce(acks=1)
    assert answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 1))).high_watermark == 1


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CLIENTS"])
@pytest.mark.parametrize("version", [11, 12, 14, 15, 17])
@pytest.mark.parametrize("epoch_is_right", [True, False])
def test_a_stranger_moves_nothing_whatever_it_calls_itself(
    quiet: Cluster, listener: str, version: int, epoch_is_right: bool
) -> None:
    epoch = epoch_of(quiet, 2) if epoch_is_right else epoch_of(quiet, 2) - 1
    response = fetch(quiet, request_of(2, epoch, 1), version=version, listener=listener)
    is_follower = listener == "PLAINTEXT" and version >= 15 and epoch_is_right
    assert (end_offsets(quiet)[0] == 1) == is_follower
    if not is_follower:
        is_peer = listener == "PLAINTEXT" and version >= 15
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_peer else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer(response).error_code == refusal
        assert not answer(response).records


def test_a_broker_that_may_not_act_for_the_cluster_moves_nothing(quiet: Cluster) -> None:
    asked: list[tuple[int, int, str]] = []

    class Denying(AnyOfType):
        def allows(
            self, ctx: Any, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True
        ) -> bool:
            asked.append((operation, resource_type, name))
            return False

    quiet.brokers[1].services.authorizer = Denying()
    refused = answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 1)))
    assert (refused.error_code, refused.records) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, b"")
    assert asked == [(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)]
    assert end_offsets(quiet)[0] == -1


def test_a_broker_without_a_replica_moves_nothing(quiet: Cluster) -> None:
    quiet.set(replicas=(1, 2), isr=(1, 2))
    quiet.tell([1])
    assert answer(fetch(quiet, request_of(3, epoch_of(quiet, 3), 1))).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_offsets(quiet) == [-1]


def test_the_leader_is_no_follower_of_its_own(quiet: Cluster) -> None:
    refused = answer(fetch(quiet, request_of(1, epoch_of(quiet, 1), 1)))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("leader_epoch", "error_code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_fetch_for_another_leader_epoch_moves_nothing(quiet: Cluster, leader_epoch: int, error_code: int) -> None:
    quiet.set(leader_epoch=5)
    quiet.tell([1])
    refused = answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 1, leader_epoch=leader_epoch)))
    assert refused.error_code == error_code
    assert (refused.current_leader.leader_id == 1) == (error_code == ErrorCode.FENCED_LEADER_EPOCH)
    assert end_offsets(quiet) == [-1, -1]


def test_an_offset_counts_only_if_what_stands_before_it_is_the_leaders(quiet: Cluster) -> None:
    quiet.set(leader_epoch=5)
    quiet.tell([1])
    quiet.brokers[1].produce(acks=1)  # epoch 0 has offset 0, epoch 5 has offset 1
    for offset, last_epoch, diverging in ((2, 0, (0, 1)), (2, 3, (0, 1)), (5, 5, (5, 2))):
        told = answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), offset, leader_epoch=5, last_epoch=last_epoch)))
        assert told.error_code == 0
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == diverging
        assert not told.records
        assert end_offsets(quiet) == [-1, -1]
    told = answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 2, leader_epoch=5, last_epoch=5)))
    assert told.diverging_epoch.end_offset == -1
    assert end_offsets(quiet) == [2, -1]


def test_an_offset_past_the_leaders_end_is_out_of_range_and_does_not_count(quiet: Cluster) -> None:
    refused = answer(fetch(quiet, request_of(2, epoch_of(quiet, 2), 2)))
    assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert end_offsets(quiet) == [-1, -1]


def test_a_consumer_is_told_where_its_leader_diverges(quiet: Cluster) -> None:
    told = answer(fetch(quiet, request_of(-1, -1, 5, last_epoch=0)))
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 1)


def test_a_fetch_that_waits_ends_with_the_log_and_not_with_the_high_watermark(quiet: Cluster) -> None:
    waiting = fetch(quiet, request_of(2, epoch_of(quiet, 2), 1, wait_ms=5_000))
    fetch(quiet, request_of(3, epoch_of(quiet, 3), 1))
    quiet.pass_ms(10)
    assert quiet.brokers[1].log().high_watermark == 1
    assert not waiting.completed
    quiet.brokers[1].produce(acks=1)
    quiet.pass_ms(10)
    assert waiting.completed
    assert len(answer(waiting.response).records or b"")


def test_a_consumer_that_waits_is_not_woken_by_what_is_not_committed(quiet: Cluster) -> None:
    waiting = fetch(quiet, request_of(-1, -1, 1, wait_ms=5_000))
    fetch(quiet, request_of(2, epoch_of(quiet, 2), 1, wait_ms=5_000))
    fetch(quiet, request_of(3, epoch_of(quiet, 3), 1, wait_ms=5_000))
    quiet.brokers[1].produce(acks=1)
    quiet.pass_ms(10)
    assert not waiting.completed
    for follower in (2, 3):
        fetch(quiet, request_of(follower, epoch_of(quiet, follower), 2))
    quiet.pass_ms(10)
    assert len(answer(waiting.response).records or b"")


def test_a_fetch_that_waits_is_answered_when_its_leader_is_deposed(quiet: Cluster) -> None:
    waiting = fetch(quiet, request_of(2, epoch_of(quiet, 2), 1, wait_ms=5_000))
    quiet.elect(2)
    quiet.tell([1])
    quiet.pass_ms(1)
    assert answer(waiting.response).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert not quiet.brokers[1].replicas.follower_watches._by_broker[2].waiting


def test_an_empty_fetch_ends_those_of_its_broker_that_wait_and_no_other(quiet: Cluster) -> None:
    second = fetch(quiet, request_of(2, epoch_of(quiet, 2), 1, wait_ms=5_000))
    third = fetch(quiet, request_of(3, epoch_of(quiet, 3), 1, wait_ms=5_000))
    nothing = request_of(2, epoch_of(quiet, 2), 1)
    nothing.topics = []
    response = fetch(quiet, nothing)
    assert response.responses == []
    assert (second.completed, third.completed) == (True, False)
    assert answer(second.response).error_code == 0


def latest(cluster: Cluster, replica_id: int, version: int = 7, listener: str = "PLAINTEXT") -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=replica_id, isolation_level=0, topics=[ListOffsetsTopic(name=NAME, partitions=[asked])]
    )
    response = cluster.brokers[1].serve(2, version, codec.encode(request, version), listener)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


def test_the_latest_offset_is_the_logs_end_for_a_follower_alone(quiet: Cluster) -> None:
    assert latest(quiet, 2) == (0, 1)
    assert latest(quiet, -1) == (0, 0)
    assert latest(quiet, 2, listener="CLIENTS") == (0, 0)


@pytest.mark.parametrize(
    ("version", "error_code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_the_latest_offset_is_not_known_before_a_new_leader_has_committed_what_it_found(
    quiet: Cluster, version: int, error_code: int
) -> None:
    quiet.set(leader_epoch=1)
    quiet.tell([1])
    assert latest(quiet, -1, version) == (error_code, -1)
    for follower in (2, 3):
        fetch(quiet, request_of(follower, epoch_of(quiet, follower), 1, leader_epoch=1))
    assert latest(quiet, -1, version) == (0, 1)
