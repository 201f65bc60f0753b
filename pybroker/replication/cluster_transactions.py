"""Asking the transaction coordinator of a producer, on whichever broker that is (KIP-890).

Owns: where the coordinator is, and the request to it (AddPartitionsToTxn, the brokers' versions).  Owns neither the
question (``transaction_verification``) nor the answer (the coordinator).

Invariant: each question is answered once; where no answer came it is COORDINATOR_NOT_AVAILABLE or NETWORK_EXCEPTION,
which clients try again.

Kafka counterpart: AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.cluster.image.coordinator_table import TRANSACTIONS as TRANSACTION_COORDINATOR
from pybroker.cluster.membership.peers import TRANSACTIONS
from pybroker.replication.gathered_requests import GatheredRequests
from pybroker.storage.results import indexes_by_topic
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.membership.peers import Peers
    from pybroker.replication.replication_ports import TransactionPartitions
    from pybroker.storage.results import PartitionErrors, TopicPartition

_VERSION: Final = 5
_TIMEOUT_MS: Final = 30_000


class ClusterTransactions:
    """``TransactionPartitions`` where there are other brokers.

    ``partition_of`` gives a transactional id's partition of the coordinator's topic; ``here()`` the coordinator of this
    broker, which is built by the first question to it.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        broker_id: int,
        partition_of: Callable[[str], int],
        here: Callable[[], TransactionPartitions],
        peers: Peers,
    ) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._partition_of = partition_of
        self._here = here
        self._requests = GatheredRequests(peers, TRANSACTIONS, _request, _by_transactional_id, _VERSION, _TIMEOUT_MS)

    def add_partitions_for(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """See ``TransactionPartitions``."""
        leader = self._metadata.leader(TRANSACTION_COORDINATOR.topic, self._partition_of(transactional_id))
        if leader is None or leader == NO_LEADER:
            done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._broker_id:
            self._here().add_partitions_for(
                transactional_id, producer_id, producer_epoch, partitions, verify_only, done
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in indexes_by_topic(partitions).items()
                ],
            )
            self._send(leader, transaction, partitions, done)

    def _send(
        self,
        leader: int,
        transaction: AddPartitionsToTxnTransaction,
        partitions: list[TopicPartition],
        done: Callable[[PartitionErrors], None],
    ) -> None:
        def replied(response: Any | None, topics: Any | None) -> None:
            reported: PartitionErrors = {
                (topic.name, result.partition_index): result.partition_error_code
                for topic in topics or ()
                for result in topic.results_by_partition
            }
            missing = (0 if response is None else response.error_code) or ErrorCode.NETWORK_EXCEPTION
            done({key: reported.get(key, missing) for key in partitions})

        self._requests.ask(leader, transaction.transactional_id, transaction, len(partitions), replied)


def _request(transactions: list[AddPartitionsToTxnTransaction]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=transactions)


def _by_transactional_id(response: AddPartitionsToTxnResponse) -> dict[Hashable, Any]:
    return {result.transactional_id: result.topic_results for result in response.results_by_transaction}
