"""Fetch: whole batches, limits, waiting, isolation, sessions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "fetch-inside-a-batch-skips-it",
        "A fetch from inside of a batch begins behind that batch, and its records are never seen.",
        (
            Edit(
                "FetchOperation._read_log",
                "result = log.read(fetched.fetch_offset, max_bytes, upper, min_one_batch)",
                """
                begins = log.read(fetched.fetch_offset, 1, log.log_end_offset, True).records
                base, delta = int.from_bytes(begins[:8]), int.from_bytes(begins[23:27])
                next_batch = base if base == fetched.fetch_offset else base + delta + 1
                result = log.read(next_batch, max_bytes, upper, min_one_batch)
                """,
            ),
        ),
        ("test_fetch.py::test_an_offset_inside_a_batch_brings_the_whole_batch",),
    ),
    Mutant(
        "large-batch-withheld",
        "A batch larger than the limits is never sent, and the partition stalls.",
        (Edit("FetchOperation._read_some", "total == 0", "False"),),
        ("test_fetch.py::test_the_first_batch_comes_however_large_it_is",),
    ),
    Mutant(
        "every-partition-passes-the-limit",
        "Every partition brings a batch, whatever the limit of the request is.",
        (Edit("FetchOperation._read_some", "total == 0", "True"),),
        ("test_fetch.py::test_only_the_first_partition_may_pass_the_limit",),
    ),
    Mutant(
        "partition-limit-ignored",
        "The limit of a partition is ignored; that of the request alone counts.",
        (
            Edit(
                "ConsumerFetch._read",
                "fetched.max_bytes if fetched.max_bytes < bytes_left else bytes_left",
                "bytes_left",
            ),
        ),
        ("test_fetch.py::test_the_limit_of_a_partition_holds_behind_its_first_batch",),
    ),
    Mutant(
        "high-watermark-told-one-less",
        "The high watermark that clients are told is the offset of the last record, not of the next.",
        (
            Edit(
                "FetchPartition.answer_from",
                "self.high_watermark = log.high_watermark",
                "self.high_watermark = max(log.high_watermark - 1, 0)",
            ),
        ),
        ("test_fetch.py::test_the_high_watermark_is_the_offset_of_the_next_record",),
    ),
    Mutant(
        "high-watermark-lags",
        "The last record is shown only when another one comes.",
        (
            Edit(
                "partition.advance_high_watermark",
                "end_offset <= log.high_watermark",
                "end_offset <= log.high_watermark + 1",
            ),
            Edit(
                "partition.advance_high_watermark",
                "log.update_high_watermark(end_offset)",
                "log.update_high_watermark(end_offset - 1)",
            ),
        ),
        (
            "test_produce.py::test_each_record_has_the_next_offset",
            "test_list_offsets.py::test_latest_and_earliest_are_the_ends_of_the_log",
        ),
    ),
    Mutant(
        "past-the-end-is-empty",
        "A fetch from past the end is answered with nothing, and a consumer whose log was cut waits for ever.",
        (
            Edit(
                "ConsumerFetch._read",
                "not log.log_start_offset <= offset <= log.log_end_offset",
                "offset < log.log_start_offset",
            ),
        ),
        ("test_fetch.py::test_offsets_outside_of_the_log_are_out_of_range",),
    ),
    Mutant(
        "deleted-records-are-empty",
        "A fetch of deleted records is answered with nothing instead of OFFSET_OUT_OF_RANGE.",
        (
            Edit(
                "ConsumerFetch._read",
                "fetched.answer(_NOT_AVAILABLE if is_late else _OUT_OF_RANGE)",
                "fetched.answer(_OUT_OF_RANGE if offset > log.log_end_offset else 0)",
            ),
        ),
        ("test_fetch.py::test_deleted_records_are_out_of_range",),
    ),
    Mutant(
        "leader-epoch-of-the-client-stored",
        "The partition leader epoch of a batch is the producer's, so that clients that check it truncate.",
        (
            Edit(
                "placing.place",
                "patch_into(records, 0, base_offset, length, leader_epoch)",
                "patch_into(records, 0, base_offset, length, header[2])",
            ),
        ),
        ("test_fetch.py::test_a_stored_batch_carries_the_leaders_epoch",),
    ),
    Mutant(
        "leader-epoch-unchecked",
        "A client that knows a newer leader is served all the same.",
        (
            Edit("partition.epoch_error", "leader_epoch in (-1, current)", "leader_epoch >= -1"),
            Edit(
                "ConsumerFetch._read",
                "fetched.current_leader_epoch >= 0 and fetched.current_leader_epoch != partition.leader_epoch",
                "partition.epoch_error(fetched.current_leader_epoch)",
            ),
        ),
        ("test_fetch.py::test_a_leader_epoch_that_is_not_the_current_one_is_refused",),
    ),
    Mutant(
        "fetch-by-unknown-id-as-name",
        "A fetch by an unknown topic id hears UNKNOWN_TOPIC_OR_PARTITION.",
        (
            Edit(
                "ReplicaManager.resolve",
                "fetched.answer(ErrorCode.UNKNOWN_TOPIC_ID)",
                "fetched.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)",
            ),
        ),
        ("test_fetch.py::test_topics_that_nobody_knows",),
    ),
    # --- waiting
    Mutant(
        "fetch-does-not-wait",
        "A fetch at the end is answered at once with nothing, and consumers spin.",
        (
            Edit(
                "FetchOperation._after_reading",
                "failed or total >= self._min_bytes or max_wait_ms <= 0",
                "max_wait_ms is not None",
            ),
        ),
        ("test_fetch.py::test_a_fetch_at_the_end_waits_for_data",),
    ),
    Mutant(
        "min-bytes-ignored-by-wakes",
        "A waiting fetch is answered with the first record that comes, however much it wanted.",
        (
            Edit(
                "ConsumerFetch.try_complete",
                "self._min_bytes <= 1 and not self._read_committed and partition.followers is None",
                "not self._read_committed and partition.followers is None",
            ),
        ),
        ("test_fetch.py::test_a_fetch_waits_for_as_much_as_it_wants",),
    ),
    Mutant(
        "committed-reader-woken-too-early",
        "A waiting reader of committed data is answered with nothing as soon as an open transaction writes.",
        (
            Edit(
                "ConsumerFetch.try_complete",
                "self._min_bytes <= 1 and not self._read_committed and partition.followers is None",
                "self._min_bytes <= 1 and partition.followers is None",
            ),
        ),
        ("test_transactions.py::test_a_waiting_committed_reader_wakes_when_the_transaction_ends",),
    ),
    Mutant(
        "minimum-without-a-limit",
        "A fetch that wants more than its reply may carry waits for as long as it may, with much to be read.",
        (Edit("fetch._consumer_fetch", "min(request.min_bytes, max_bytes)", "request.min_bytes"),),
        ("test_fetch.py::test_a_minimum_above_the_limit_is_no_more_than_the_limit",),
    ),
    Mutant(
        "wait-at-the-end-of-a-segment",
        "A fetch waits for its minimum where an earlier segment ends, though it would bring nothing of the next one.",
        (Edit("FetchOperation._is_enough", "log.active.base_offset", "0"),),
        ("test_fetch.py::test_a_fetch_of_an_earlier_segment_does_not_wait",),
    ),
    # --- isolation
    Mutant(
        "open-transaction-shown",
        "Readers of committed data see what an open transaction has written.",
        (
            Edit(
                "ConsumerFetch._read",
                "log.last_stable_offset if self._read_committed else log.high_watermark",
                "log.high_watermark",
            ),
        ),
        ("test_transactions.py::test_committed_readers_stop_at_an_open_transaction",),
    ),
    Mutant(
        "aborted-transactions-untold",
        "Readers of committed data are not told which transactions were aborted, and take them for committed.",
        (Edit("FetchOperation._take", "len(result.records)", "not len(result.records)"),),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    Mutant(
        "aborted-list-never-null",
        "Readers of everything get an empty list of aborted transactions instead of none.",
        (Edit("ConsumerFetch._read", "[] if self._read_committed else None", "[]"),),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    Mutant(
        "aborted-from-the-fetch-offset",
        "An aborted transaction is told with the offset of the fetch instead of its first.",
        (Edit("FetchOperation._take", "entry.first_offset", "fetched.fetch_offset"),),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    # --- sessions
    Mutant(
        "session-tells-everything",
        "An incremental reply tells of every partition, also where nothing is new.",
        (Edit("_news", "epoch != INITIAL_EPOCH", "epoch == FINAL_EPOCH"),),
        ("test_fetch.py::test_a_session_tells_only_what_is_new",),
    ),
    Mutant(
        "session-forgets-nothing",
        "Partitions that the client has forgotten are fetched on.",
        (
            Edit(
                "fetch._fetch",
                "_forgotten(request, forgotten, by_id)",
                "()",
            ),
        ),
        ("test_fetch.py::test_a_session_forgets_what_it_is_told_to_forget",),
    ),
    Mutant(
        "session-epoch-unchecked",
        "A session goes on with any epoch, so that a lost reply is never noticed.",
        (Edit("FetchSessionCache.resume", "session.epoch != epoch", "epoch < 0"),),
        ("test_fetch.py::test_a_session_goes_on_only_with_its_next_epoch",),
    ),
    Mutant(
        "session-id-reused",
        "Two clients are given the same session.",
        (
            Edit(
                "FetchSessionCache.begin",
                "session_id == INVALID_SESSION_ID or session_id in self._sessions",
                "session_id == INVALID_SESSION_ID",
            ),
            Edit("FetchSessionCache.begin", "self._random.randint(1, _EPOCH_MAX)", "1"),
        ),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
    Mutant(
        "closed-session-lives-on",
        "A session that the client has closed can be gone on with.",
        (Edit("_session", "request.session_id != INVALID_SESSION_ID", "request.session_id == INVALID_SESSION_ID"),),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
)
