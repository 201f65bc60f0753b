"""How the transaction coordinator answers.

Owns: the responses of its requests, made of metadata or of an error code.

Counterpart in Kafka: the ``createResponse`` functions of ``KafkaApis`` and ``TransactionStateManager``'s listing.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.coordinators.transaction.transaction_metadata import (
    BY_TITLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import describe_transactions as describing
from pybroker_protocol.messages import list_transactions as listing
from pybroker_protocol.messages.end_txn import EndTxnResponse
from pybroker_protocol.messages.init_producer_id import InitProducerIdResponse


def initialized(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=producer_epoch
    )


def init_error(error_code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )


def ended(producer_id: int, producer_epoch: int) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=producer_epoch
    )


def end_error(error_code: int) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0, error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )


def described(txn: TransactionMetadata) -> describing.TransactionState:
    return describing.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.title,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_timestamp_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[describing.TopicData(topic=topic, partitions=indexes) for topic, indexes in txn.partitions_by_topic()],
    )


def describe_error(transactional_id: str, error_code: int) -> describing.TransactionState:
    return describing.TransactionState(
        error_code=error_code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def states_of(titles: Iterable[str]) -> tuple[frozenset[TransactionState] | None, list[str]]:
    """The states that a filter names (None: it names nothing and lets all through), and names that are no state's."""
    asked = list(dict.fromkeys(titles))
    states = frozenset(BY_TITLE[title] for title in asked if title in BY_TITLE)
    return (states if asked else None), [title for title in asked if title not in BY_TITLE]


def listed_states(found: list[TransactionMetadata]) -> list[listing.TransactionState]:
    return [
        listing.TransactionState(
            transactional_id=txn.transactional_id, producer_id=txn.producer_id, transaction_state=txn.state.title
        )
        for txn in found
    ]


def listed(states: list[listing.TransactionState], unknown_filters: list[str]) -> listing.ListTransactionsResponse:
    return listing.ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_filters,
        transaction_states=states,
    )


def list_error(error_code: int) -> listing.ListTransactionsResponse:
    return listing.ListTransactionsResponse(
        throttle_time_ms=0, error_code=error_code, unknown_state_filters=[], transaction_states=[]
    )
