"""The transaction coordinator, markers, offsets inside of transactions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_FENCED_HEARS = "test_transactions.py::test_a_fenced_producer_hears_so_as_its_version_knows_it"
_OFFSETS_COUNT = "test_transactions.py::test_offsets_of_a_transaction_count_when_it_is_committed"

MUTANTS = (
    Mutant(
        "transaction-timeout-unbounded",
        "A transaction may stay open for longer than transaction.max.timeout.ms, and holds all readers back.",
        (
            Edit(
                "TransactionCoordinator.init_producer_id",
                "not 0 < timeout_ms <= self._settings.max_timeout_ms",
                "timeout_ms <= 0",
            ),
        ),
        ("test_transactions.py::test_a_transaction_may_not_take_forever",),
    ),
    Mutant(
        "new-producer-same-epoch",
        "Who begins again gets the epoch that the one before has, and nobody is fenced.",
        (Edit("_next_epoch", "epoch + 1", "epoch"),),
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
                "initialize",
                """
                if txn.state == TransactionState.ONGOING:
                    return fence(txn, new_producer_id, server_version, now_ms)
                """,
                "",
            ),
        ),
        ("test_transactions.py::test_a_producer_that_begins_again_ends_the_transaction_before",),
    ),
    Mutant(
        "old-epoch-ends-transactions",
        "A fenced producer ends the transaction of the one that replaced it.",
        (Edit("decisions._refused", "txn.producer_epoch != epoch", "txn.producer_epoch < epoch"),),
        (_FENCED_HEARS,),
    ),
    Mutant(
        "fenced-told-in-every-version",
        "Clients that do not know PRODUCER_FENCED are told it.",
        (Edit("known_error", "api_version < fencing_version", "api_version < 0"),),
        (_FENCED_HEARS,),
    ),
    Mutant(
        "any-producer-id-ends",
        "A transaction is ended by whoever knows its id.",
        (
            Edit(
                "decisions._refused",
                """
                if txn.producer_id != producer_id:
                    return ErrorCode.INVALID_PRODUCER_ID_MAPPING
                """,
                "",
            ),
        ),
        ("test_transactions.py::test_another_producer_id_ends_nothing",),
    ),
    Mutant(
        "nothing-committed-again-and-again",
        "A commit or an abort that contradicts what was decided is granted.",
        (
            Edit(
                "_repeated", "ErrorCode.NONE if txn.state == decided else ErrorCode.INVALID_TXN_STATE", "ErrorCode.NONE"
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
        (Edit("prepared", "client_version >= EPOCH_BUMP_VERSION", "client_version > EPOCH_BUMP_VERSION"),),
        ("test_transactions.py::test_every_end_of_the_second_protocol_raises_the_epoch",),
    ),
    Mutant(
        "partitions-added-in-part",
        "Of the partitions of an AddPartitionsToTxn the good ones are said to be added when one is bad.",
        (Edit("add_partitions_to_txn._refused", "ErrorCode.OPERATION_NOT_ATTEMPTED", "0"),),
        ("test_transactions.py::test_partitions_are_added_all_or_none",),
    ),
    Mutant(
        "unverified-batch-stored",
        "A transactional batch is stored though its partition is part of no transaction: nothing will ever end it.",
        (Edit("TransactionVerification._ask.answered", "codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)", "0"),),
        ("test_transactions.py::test_a_partition_that_was_not_added_takes_nothing",),
    ),
    Mutant(
        "abortable-told-to-all",
        "Clients that do not know TRANSACTION_ABORTABLE are told it.",
        (Edit("produce_operation", "api_version >= 11", "api_version >= 3"),),
        ("test_transactions.py::test_a_partition_that_was_not_added_takes_nothing",),
    ),
    Mutant(
        "second-protocol-adds-nothing",
        "The broker waits for clients of the second protocol to add their partitions, which they do not.",
        (Edit("produce_operation", "api_version >= 12", "api_version >= 14"),),
        ("test_transactions.py::test_the_second_protocol_adds_partitions_by_itself",),
    ),
    Mutant(
        "abort-marked-as-commit",
        "The marker of an aborted transaction says that it was committed.",
        (Edit("TransactionMarkers.write", "marker.commit", "True"),),
        ("test_transactions.py::test_a_transaction_ends_with_a_marker_that_takes_an_offset",),
    ),
    Mutant(
        "newest-transaction-holds-back",
        "Readers of committed data are held back by the newest open transaction only, and see into older ones.",
        (Edit("ProducerStateManager.first_unstable_offset", "iter(self.ongoing_txns)", "reversed(self.ongoing_txns)"),),
        ("test_transactions.py::test_the_oldest_open_transaction_holds_readers_back",),
    ),
    Mutant(
        "last-stable-offset-is-the-high-watermark",
        "The last stable offset is the high watermark, whatever transactions are open.",
        (
            Edit(
                "LogState.last_stable_offset",
                "min(self.high_watermark, max(producers.first_unstable_offset(), self.log_start_offset))",
                "self.high_watermark",
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
                "ProducerStateManager._check_transactional",
                """
                if isinstance(verdict, tuple) or self.has_ongoing_transaction(producer_id, producer_epoch):
                    return verdict
                """,
                """
                if self.has_ongoing_transaction(producer_id, producer_epoch):
                    return None if isinstance(verdict, tuple) else verdict
                """,
            ),
        ),
        ("test_transactions.py::test_transactional_batches_are_deduplicated",),
    ),
    Mutant(
        "aborted-offsets-kept",
        "Offsets of an aborted transaction count.",
        (Edit("OffsetStore.end_transaction", "ended if committed else []", "ended"),),
        (_OFFSETS_COUNT,),
    ),
    Mutant(
        "committed-offsets-lost",
        "Offsets of a committed transaction do not count.",
        (Edit("OffsetStore.end_transaction", "ended if committed else []", "[] if committed else ended"),),
        (_OFFSETS_COUNT,),
    ),
    Mutant(
        "stale-member-inside-a-transaction",
        "A member that missed a rebalance commits inside of a transaction (KIP-447).",
        (Edit("transactional_offsets._check", "ErrorCode.GROUP_ID_NOT_FOUND if generation >= 0 else 0", "0"),),
        ("test_transactions.py::test_a_stale_member_commits_nothing_inside_of_a_transaction",),
    ),
    Mutant(
        "idempotent-producers-share-an-id",
        "Producers without a transactional id are given the same producer id.",
        (
            Edit(
                "init_producer_id.handle.done",
                """
                InitProducerIdResponse(
                        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
                    )
                """,
                """
                InitProducerIdResponse(
                        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id // 1000, producer_epoch=0
                    )
                """,
            ),
        ),
        ("test_transactions.py::test_an_idempotent_producer_gets_an_id_of_its_own",),
    ),
    Mutant(
        "transactions-listed-unfiltered",
        "ListTransactions ignores the states that were asked for.",
        (Edit("states_of", "states if asked else None", "states if not asked else None"),),
        ("test_transactions.py::test_transactions_are_listed_by_state_and_producer",),
    ),
)
