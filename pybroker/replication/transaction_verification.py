"""Asking the transaction coordinator before the first batch of a transaction is appended (KIP-890).

Owns: which batches must be asked for, the question, trying again while the former transaction is being ended, and the
answer's way into the partition (``storage.rules.verification_state``).  Owns neither transactions (the coordinator)
nor the rule that an unverified batch is refused (``storage.rules.producer_state``).

Clients of the second transaction protocol (Produce 12, TxnOffsetCommit 5) leave it to the broker to add partitions to
their transactions.  Those of the first have added them, which is verified here.

Kafka counterpart: ReplicaManager.maybeSendPartitionsToTransactionCoordinator, AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pybroker.storage.rules.verification_state import ANY_SEQUENCE, Verification
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.replication.partition import Partition
    from pybroker.replication.replication_ports import TransactionPartitions
    from pybroker.storage.results import PartitionErrors, TopicPartition

# From these versions on a client leaves it to the broker to add its partitions, and knows TRANSACTION_ABORTABLE: no
# field of the messages says so (KIP-890).
_PRODUCE_ADDS_PARTITIONS_SINCE = 12
_PRODUCE_KNOWS_ABORTABLE_SINCE = 11
_OFFSETS_ADD_PARTITIONS_SINCE = 5
_OFFSETS_KNOW_ABORTABLE_SINCE = 4

# What will pass by itself; a client that tries again must find its verification, so that a later batch cannot overtake.
_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)
# What of these Produce answers.
PASSING_PRODUCE_ERRORS = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})


class TransactionOperation(NamedTuple):
    """What the version of the client's request allows: partitions are added for it; it understands
    TRANSACTION_ABORTABLE."""

    adds_partitions: bool
    knows_abortable: bool


class ProducerOfTransaction(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def produce_operation(api_version: int) -> TransactionOperation:
    """Of a Produce request."""
    return TransactionOperation(
        adds_partitions=api_version >= _PRODUCE_ADDS_PARTITIONS_SINCE,
        knows_abortable=api_version >= _PRODUCE_KNOWS_ABORTABLE_SINCE,
    )


def offset_commit_operation(api_version: int) -> TransactionOperation:
    """Of a TxnOffsetCommit request."""
    return TransactionOperation(
        adds_partitions=api_version >= _OFFSETS_ADD_PARTITIONS_SINCE,
        knows_abortable=api_version >= _OFFSETS_KNOW_ABORTABLE_SINCE,
    )


class TransactionVerification:
    """One per broker."""

    def __init__(self, env: Env, config: BrokerConfig, transactions: TransactionPartitions) -> None:
        self._env = env
        self._config = config
        self._transactions = transactions

    def verify(
        self,
        producer: ProducerOfTransaction,
        batches: Sequence[tuple[Partition, int]],
        operation: TransactionOperation,
        done: Callable[[PartitionErrors], None],
        *,
        retries: bool = False,
    ) -> None:
        """Make the partitions ready for the producer's batches, each given with its base sequence.

        ``done(errors)`` runs exactly once, inside the call (always where every transaction is known to be open) or
        later on the loop.  It names the partitions that must not be appended to.  ``retries``: wait a little for a
        former transaction that is not ended everywhere.
        """
        clock = self._env.clock
        backoff_ms = self._config.get_int("add.partitions.to.txn.retry.backoff.ms")
        wait_ms = self._config.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        deadline_ms = clock.monotonic_ms() + wait_ms if retries and operation.adds_partitions else -1

        def answered(errors: PartitionErrors) -> None:
            concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if concurrent and clock.monotonic_ms() < deadline_ms:
                self._env.timers.call_later(backoff_ms, ask)
            else:
                done(errors)

        def ask() -> None:
            self._ask(producer, batches, operation, answered)

        ask()

    def _ask(
        self,
        producer: ProducerOfTransaction,
        batches: Sequence[tuple[Partition, int]],
        operation: TransactionOperation,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        errors: PartitionErrors = {}
        asked: dict[TopicPartition, tuple[Partition, Verification]] = {}
        for partition, sequence in batches:
            key = partition.topic, partition.index
            producers = partition.log.producers
            refused = producers.check_epoch(producer.producer_id, producer.producer_epoch)
            if refused is not None:
                errors[key] = refused.error_code
            elif not producers.has_ongoing_transaction(producer.producer_id, producer.producer_epoch):
                asked[key] = partition, self._begin(producer, partition, sequence, operation)

        def answered(codes: PartitionErrors) -> None:
            for key, (partition, verification) in asked.items():
                code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
                if not code and _has_moved_on(producer, partition, verification):
                    code = ErrorCode.CONCURRENT_TRANSACTIONS
                self._settle(producer, partition, verification, code)
                if code:
                    errors[key] = _known_to(operation, code)
            done(errors)

        if not asked:
            done(errors)
        elif self._is_needed(operation):
            self._transactions.add_partitions_for(*producer, list(asked), not operation.adds_partitions, answered)
        else:
            answered(dict.fromkeys(asked, 0))

    def _is_needed(self, operation: TransactionOperation) -> bool:
        return operation.adds_partitions or self._config.get_bool("transaction.partition.verification.enable")

    def _begin(
        self, producer: ProducerOfTransaction, partition: Partition, sequence: int, operation: TransactionOperation
    ) -> Verification:
        return partition.log.producers.verifications.begin(
            producer.producer_id,
            producer.producer_epoch,
            sequence if self._is_needed(operation) else ANY_SEQUENCE,
            operation.adds_partitions,
            self._env.clock.now_ms(),
        )

    @staticmethod
    def _settle(
        producer: ProducerOfTransaction, partition: Partition, verification: Verification, error_code: int
    ) -> None:
        verifications = partition.log.producers.verifications
        if not error_code:
            verifications.succeed(producer.producer_id, verification, producer.producer_epoch)
        elif error_code not in _RETRIABLE and verifications.of(producer.producer_id) is verification:
            verifications.forget(producer.producer_id)


def _has_moved_on(producer: ProducerOfTransaction, partition: Partition, verification: Verification) -> bool:
    """Whether the marker of a transaction came in after the question: it is not known whether the answer is of the next
    one.  It is, as a rule, where the coordinator is another broker: the question overtook the end of the last one."""
    producers = partition.log.producers
    is_open = producers.has_ongoing_transaction(producer.producer_id, producer.producer_epoch)
    return not is_open and producers.verifications.of(producer.producer_id) is not verification


def _known_to(operation: TransactionOperation, error_code: int) -> int:
    """The coordinator's error, as a client of a partition's leader understands it."""
    if error_code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code == ErrorCode.TRANSACTION_ABORTABLE and not operation.knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error_code


def produce_error(operation: TransactionOperation, error_code: int) -> int:
    """What Produce answers for an error of ``verify``: clients retry NOT_ENOUGH_REPLICAS without fresh metadata."""
    if error_code == ErrorCode.CONCURRENT_TRANSACTIONS and operation.adds_partitions:
        return error_code
    return ErrorCode.NOT_ENOUGH_REPLICAS if error_code in _RETRIABLE else error_code
