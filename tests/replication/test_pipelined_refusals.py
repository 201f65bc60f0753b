"""What a producer has pipelined behind a refused batch is refused with the same error, also by a leader that is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pybroker_protocol.errors import ErrorCode
from tests.replication.cluster import NAME, Broker, Cluster
from tests.storage.batches import batch

MakeCluster = Callable[..., Cluster]


def produce(broker: Broker, sequence: int, acks: int = -1) -> list[int]:
    """The error codes of a batch of producer 1; none while it waits."""
    results = broker.produce(acks, producer_id=1, producer_epoch=0, sequence=sequence)
    return [int(result.error_code) for result in results]


def encoded(sequence: int) -> memoryview:
    fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "sequence": sequence}
    return memoryview(batch([b"v"], **fields))


def test_too_few_in_sync_is_what_the_next_batches_are_told_when_enough_are_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(min_isr=2)
    cluster.settle()
    leader = cluster.brokers[1]
    assert produce(leader, 0) in ([], [0])
    cluster.settle()
    cluster.set(isr=(1,))
    cluster.tell([1])
    assert produce(leader, 1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    cluster.settle()  # the followers join again
    assert len(cluster.state().isr) > 1
    assert produce(leader, 2) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert leader.partition().append_run([encoded(2)], -1, 13) == [], "a fast path asks the same rule"
    assert [produce(leader, sequence, acks=1) for sequence in (1, 2, 3)] == [[0]] * 3


def test_a_batch_that_came_before_its_leader_knew_that_it_leads_is_waited_for(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(min_isr=1)
    cluster.settle()
    assert produce(cluster.brokers[1], 0, acks=1) == [0]
    cluster.settle()
    follower = cluster.brokers[2]
    follower.replicas.note_refusal(NAME, 0, encoded(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.elect(2)
    cluster.tell()
    assert produce(follower, 2, acks=1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [produce(follower, sequence, acks=1) for sequence in (1, 2, 4)] == [
        [0],
        [0],
        [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
    ]
