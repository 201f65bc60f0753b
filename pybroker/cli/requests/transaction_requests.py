"""What brokers say of transactions and producers, and the two requests that end a transaction from outside.

Owns: which broker each request of KIP-664 goes to, and the plain values made of the answers.  An answer of one id or
one partition that failed is an error code in its place: what becomes of it is the command's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.requests.partition_leaders import NO_LEADER, Partition
from pybroker.cli.requests.wire_requests import CoordinatorType, brokers, find_coordinators, raise_passing
from pybroker.cli.terminal.error_names import refused
from pybroker_protocol.errors import ErrorCode

# As Kafka's own tool does, a broker is asked for so many partitions at a time.
PARTITIONS_PER_REQUEST = 500

# Says "none" in the answers: no transaction, no open offset, no coordinator yet.
NONE = -1


class Listing(NamedTuple):
    """A transactional id as ListTransactions tells it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it; ``start_time_ms`` is ``None`` outside of a transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[Partition]


class Producer(NamedTuple):
    """A producer that a partition remembers; ``txn_start_offset`` is ``None`` without an open transaction there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    txn_start_offset: int | None


def list_transactions(
    client: AdminClient,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> tuple[list[Listing], set[str]]:
    """The transactional ids of all brokers, and those of ``states`` that a broker does not know."""
    from pybroker_protocol.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=NONE if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=pattern,
    )
    # A filter that the broker does not know would be left out in silence.
    min_version = 0 if longer_than_ms is None else ListTransactionsRequest.since("duration_filter")
    if pattern is not None:
        min_version = ListTransactionsRequest.since("transactional_id_pattern")
    found: list[Listing] = []
    unknown: set[str] = set()
    for node_id in brokers(client):
        response = client.ask(request, node_id, min_version=min_version)
        raise_passing([response.error_code])
        if response.error_code:
            raise refused(f"transactions of broker {node_id}", response.error_code)
        unknown.update(response.unknown_state_filters)
        found += [
            Listing(state.transactional_id, node_id, state.producer_id, state.transaction_state)
            for state in response.transaction_states
        ]
    return sorted(found), unknown


def describe_transactions(client: AdminClient, transactional_ids: Iterable[str]) -> dict[str, Transaction | int]:
    """Each id's transaction, or the error code that its coordinator answered with."""
    from pybroker_protocol.messages.describe_transactions import DescribeTransactionsRequest

    found: dict[str, Transaction | int] = {}
    wanted = sorted(set(transactional_ids))
    if not wanted:
        return found
    for node_id, ids in find_coordinators(client, wanted, CoordinatorType.TRANSACTION).items():
        states = client.ask(DescribeTransactionsRequest(transactional_ids=ids), node_id).transaction_states
        raise_passing(state.error_code for state in states)
        for state in states:
            found[state.transactional_id] = state.error_code or Transaction(
                state.transactional_id,
                node_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
                sorted(Partition(topic.topic, index) for topic in state.topics for index in topic.partitions),
            )
    return found


def describe_producers(client: AdminClient, leaders: Mapping[Partition, int]) -> dict[Partition, list[Producer] | int]:
    """The producers that the leader of each partition remembers, or the error code in their place."""
    found: dict[Partition, list[Producer] | int] = {}
    by_leader: dict[int, list[Partition]] = {}
    for partition, leader in sorted(leaders.items()):
        by_leader.setdefault(leader, []).append(partition)
    for partition in by_leader.pop(NO_LEADER, []):
        found[partition] = ErrorCode.LEADER_NOT_AVAILABLE
    for leader, partitions in by_leader.items():
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            found |= _describe_producers(client, leader, partitions[start : start + PARTITIONS_PER_REQUEST])
    return found


def _describe_producers(
    client: AdminClient, leader: int, partitions: list[Partition]
) -> dict[Partition, list[Producer] | int]:
    from pybroker_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

    indexes: dict[str, list[int]] = {}
    for partition in partitions:
        indexes.setdefault(partition.topic, []).append(partition.number)
    topics = [TopicRequest(name=name, partition_indexes=wanted) for name, wanted in indexes.items()]
    answers = {
        Partition(topic.name, answer.partition_index): answer
        for topic in client.ask(DescribeProducersRequest(topics=topics), leader).topics
        for answer in topic.partitions
    }
    raise_passing(answer.error_code for answer in answers.values())
    return {
        partition: answer.error_code or [_producer(state) for state in answer.active_producers]
        for partition, answer in answers.items()
    }


def _producer(state: Any) -> Producer:
    return Producer(
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )


def write_abort_marker(
    client: AdminClient,
    leader: int,
    partition: Partition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> int:
    """End a producer's open transaction in one partition as aborted; the partition's error code.

    A producer whose first transaction hangs knows of no coordinator: 0 is no later than any real coordinator epoch.
    """
    from pybroker_protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.number])],
        coordinator_epoch=max(0, coordinator_epoch),
    )
    response = client.ask(WriteTxnMarkersRequest(markers=[marker]), leader)
    code = int(response.markers[0].topics[0].partitions[0].error_code)
    raise_passing([code])
    return code


def fence_producer(client: AdminClient, transaction: Transaction) -> tuple[int, int]:
    """Abort what the id has open and fence its producer by taking the next epoch; the new producer id and epoch.

    The id keeps its own time-out, which the next producer would otherwise find changed.
    """
    from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id, transaction_timeout_ms=transaction.timeout_ms
    )
    [node_id] = find_coordinators(client, [transaction.transactional_id], CoordinatorType.TRANSACTION)
    response = client.ask(request, node_id)
    raise_passing([response.error_code])
    if response.error_code:
        raise refused(f"transaction {transaction.transactional_id}", response.error_code)
    return response.producer_id, response.producer_epoch
