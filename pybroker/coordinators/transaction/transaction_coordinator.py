"""The transaction coordinator of a broker, as its handlers, the partition leaders and the composition root see it.

Owns: checks that need no id's state, turning requests into operations on shards, fetching producer ids for those that
need one, and seeing ends through.  Owns no transaction: ``TransactionCoordinatorShard`` does.

Every method that takes ``done`` calls it exactly once, inside the call or later on the loop.  Requests and responses
are the message classes of ``pybroker_protocol``; a handler has already refused partitions that do not exist.

Counterpart in Kafka: ``TransactionCoordinator``, and what ``KafkaApis`` and ``AddPartitionsToTxnManager`` add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker.cluster.image.coordinator_table import TRANSACTIONS
from pybroker.cluster.image.supported_features import TRANSACTION_VERSION
from pybroker.coordinators.gather import Gather
from pybroker.coordinators.partitioning import partitioner
from pybroker.coordinators.result import Result, Waiter
from pybroker.coordinators.runtime import CoordinatorRuntime
from pybroker.coordinators.transaction import transaction_responses as responses
from pybroker.coordinators.transaction.decisions import Missing
from pybroker.coordinators.transaction.effects import OpenTransaction
from pybroker.coordinators.transaction.marker_sender import MarkerSender
from pybroker.coordinators.transaction.transaction_coordinator_shard import TransactionCoordinatorShard
from pybroker.coordinators.transaction.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TRANSACTION_VERSION,
    TransactionMetadata,
)
from pybroker.coordinators.transaction.transaction_settings import TransactionSettings
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.coordinators.coordinator_ports import PartitionReader, PartitionWriter
    from pybroker.coordinators.transaction.transaction_ports import MarkerWriter, ProducerIdSource
    from pybroker.env import Env
    from pybroker.storage.results import PartitionErrors, TopicPartition
    from pybroker_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from pybroker_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
    from pybroker_protocol.messages.end_txn import EndTxnRequest
    from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
    from pybroker_protocol.messages.list_transactions import ListTransactionsRequest, TransactionState

Done = Callable[[Any], None]
# operation(shard, now_ms, new_producer_id): asks for Missing.PRODUCER_ID by its response.
IdOperation = Callable[[TransactionCoordinatorShard, int, int | None], Result]

# The versions from which each request's answers may say PRODUCER_FENCED; before it is INVALID_PRODUCER_EPOCH.
INIT_PRODUCER_ID_FENCES = 4
ADD_PARTITIONS_FENCES = 2
END_TXN_FENCES = 2
# The versions that only clients (or brokers) of transaction version 2 send.
ADD_PARTITIONS_V2 = 4
END_TXN_V2 = 5
# From this version on clients know TRANSACTION_ABORTABLE (KIP-890).
END_TXN_ABORTABLE = 4


def known_error(error_code: int, api_version: int, fencing_version: int) -> int:
    """The code as clients of that version know it."""
    if error_code == ErrorCode.PRODUCER_FENCED and api_version < fencing_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


class TransactionCoordinator:
    """One per broker; wired by ``server.py``."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: MetadataCache,
        writer: PartitionWriter,
        reader: PartitionReader,
        producer_ids: ProducerIdSource,
        markers: MarkerWriter,
    ) -> None:
        settings = TransactionSettings.of(config)
        self._env = env
        self._settings = settings
        self._metadata = metadata
        self.partition_of = partitioner(TRANSACTIONS, config, metadata)
        self._producer_ids = producer_ids
        self._led: set[int] = set()
        self._runtime: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
            env,
            TRANSACTIONS.topic,
            writer,
            reader,
            lambda partition: TransactionCoordinatorShard(partition, settings, self),
            settings.write_timeout_ms,
        )
        self._sender = MarkerSender(env, markers, self, self._complete)

    # --- what the broker tells it ------------------------------------------------------------------------------------

    def on_leadership(self, gained: set[int], lost: set[int]) -> None:
        """Partitions of ``__transaction_state`` that this broker leads from now on, or does not lead any more."""
        self._led = (self._led - lost) | gained  # who is in both has a new leader epoch
        self._runtime.on_leadership(gained, lost)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a led partition of ``__transaction_state`` advanced."""
        self._runtime.on_high_watermark(partition, high_watermark)

    def close(self) -> None:
        """Answer everybody who waits and cancel all timers."""
        self._sender.close()
        self._led.clear()
        self._runtime.close()

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature transaction.version."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, NO_TRANSACTION_VERSION)

    # --- InitProducerId ----------------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerIdRequest, api_version: int, done: Done) -> None:
        """InitProducerId with a transactional id."""

        def answer(outcome: TransactionMetadata | int) -> None:
            if isinstance(outcome, TransactionMetadata):
                done(responses.initialized(outcome.producer_id, outcome.producer_epoch))
            else:
                done(responses.init_error(known_error(outcome, api_version, INIT_PRODUCER_ID_FENCES)))

        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        if not transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
            return
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return
        expected = None
        if request.producer_id != NO_PRODUCER_ID and request.producer_epoch != NO_EPOCH:
            expected = (request.producer_id, request.producer_epoch)

        def operation(shard: TransactionCoordinatorShard, now_ms: int, new_id: int | None) -> Result:
            version, first_id = self.transaction_version, self._producer_ids.first
            return shard.init_producer_id(transactional_id, timeout_ms, expected, new_id, version, now_ms, first_id)

        self._submit_with_id(self.partition_of(transactional_id), operation, answer)

    # --- partitions --------------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transaction: AddPartitionsToTxnTransaction,
        api_version: int,
        done: Callable[[int | PartitionErrors], None],
    ) -> None:
        """AddPartitionsToTxn of one transactional id, all of whose partitions exist.

        ``done`` gets an error code for all of them or, where they are only to be verified, one for each.
        """
        partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
        opened = OpenTransaction(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)

        def added(error_code: int) -> None:
            done(known_error(error_code, api_version, ADD_PARTITIONS_FENCES))

        if transaction.verify_only:
            self._verify(opened, partitions, done)
        else:
            client_version = EPOCH_BUMP_VERSION if api_version >= ADD_PARTITIONS_V2 else NO_TRANSACTION_VERSION
            self._add(opened, partitions, client_version, added)

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, offsets_partition: TopicPartition, api_version: int, done: Done
    ) -> None:
        """AddOffsetsToTxn: ``done`` gets an error code."""
        opened = OpenTransaction(request.transactional_id, request.producer_id, request.producer_epoch)

        def added(error_code: int) -> None:
            done(known_error(error_code, api_version, ADD_PARTITIONS_FENCES))

        self._add(opened, [offsets_partition], NO_TRANSACTION_VERSION, added)

    def add_partitions_for(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """What the leader of a partition asks for a producer that writes there (see ``TransactionPartitions``)."""
        opened = OpenTransaction(transactional_id, producer_id, producer_epoch)
        if verify_only:
            self._verify(opened, partitions, done)
        else:
            self._add(
                opened, partitions, EPOCH_BUMP_VERSION, lambda error_code: done(dict.fromkeys(partitions, error_code))
            )

    def _add(
        self,
        opened: OpenTransaction,
        partitions: Sequence[TopicPartition],
        client_version: int,
        done: Callable[[int], None],
    ) -> None:
        """``done`` gets an error code."""
        if not opened.transactional_id:
            done(ErrorCode.INVALID_REQUEST)
            return
        waiter = Waiter(lambda outcome: done(_error_of(outcome)), int)
        version = self.transaction_version

        def operation(shard: TransactionCoordinatorShard, now_ms: int) -> Result:
            return shard.add_partitions(opened, partitions, client_version, version, now_ms)

        self._runtime.submit(self.partition_of(opened.transactional_id), operation, waiter)

    def _verify(
        self,
        opened: OpenTransaction,
        partitions: Sequence[TopicPartition],
        done: Callable[[PartitionErrors], None],
    ) -> None:
        if not opened.transactional_id:
            done(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
            return
        waiter = Waiter(done, partial(dict.fromkeys, partitions))
        self._runtime.submit(
            self.partition_of(opened.transactional_id),
            lambda shard, _now_ms: shard.verify_partitions(opened, partitions),
            waiter,
        )

    # --- EndTxn ------------------------------------------------------------------------------------------------------

    def end_txn(self, request: EndTxnRequest, api_version: int, done: Done) -> None:
        """EndTxn: answered as soon as the end is decided for good; the markers follow.

        A transaction that wrote to a topic which is mirrored by now (adopted by a cluster link) can only be aborted: it
        would get no marker there.
        """

        def answer(outcome: TransactionMetadata | int) -> None:
            if isinstance(outcome, TransactionMetadata):
                done(responses.ended(outcome.producer_id, outcome.producer_epoch))
            else:
                done(responses.end_error(known_error(outcome, api_version, END_TXN_FENCES)))

        if not request.transactional_id:
            answer(ErrorCode.INVALID_REQUEST)
            return
        opened = OpenTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
        client_version = EPOCH_BUMP_VERSION if api_version >= END_TXN_V2 else NO_TRANSACTION_VERSION

        def operation(shard: TransactionCoordinatorShard, now_ms: int, new_id: int | None) -> Result:
            written = shard.partitions_of(opened) if request.committed else ()
            if any(self.is_mirrored(topic) for topic, _ in written):
                knows_it = api_version >= END_TXN_ABORTABLE
                return Result(ErrorCode.TRANSACTION_ABORTABLE if knows_it else ErrorCode.INVALID_TXN_STATE)
            return shard.end(opened, request.committed, client_version, new_id, self.transaction_version, now_ms)

        self._submit_with_id(self.partition_of(request.transactional_id), operation, answer)

    # --- what shards want done (``Effects``) -------------------------------------------------------------------------

    def write_markers(self, partition: int, txn: TransactionMetadata) -> None:
        """See ``Effects.write_markers``."""
        self._sender.send(partition, txn)

    def write_markers_later(self, partition: int, txn: TransactionMetadata) -> None:
        """See ``Effects.write_markers_later``."""
        waiter = Waiter(lambda _outcome: None, int)
        self._sender.later(
            lambda: self._runtime.submit(partition, lambda shard, _now_ms: shard.resume(txn), waiter),
        )

    def abort(self, partition: int, transaction: OpenTransaction) -> None:
        """See ``Effects.abort``.  What fails is tried again when the shard looks for time-outs next."""

        def operation(shard: TransactionCoordinatorShard, now_ms: int, new_id: int | None) -> Result:
            return shard.abort(transaction, new_id, self.transaction_version, now_ms)

        self._submit_with_id(partition, operation, lambda _outcome: None)

    def _complete(self, partition: int, txn: TransactionMetadata) -> None:
        """All markers of ``txn`` are written."""

        def completed(error_code: int) -> None:
            # A disk without space is answered with NOT_COORDINATOR, too; it heals while the partition is led here.
            if error_code and partition in self._led:
                self._sender.later(lambda: self._complete(partition, txn))

        version = self.transaction_version
        self._runtime.submit(
            partition, lambda shard, now_ms: shard.complete(txn, version, now_ms), Waiter(completed, int)
        )

    # --- what the sender asks (``marker_sender.Cluster``) ------------------------------------------------------------

    def coordinator_epoch(self, partition: int) -> int | None:
        """See ``Cluster.coordinator_epoch``."""
        state = self._metadata.partition(TRANSACTIONS.topic, partition) if partition in self._led else None
        return None if state is None else state.leader_epoch

    def exists(self, partition: TopicPartition) -> bool:
        """See ``Cluster.exists``."""
        return self._metadata.partition(*partition) is not None

    def is_mirrored(self, topic: str) -> bool:
        """See ``Cluster.is_mirrored``."""
        mirror = self._metadata.image.mirrors.get(topic)
        return mirror is not None and not mirror.is_writable

    # --- asking ------------------------------------------------------------------------------------------------------

    def describe(self, transactional_ids: Sequence[str], done: Done) -> None:
        """DescribeTransactions: ``done`` gets a list of TransactionState in the order asked."""
        gather = Gather(len(transactional_ids), done)
        for position, transactional_id in enumerate(transactional_ids):
            error = partial(responses.describe_error, transactional_id)
            if not transactional_id:
                gather.slot(position)(error(ErrorCode.INVALID_REQUEST))
                continue
            waiter = Waiter(gather.slot(position), error)
            self._runtime.submit(self.partition_of(transactional_id), partial(_describe, transactional_id), waiter)

    def list_transactions(self, request: ListTransactionsRequest, done: Done) -> None:
        """ListTransactions: those of all partitions that this broker leads; fails while one of them is loading.

        Of the filters all but the expression for the id, which may be costly: that is for callers with steps.
        """
        states, unknown = responses.states_of(request.state_filters)
        producer_ids = frozenset(request.producer_id_filters)

        def operation(shard: TransactionCoordinatorShard, now_ms: int) -> Result:
            found = shard.list_transactions(states, producer_ids, request.duration_filter, now_ms)
            return Result(responses.listed_states(found))

        def listed(found: list[TransactionState] | int) -> None:
            done(responses.list_error(found) if isinstance(found, int) else responses.listed(found, unknown))

        self._runtime.list_all(operation, listed)

    # --- asking shards -----------------------------------------------------------------------------------------------

    def _submit_with_id(
        self, partition: int, operation: IdOperation, done: Callable[[TransactionMetadata | int], None]
    ) -> None:
        """Run ``operation``, and once more with a new producer id if it asks for one."""

        def first(outcome: TransactionMetadata | int | Missing) -> None:
            if isinstance(outcome, Missing):
                self._producer_ids.next(allocated)
            else:
                done(outcome)

        def allocated(producer_id: int | None) -> None:
            if producer_id is None:
                done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                run(producer_id, done)

        def run(new_id: int | None, then: Callable[[Any], None]) -> None:
            waiter = Waiter(then, int)
            self._runtime.submit(partition, lambda shard, now_ms: operation(shard, now_ms, new_id), waiter)

        run(None, first)


def _error_of(outcome: TransactionMetadata | int) -> int:
    return ErrorCode.NONE if isinstance(outcome, TransactionMetadata) else outcome


def _describe(transactional_id: str, shard: TransactionCoordinatorShard, _now_ms: int) -> Result:
    txn = shard.transactions.get(transactional_id)
    if txn is None:
        return Result(responses.describe_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    return Result(responses.described(txn))
