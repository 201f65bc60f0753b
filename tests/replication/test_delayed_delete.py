"""When a DeleteRecords is answered: it waits for the replicas that live."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.handlers.context import Parked
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.replication.cluster import NAME, Cluster

TIMEOUT_MS = 5_000


@pytest.fixture
def filled(cluster: Cluster) -> Cluster:
    """Three replicas with four records."""
    for _ in range(4):
        cluster.brokers[1].produce()
    cluster.settle()
    return cluster


def delete(cluster: Cluster, offset: int) -> Any:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=NAME, partitions=[asked])], timeout_ms=TIMEOUT_MS)
    return cluster.brokers[1].serve(21, 2, codec.encode(request, 2))


def told(answer: Any) -> tuple[int, int]:
    """(error code, low watermark)."""
    response = answer.response if isinstance(answer, Parked) else answer
    assert isinstance(response, DeleteRecordsResponse)
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_it_is_answered_when_every_replica_has_forgotten_the_records(filled: Cluster) -> None:
    answer = delete(filled, 3)
    assert not answer.completed
    filled.settle()
    assert told(answer) == (0, 3)
    assert {broker.log().log_start_offset for broker in filled.brokers.values()} == {3}
    assert not filled.brokers[1].partition().waiting


def test_it_is_answered_at_once_where_all_have_done_so(filled: Cluster) -> None:
    delete(filled, 3)
    filled.settle()
    assert told(delete(filled, 2)) == (0, 3)


def test_a_replica_that_does_not_answer_ends_it_with_the_time_and_what_is_done_stays_so(filled: Cluster) -> None:
    filled.isolate(3)
    answer = delete(filled, 3)
    filled.pass_ms(TIMEOUT_MS - 100)
    assert not answer.completed
    filled.pass_ms(200)
    assert told(answer) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert filled.brokers[1].log().log_start_offset == 3


def test_a_replica_whose_broker_is_fenced_is_not_waited_for(filled: Cluster) -> None:
    filled.isolate(3)
    filled.fence(3)
    filled.tell()
    answer = delete(filled, 3)
    filled.settle()
    assert told(answer) == (0, 3)


def test_a_replica_whose_broker_is_fenced_meanwhile_is_waited_for_no_longer(filled: Cluster) -> None:
    filled.isolate(3)
    answer = delete(filled, 3)
    filled.settle()
    assert not answer.completed
    filled.fence(3)
    filled.tell()
    filled.settle()
    assert told(answer) == (0, 3)


def test_a_leader_that_is_deposed_answers_at_once(filled: Cluster) -> None:
    answer = delete(filled, 3)
    filled.elect(2)
    filled.tell()
    assert told(answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
