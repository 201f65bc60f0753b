"""One partition's worth of the transaction coordinator: its transactional ids.

Owns: finding the id that a request is about, writing what was decided, replaying records, time-outs and expiry.  What
may be done in which state is in ``decisions.py``; markers are written outside, through ``effects.py``.

Invariants:
- What is in ``transactions`` lies in the log, but for ``last_producer_epoch``, which a reload forgets (as in Kafka).
- Markers of a transaction are written after its end was committed to the log, and again after every load that finds it
  prepared but not completed.

Counterpart in Kafka: ``TransactionCoordinator`` and ``TransactionStateManager``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from pybroker.coordinators.result import Record, Result, TimerKey, Waiter
from pybroker.coordinators.transaction import decisions
from pybroker.coordinators.transaction.decisions import Decision
from pybroker.coordinators.transaction.effects import Effects, OpenTransaction
from pybroker.coordinators.transaction.transaction_metadata import (
    IDLE,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    completed,
)
from pybroker.coordinators.transaction.transaction_records import (
    read_transaction,
    read_transactional_id,
    tombstone,
    transaction_record,
)
from pybroker.coordinators.transaction.transaction_settings import TransactionSettings
from pybroker.storage.results import TopicPartition
from pybroker_protocol.errors import ErrorCode

# Transactional ids that one operation looks at for expiry, and tombstones that it may write: some milliseconds,
# and a batch far below max.message.bytes.
EXPIRY_IDS_PER_OPERATION = 1_000

# Transactions that one operation has ended, because they timed out or a load found them prepared, each with its markers
# and two records of its own: a third of a millisecond, and all fifty partitions of the coordinator look at once.
ENDS_PER_OPERATION = 2

RESUME_TIMER: TimerKey = ("resume", "", "")
ABORT_TIMER: TimerKey = ("abort", "", "")
EXPIRY_TIMER: TimerKey = ("expiry", "", "")


class TransactionCoordinatorShard:
    """The transactional ids of one partition; see ``CoordinatorShard`` for how it is driven.

    Every operation on one id answers with a decision: the id's metadata, an error code, or what is missing.
    """

    __slots__ = (
        "_effects",
        "_expiry_queue",
        "_looks_for_timeouts",
        "_open",
        "_partition",
        "_prepared_queue",
        "_settings",
        "_timeout_queue",
        "_writing",
        "transactions",
    )

    # None: each of its timers is set once for the whole partition.
    long_timers: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, partition: int, settings: TransactionSettings, effects: Effects) -> None:
        self._partition = partition
        self._settings = settings
        self._effects = effects
        self.transactions: dict[str, TransactionMetadata] = {}
        self._open: dict[str, None] = {}  # in the order of their beginnings
        # The latest value that was made, with what it says: it comes back to be replayed, and is not read again then.
        self._writing: tuple[bytes, TransactionMetadata] | None = None
        self._looks_for_timeouts = False
        self._prepared_queue: list[str] = []
        self._timeout_queue: list[str] = []
        self._expiry_queue: list[str] = []

    # --- replaying ---------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int, now_ms: int) -> None:
        """See ``CoordinatorShard.replay``."""
        writing, self._writing = self._writing, None
        if writing is not None and writing[0] is value:
            self._replay(writing[1])
            return
        transactional_id = read_transactional_id(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._open.pop(transactional_id, None)
            return
        self._replay(read_transaction(transactional_id, value))

    def _replay(self, txn: TransactionMetadata) -> None:
        self.transactions[txn.transactional_id] = txn
        if txn.state == TransactionState.ONGOING:
            self._open[txn.transactional_id] = None
        else:
            self._open.pop(txn.transactional_id, None)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """See ``CoordinatorShard.replay_end_transaction``: nothing is written here inside a transaction."""

    # --- life --------------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """See ``CoordinatorShard.on_loaded``: what was prepared is seen through."""
        self._prepared_queue = [id_ for id_, txn in self.transactions.items() if txn.state in PREPARED]
        result = self._resume_prepared()
        self._look_for_timeouts(result)
        result.schedule(EXPIRY_TIMER, self._settings.expiry_interval_ms)
        return result

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        """See ``CoordinatorShard.on_timer``."""
        if key == RESUME_TIMER:
            return self._resume_prepared()
        return self._abort_timed_out(now_ms) if key == ABORT_TIMER else self._expire(now_ms)

    def on_unloaded(self, now_ms: int) -> list[Waiter]:
        """See ``CoordinatorShard.on_unloaded``: no request waits inside of this state."""
        self.transactions.clear()
        self._open.clear()
        return []

    # --- requests ----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        new_producer_id: int | None,
        server_version: int,
        now_ms: int,
        first_producer_id: int = 0,
    ) -> Result:
        """InitProducerId.  CONCURRENT_TRANSACTIONS also when it had to abort a transaction first."""
        decision = decisions.initialize(
            self.transactions.get(transactional_id),
            transactional_id,
            timeout_ms,
            expected,
            new_producer_id,
            server_version,
            now_ms,
            first_producer_id,
        )
        result = self._carry_out(decision, server_version)
        if isinstance(decision, TransactionMetadata) and decision.state in PREPARED:
            result.response = ErrorCode.CONCURRENT_TRANSACTIONS
        return result

    def add_partitions(
        self,
        transaction: OpenTransaction,
        partitions: Collection[TopicPartition],
        client_version: int,
        server_version: int,
        now_ms: int,
    ) -> Result:
        """AddPartitionsToTxn of one id."""
        transactional_id, producer_id, epoch = transaction
        txn = self.transactions.get(transactional_id)
        decision = decisions.add_partitions(txn, producer_id, epoch, partitions, client_version, now_ms)
        result = self._carry_out(decision, server_version)
        if result.records and not self._looks_for_timeouts:
            self._looks_for_timeouts = True
            result.schedule(ABORT_TIMER, self._settings.abort_interval_ms)
        return result

    def verify_partitions(self, transaction: OpenTransaction, partitions: Collection[TopicPartition]) -> Result:
        """AddPartitionsToTxn of one id, only asking; answers with an error code for each partition."""
        transactional_id, producer_id, epoch = transaction
        txn = self.transactions.get(transactional_id)
        return Result(decisions.verify_partitions(txn, producer_id, epoch, partitions))

    def end(
        self,
        transaction: OpenTransaction,
        commit: bool,
        client_version: int,
        new_producer_id: int | None,
        server_version: int,
        now_ms: int,
    ) -> Result:
        """EndTxn.  Answers with the metadata that will be when the markers are written, as the client goes on with it.

        A request that was granted before is answered with the metadata as it is.
        """
        transactional_id, producer_id, epoch = transaction
        txn = self.transactions.get(transactional_id)
        decision = decisions.end(txn, producer_id, epoch, commit, client_version, new_producer_id, now_ms)
        result = self._carry_out(decision, server_version)
        if isinstance(decision, TransactionMetadata):
            result.response = completed(decision, now_ms)
        elif decision is ErrorCode.NONE:
            result.response = txn
        return result

    def partitions_of(self, transaction: OpenTransaction) -> Collection[TopicPartition]:
        """Those of a transaction that is open; none of any other."""
        txn = self._ongoing(transaction)
        return () if txn is None else txn.partitions

    def _ongoing(self, transaction: OpenTransaction) -> TransactionMetadata | None:
        txn = self.transactions.get(transaction.transactional_id)
        is_it = txn is not None and txn.state == TransactionState.ONGOING and _transaction(txn) == transaction
        return txn if is_it else None

    # --- what follows from an end ------------------------------------------------------------------------------------

    def abort(
        self, transaction: OpenTransaction, new_producer_id: int | None, server_version: int, now_ms: int
    ) -> Result:
        """Abort a transaction that timed out, unless it ended meanwhile."""
        txn = self._ongoing(transaction)
        if txn is None:
            return Result(ErrorCode.NONE)
        return self._carry_out(decisions.fence(txn, new_producer_id, server_version, now_ms), server_version)

    def complete(self, prepared: TransactionMetadata, server_version: int, now_ms: int) -> Result:
        """All markers of ``prepared`` are written; answers with an error code."""
        txn = self.transactions.get(prepared.transactional_id)
        if txn is None or not _same_end(txn, prepared):
            return Result(ErrorCode.NONE)
        result = self._carry_out(completed(txn, now_ms), server_version)
        result.response = ErrorCode.NONE
        return result

    def resume(self, prepared: TransactionMetadata) -> Result:
        """Have the markers of ``prepared`` written if it still waits for that."""
        txn = self.transactions.get(prepared.transactional_id)
        result = Result(ErrorCode.NONE)
        if txn is not None and _same_end(txn, prepared):
            self._markers(txn, result)
        return result

    def _resume_prepared(self) -> Result:
        """Have the markers of transactions written that a load found prepared, some at a time."""
        result = Result()
        while self._prepared_queue and len(result.replies) < ENDS_PER_OPERATION:
            txn = self.transactions.get(self._prepared_queue.pop())
            if txn is not None and txn.state in PREPARED:
                self._markers(txn, result)
        if self._prepared_queue:
            result.schedule(RESUME_TIMER, 0)
        return result

    def _carry_out(self, decision: Decision, server_version: int) -> Result:
        """Write metadata; answer with the decision."""
        if not isinstance(decision, TransactionMetadata):
            return Result(decision)
        key, value = transaction_record(decision, server_version)
        self._writing = value, decision
        result = Result(decision, [(key, value)])
        if decision.state in PREPARED:
            result.then = lambda _now_ms: self._prepared(decision)
        return result

    def _prepared(self, txn: TransactionMetadata) -> Result:
        result = Result()
        self._markers(txn, result)
        return result

    def _markers(self, txn: TransactionMetadata, result: Result) -> None:
        """Have them written as soon as the end is committed to this log."""
        effects, partition = self._effects, self._partition

        def committed(error_code: int) -> None:
            if not error_code:
                effects.write_markers(partition, txn)
            elif error_code != ErrorCode.NOT_COORDINATOR:
                effects.write_markers_later(partition, txn)

        result.reply(Waiter(committed, int), 0)

    # --- asking ------------------------------------------------------------------------------------------------------

    def list_transactions(
        self, states: Collection[TransactionState] | None, producer_ids: Collection[int], duration_ms: int, now_ms: int
    ) -> list[TransactionMetadata]:
        """Those in these states (None: all), of these producers (none: all), that began more than a while ago."""
        return [
            txn
            for txn in self.transactions.values()
            if (states is None or txn.state in states)
            and (not producer_ids or txn.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - txn.start_timestamp_ms > duration_ms)
        ]

    # --- time --------------------------------------------------------------------------------------------------------

    def _look_for_timeouts(self, result: Result) -> None:
        self._looks_for_timeouts = bool(self._open)
        if self._open:
            result.schedule(ABORT_TIMER, 0 if self._timeout_queue else self._settings.abort_interval_ms)

    def _abort_timed_out(self, now_ms: int) -> Result:
        """Have transactions aborted that are open for too long, some at a time."""
        if not self._timeout_queue:
            self._timeout_queue = list(reversed(self._open))
        result = Result()
        for _ in range(min(len(self._timeout_queue), EXPIRY_IDS_PER_OPERATION)):
            txn = self.transactions.get(self._timeout_queue.pop())
            if txn is not None and txn.times_out(now_ms):
                self._time_out(_transaction(txn), result)
            if len(result.replies) == ENDS_PER_OPERATION:
                break
        self._look_for_timeouts(result)
        return result

    def _time_out(self, transaction: OpenTransaction, result: Result) -> None:
        effects, partition = self._effects, self._partition

        def committed(error_code: int) -> None:
            if not error_code:
                effects.abort(partition, transaction)

        result.reply(Waiter(committed, int), 0)

    def _expire(self, now_ms: int) -> Result:
        """Forget ids that were not used for long, some at a time."""
        if not self._expiry_queue:
            self._expiry_queue = list(self.transactions)
        oldest_ms = now_ms - self._settings.id_expiration_ms
        records: list[Record] = []
        for _ in range(min(len(self._expiry_queue), EXPIRY_IDS_PER_OPERATION)):
            txn = self.transactions.get(self._expiry_queue.pop())
            if txn is not None and txn.state in IDLE and txn.last_update_ms <= oldest_ms:
                records.append(tombstone(txn.transactional_id))
        result = Result(records=records)
        result.schedule(EXPIRY_TIMER, 0 if self._expiry_queue else self._settings.expiry_interval_ms)
        return result


def _transaction(txn: TransactionMetadata) -> OpenTransaction:
    return OpenTransaction(txn.transactional_id, txn.producer_id, txn.producer_epoch)


def _same_end(txn: TransactionMetadata, prepared: TransactionMetadata) -> bool:
    """Whether it is the same end of the same transaction.

    In the first protocol a producer's transactions have one epoch: their times, which a reload brings back, tell them
    apart.
    """
    return (
        txn.state == prepared.state
        and _transaction(txn) == _transaction(prepared)
        and txn.start_timestamp_ms == prepared.start_timestamp_ms
        and txn.last_update_ms == prepared.last_update_ms
    )
