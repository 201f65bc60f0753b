"""The handlers of transactions over the wire: what they decide before the coordinator is asked."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.wire_client import WireClient

_numbers = itertools.count()


@pytest.fixture
def transactional_id(wire: WireClient) -> str:
    """An id whose coordinator serves."""
    name = f"handled-{next(_numbers)}"
    assert wire.ask(FindCoordinatorRequest(key=name, key_type=1), 3).error_code == 0
    return name


def begin(wire: WireClient, transactional_id: str, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)
    answer: InitProducerIdResponse = wire.ask(request, 5)
    return answer


def add(wire: WireClient, transactional_id: str, topics: dict[str, list[int]]) -> dict[str, list[int]]:
    """Error codes by topic, in the order of the partitions."""
    producer = begin(wire, transactional_id)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
        ],
    )
    results = wire.ask(request, 3).results_by_topic_v3_and_below
    return {topic.name: [result.partition_error_code for result in topic.results_by_partition] for topic in results}


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_a_producer_id_comes_with_its_epoch(
    wire: WireClient, transactional_id: str, producer_id: int, epoch: int
) -> None:
    answer = begin(wire, transactional_id, producer_id=producer_id, producer_epoch=epoch)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_does_not_exist_keeps_the_others_out(
    wire: WireClient, transactional_id: str, pybroker_topic: str
) -> None:
    codes = add(wire, transactional_id, {pybroker_topic: [0, 99], "no-such-topic": [0]})
    unknown, untried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert codes == {pybroker_topic: [untried, unknown], "no-such-topic": [unknown]}


@pytest.mark.parametrize("internal", ["__transaction_state", "__consumer_offsets"])
def test_a_client_may_not_add_internal_topics(
    wire: WireClient, transactional_id: str, pybroker_topic: str, internal: str
) -> None:
    codes = add(wire, transactional_id, {internal: [0], pybroker_topic: [0]})
    assert codes == {
        internal: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        pybroker_topic: [ErrorCode.OPERATION_NOT_ATTEMPTED],
    }


def test_the_coordinators_of_ids_are_found_in_every_version(pybroker: Broker, wire: WireClient) -> None:
    for version in range(1, 4):
        found = wire.ask(FindCoordinatorRequest(key="x", key_type=1), version)
        assert (found.error_code, found.host, found.port) == (0, pybroker.host, pybroker.port)
    for version in range(4, 7):
        answer = wire.ask(FindCoordinatorRequest(coordinator_keys=["x", "y"], key_type=1), version)
        assert [(found.key, found.error_code, found.port) for found in answer.coordinators] == [
            ("x", 0, pybroker.port),
            ("y", 0, pybroker.port),
        ]
