"""The transaction coordinator, markers, offsets inside of transactions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_DECISIONS = "pybroker.coordinators.transaction.decisions"
_SERVICE = "pybroker.coordinators.transaction.service"
_METADATA = "pybroker.coordinators.transaction.metadata"
_PRODUCERS = "pybroker.storage.producer_state"
_VERIFICATION = "pybroker.replication.transaction_verification"
_OFFSETS = "pybroker.coordinators.group.offsets"
_TXN_OFFSETS = "pybroker.coordinators.group.transactional_offsets"
_ADD = "pybroker.handlers.add_partitions_to_txn"

_FENCED_HEARS = "test_transactions.py::test_a_fenced_producer_hears_so_as_its_version_knows_it"
_OFFSETS_COUNT = "test_transactions.py::test_offsets_of_a_transaction_count_when_it_is_committed"

MUTANTS = (
    Mutant(
        "transaction-timeout-unbounded",
        "A transaction may stay open for longer than transaction.max.timeout.ms, and holds all readers back.",
        (Edit(_SERVICE, "if not 0 < timeout_ms <= self._settings.max_timeout_ms:", "if timeout_ms <= 0:"),),
        ("test_transactions.py::test_a_transaction_may_not_take_forever",),
    ),
    Mutant(
        "new-producer-same-epoch",
        "Who begins again gets the epoch that the one before has, and nobody is fenced.",
        (
            Edit(
                _DECISIONS,
                "return initialized(txn, txn.producer_id, epoch + 1, last_epoch, timeout_ms, now_ms)",
                "return initialized(txn, txn.producer_id, epoch, last_epoch, timeout_ms, now_ms)",
            ),
        ),
        (
            "test_transactions.py::test_who_begins_again_gets_the_next_epoch",
            "test_transactions.py::test_a_fenced_producer_writes_nothing",
        ),
    ),
    Mutant(
        "open-transaction-survives-its-producer",
        "A producer that begins again is not told to wait for the end of its open transaction.",
        (
            Edit(
                _DECISIONS,
                "    if txn.state == TransactionState.ONGOING:\n"
                "        return fence(txn, new_producer_id, server_version, now_ms)\n"
                "    return _next_epoch",
                "    return _next_epoch",
            ),
        ),
        ("test_transactions.py::test_a_producer_that_begins_again_ends_the_transaction_before",),
    ),
    Mutant(
        "old-epoch-ends-transactions",
        "A fenced producer ends the transaction of the one that replaced it.",
        (
            Edit(
                _DECISIONS,
                "    if txn.producer_epoch != epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if txn.state == TransactionState.ONGOING:\n"
                "        return prepared",
                "    if txn.producer_epoch < epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if txn.state == TransactionState.ONGOING:\n"
                "        return prepared",
            ),
        ),
        (_FENCED_HEARS,),
    ),
    Mutant(
        "fenced-told-in-every-version",
        "Clients that do not know PRODUCER_FENCED are told it.",
        (
            Edit(
                _SERVICE,
                "    if error_code == ErrorCode.PRODUCER_FENCED and api_version < fencing_version:",
                "    if error_code == ErrorCode.PRODUCER_FENCED and api_version < 0:",
            ),
        ),
        (_FENCED_HEARS,),
    ),
    Mutant(
        "any-producer-id-ends",
        "A transaction is ended by whoever knows its id.",
        (
            Edit(
                _DECISIONS,
                "    if txn.producer_id != producer_id:\n"
                "        return ErrorCode.INVALID_PRODUCER_ID_MAPPING\n"
                "    if txn.producer_epoch != epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if txn.state == TransactionState.ONGOING:",
                "    if txn.producer_epoch != epoch:\n"
                "        return ErrorCode.PRODUCER_FENCED\n"
                "    if txn.state == TransactionState.ONGOING:",
            ),
        ),
        ("test_transactions.py::test_another_producer_id_ends_nothing",),
    ),
    Mutant(
        "nothing-committed-again-and-again",
        "A commit or an abort that contradicts what was decided is granted.",
        (
            Edit(
                _DECISIONS,
                "    return ErrorCode.NONE if txn.state == decided else ErrorCode.INVALID_TXN_STATE",
                "    return ErrorCode.NONE",
            ),
        ),
        (
            "test_transactions.py::test_the_first_protocol_repeats_what_was_decided",
            "test_transactions.py::test_there_is_nothing_to_commit_in_an_empty_transaction",
        ),
    ),
    Mutant(
        "epoch-stays-in-the-second-protocol",
        "The end of a transaction does not raise the epoch, so that a late batch gets into the next one.",
        (
            Edit(
                _METADATA,
                "    raises_epoch = client_version >= EPOCH_BUMP_VERSION",
                "    raises_epoch = client_version > EPOCH_BUMP_VERSION",
            ),
        ),
        ("test_transactions.py::test_every_end_of_the_second_protocol_raises_the_epoch",),
    ),
    Mutant(
        "partitions-added-in-part",
        "Of the partitions of an AddPartitionsToTxn the good ones are said to be added when one is bad.",
        (
            Edit(
                _ADD,
                "errors.get((topic.name, index), ErrorCode.OPERATION_NOT_ATTEMPTED)",
                "errors.get((topic.name, index), 0)",
            ),
        ),
        ("test_transactions.py::test_partitions_are_added_all_or_none",),
    ),
    Mutant(
        "unverified-batch-stored",
        "A transactional batch is stored though its partition is part of no transaction: nothing will ever end it.",
        (
            Edit(
                _VERIFICATION,
                "                code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)",
                "                code = 0",
            ),
        ),
        ("test_transactions.py::test_a_partition_that_was_not_added_takes_nothing",),
    ),
    Mutant(
        "abortable-told-to-all",
        "Clients that do not know TRANSACTION_ABORTABLE are told it.",
        (Edit(_VERIFICATION, "knows_abortable=api_version >= 11)", "knows_abortable=api_version >= 3)"),),
        ("test_transactions.py::test_a_partition_that_was_not_added_takes_nothing",),
    ),
    Mutant(
        "second-protocol-adds-nothing",
        "The broker waits for clients of the second protocol to add their partitions, which they do not.",
        (
            Edit(
                _VERIFICATION,
                "TransactionOperation(adds_partitions=api_version >= 12, knows_abortable=api_version >= 11)",
                "TransactionOperation(adds_partitions=api_version >= 14, knows_abortable=api_version >= 11)",
            ),
        ),
        ("test_transactions.py::test_the_second_protocol_adds_partitions_by_itself",),
    ),
    Mutant(
        "abort-marked-as-commit",
        "The marker of an aborted transaction says that it was committed.",
        (
            Edit(
                "pybroker.replication.transaction_markers",
                "commit=marker.commit,",
                "commit=True,",
            ),
        ),
        ("test_transactions.py::test_a_transaction_ends_with_a_marker_that_takes_an_offset",),
    ),
    Mutant(
        "newest-transaction-holds-back",
        "Readers of committed data are held back by the newest open transaction only, and see into older ones.",
        (
            Edit(
                _PRODUCERS,
                "min(next(iter(self.ongoing_txns), 1 << 63)",
                "min(next(reversed(self.ongoing_txns), 1 << 63)",
            ),
        ),
        ("test_transactions.py::test_the_oldest_open_transaction_holds_readers_back",),
    ),
    Mutant(
        "last-stable-offset-is-the-high-watermark",
        "The last stable offset is the high watermark, whatever transactions are open.",
        (
            Edit(
                "pybroker.storage.log",
                "return min(self.high_watermark, max(producers.first_unstable_offset(), self.log_start_offset))",
                "return self.high_watermark",
            ),
        ),
        (
            "test_transactions.py::test_committed_readers_stop_at_an_open_transaction",
            "test_transactions.py::test_the_oldest_open_transaction_holds_readers_back",
        ),
    ),
    Mutant(
        "duplicate-in-a-transaction-appended",
        "A batch that a transactional producer repeats is appended again.",
        (
            Edit(
                _PRODUCERS,
                "        if isinstance(verdict, tuple) or self.has_ongoing_transaction(producer_id, "
                "producer_epoch):\n"
                "            return verdict",
                "        if self.has_ongoing_transaction(producer_id, producer_epoch):\n"
                "            return None if isinstance(verdict, tuple) else verdict",
            ),
        ),
        ("test_transactions.py::test_transactional_batches_are_deduplicated",),
    ),
    Mutant(
        "aborted-offsets-kept",
        "Offsets of an aborted transaction count.",
        (Edit(_OFFSETS, "        return ended if committed else []", "        return ended"),),
        (_OFFSETS_COUNT,),
    ),
    Mutant(
        "committed-offsets-lost",
        "Offsets of a committed transaction do not count.",
        (Edit(_OFFSETS, "        return ended if committed else []", "        return [] if committed else ended"),),
        (_OFFSETS_COUNT,),
    ),
    Mutant(
        "stale-member-inside-a-transaction",
        "A member that missed a rebalance commits inside of a transaction (KIP-447).",
        (
            Edit(
                _TXN_OFFSETS,
                "        return ErrorCode.ILLEGAL_GENERATION if request.generation_id >= 0 else 0\n",
                "        return 0\n",
            ),
        ),
        ("test_transactions.py::test_a_stale_member_commits_nothing_inside_of_a_transaction",),
    ),
    Mutant(
        "idempotent-producers-share-an-id",
        "Producers without a transactional id are given the same producer id.",
        (
            Edit(
                "pybroker.handlers.init_producer_id",
                "throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0",
                "throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id // 1000, producer_epoch=0",
            ),
        ),
        ("test_transactions.py::test_an_idempotent_producer_gets_an_id_of_its_own",),
    ),
    Mutant(
        "transactions-listed-unfiltered",
        "ListTransactions ignores the states that were asked for.",
        (
            Edit(
                "pybroker.coordinators.transaction.responses",
                "    return (states if asked else None), [",
                "    return (states if not asked else None), [",
            ),
        ),
        ("test_transactions.py::test_transactions_are_listed_by_state_and_producer",),
    ),
)
