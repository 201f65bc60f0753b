"""Fetch: whole batches, limits, waiting, isolation, sessions."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_FETCH = "pybroker.replication.fetch"
_HANDLER = "pybroker.handlers.fetch"
_SESSIONS = "pybroker.replication.fetch_session"
_PARTITION = "pybroker.replication.partition"
_LOG = "pybroker.storage.log"

MUTANTS = (
    Mutant(
        "fetch-inside-a-batch-skips-it",
        "A fetch from inside of a batch begins behind that batch, and its records are never seen.",
        (
            Edit(
                _FETCH,
                "        result = log.read(fetched.fetch_offset, max_bytes, upper, min_one_batch)",
                "        result = log.read(_next_batch(log, fetched.fetch_offset), max_bytes, upper, min_one_batch)",
            ),
            Edit(
                _FETCH,
                "class FetchOperation:\n",
                "def _next_batch(log: Log, offset: int) -> int:\n"
                "    found = log.read(offset, 1, log.log_end_offset, True).records\n"
                "    base, delta = int.from_bytes(found[:8]), int.from_bytes(found[23:27])\n"
                "    return offset if base == offset else base + delta + 1\n\n\nclass FetchOperation:\n",
            ),
        ),
        ("test_fetch.py::test_an_offset_inside_a_batch_brings_the_whole_batch",),
    ),
    Mutant(
        "large-batch-withheld",
        "A batch larger than the limits is never sent, and the partition stalls.",
        (
            Edit(
                _FETCH,
                "self._read(fetched, self._max_bytes - total, total == 0)",
                "self._read(fetched, self._max_bytes - total, False)",
            ),
        ),
        ("test_fetch.py::test_the_first_batch_comes_however_large_it_is",),
    ),
    Mutant(
        "every-partition-passes-the-limit",
        "Every partition brings a batch, whatever the limit of the request is.",
        (
            Edit(
                _FETCH,
                "self._read(fetched, self._max_bytes - total, total == 0)",
                "self._read(fetched, self._max_bytes - total, True)",
            ),
        ),
        ("test_fetch.py::test_only_the_first_partition_may_pass_the_limit",),
    ),
    Mutant(
        "partition-limit-ignored",
        "The limit of a partition is ignored; that of the request alone counts.",
        (
            Edit(
                _FETCH,
                "max_bytes = fetched.max_bytes if fetched.max_bytes < bytes_left else bytes_left",
                "max_bytes = bytes_left",
            ),
        ),
        ("test_fetch.py::test_the_limit_of_a_partition_holds_behind_its_first_batch",),
    ),
    Mutant(
        "high-watermark-told-one-less",
        "The high watermark that clients are told is the offset of the last record, not of the next.",
        (
            Edit(
                _FETCH,
                "fetched.high_watermark = log.high_watermark",
                "fetched.high_watermark = max(log.high_watermark - 1, 0)",
            ),
        ),
        ("test_fetch.py::test_the_high_watermark_is_the_offset_of_the_next_record",),
    ),
    Mutant(
        "high-watermark-lags",
        "The last record is shown only when another one comes.",
        (
            Edit(
                _PARTITION,
                "        if end_offset > log.high_watermark:\n            log.update_high_watermark(end_offset)",
                "        if end_offset > log.high_watermark + 1:\n"
                "            log.update_high_watermark(end_offset - 1)",
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
                _FETCH,
                "if not log.log_start_offset <= offset <= log.log_end_offset:",
                "if offset < log.log_start_offset:",
            ),
        ),
        ("test_fetch.py::test_offsets_outside_of_the_log_are_out_of_range",),
    ),
    Mutant(
        "deleted-records-are-empty",
        "A fetch of deleted records is answered with nothing instead of OFFSET_OUT_OF_RANGE.",
        (
            Edit(
                _FETCH,
                "            fetched.answer(_OUT_OF_RANGE)\n",
                "            fetched.answer(_OUT_OF_RANGE if offset > log.log_end_offset else _NONE)\n",
            ),
        ),
        ("test_fetch.py::test_deleted_records_are_out_of_range",),
    ),
    Mutant(
        "leader-epoch-of-the-client-stored",
        "The partition leader epoch of a batch is the producer's, so that clients that check it truncate.",
        (
            Edit(
                _LOG,
                "        _patch_into(records, 0, base_offset, length, leader_epoch)\n        result =",
                "        _patch_into(records, 0, base_offset, length, header[2])\n        result =",
            ),
        ),
        ("test_fetch.py::test_a_stored_batch_carries_the_leaders_epoch",),
    ),
    Mutant(
        "leader-epoch-unchecked",
        "A client that knows a newer leader is served all the same.",
        (
            Edit(
                _PARTITION,
                "        if leader_epoch in (-1, self.leader_epoch):\n            return 0",
                "        if leader_epoch >= -1:\n            return 0",
            ),
            Edit(
                _FETCH,
                "if fetched.current_leader_epoch >= 0 and fetched.current_leader_epoch != partition.leader_epoch:",
                "if partition.epoch_error(fetched.current_leader_epoch):",
            ),
        ),
        ("test_fetch.py::test_a_leader_epoch_that_is_not_the_current_one_is_refused",),
    ),
    Mutant(
        "fetch-by-unknown-id-as-name",
        "A fetch by an unknown topic id hears UNKNOWN_TOPIC_OR_PARTITION.",
        (
            Edit(
                "pybroker.replication.replica_manager",
                "            if topic is None:\n                fetched.answer(ErrorCode.UNKNOWN_TOPIC_ID)",
                "            if topic is None:\n                fetched.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)",
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
                _FETCH,
                "elif failed or total >= self._min_bytes or max_wait_ms <= 0 or not self._partitions:",
                "elif max_wait_ms is not None:",
            ),
        ),
        ("test_fetch.py::test_a_fetch_at_the_end_waits_for_data",),
    ),
    Mutant(
        "min-bytes-ignored-by-wakes",
        "A waiting fetch is answered with the first record that comes, however much it wanted.",
        (
            Edit(
                _FETCH,
                "anything_will_do = self._min_bytes <= 1 and not self._read_committed",
                "anything_will_do = not self._read_committed",
            ),
        ),
        ("test_fetch.py::test_a_fetch_waits_for_as_much_as_it_wants",),
    ),
    Mutant(
        "committed-reader-woken-too-early",
        "A waiting reader of committed data is answered with nothing as soon as an open transaction writes.",
        (
            Edit(
                _FETCH,
                "anything_will_do = self._min_bytes <= 1 and not self._read_committed",
                "anything_will_do = self._min_bytes <= 1",
            ),
        ),
        ("test_transactions.py::test_a_waiting_committed_reader_wakes_when_the_transaction_ends",),
    ),
    Mutant(
        "minimum-without-a-limit",
        "A fetch that wants more than its reply may carry waits for as long as it may, with much to be read.",
        (Edit(_HANDLER, "min_bytes=min(request.min_bytes, max_bytes),", "min_bytes=request.min_bytes,"),),
        ("test_fetch.py::test_a_minimum_above_the_limit_is_no_more_than_the_limit",),
    ),
    Mutant(
        "wait-at-the-end-of-a-segment",
        "A fetch waits for its minimum where an earlier segment ends, though it would bring nothing of the next one.",
        (Edit(_FETCH, "if offset < log.active.base_offset and", "if offset < 0 and"),),
        ("test_fetch.py::test_a_fetch_of_an_earlier_segment_does_not_wait",),
    ),
    # --- isolation
    Mutant(
        "open-transaction-shown",
        "Readers of committed data see what an open transaction has written.",
        (
            Edit(
                _FETCH,
                "upper = log.last_stable_offset if self._read_committed else log.high_watermark",
                "upper = log.high_watermark",
            ),
        ),
        ("test_transactions.py::test_committed_readers_stop_at_an_open_transaction",),
    ),
    Mutant(
        "aborted-transactions-untold",
        "Readers of committed data are not told which transactions were aborted, and take them for committed.",
        (
            Edit(
                _FETCH,
                "        if self._read_committed and len(result.records):",
                "        if self._read_committed and not len(result.records):",
            ),
        ),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    Mutant(
        "aborted-list-never-null",
        "Readers of everything get an empty list of aborted transactions instead of none.",
        (
            Edit(
                _FETCH,
                "fetched.aborted_transactions = [] if self._read_committed else None",
                "fetched.aborted_transactions = []",
            ),
        ),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    Mutant(
        "aborted-from-the-fetch-offset",
        "An aborted transaction is told with the offset of the fetch instead of its first.",
        (
            Edit(
                _FETCH,
                "[(entry.producer_id, entry.first_offset) for entry in aborted]",
                "[(entry.producer_id, fetched.fetch_offset) for entry in aborted]",
            ),
        ),
        ("test_transactions.py::test_committed_readers_are_told_which_transactions_were_aborted",),
    ),
    # --- sessions
    Mutant(
        "session-tells-everything",
        "An incremental reply tells of every partition, also where nothing is new.",
        (
            Edit(
                _HANDLER,
                "return told if epoch != INITIAL_EPOCH else partitions",
                "return told if epoch == FINAL_EPOCH else partitions",
            ),
        ),
        ("test_fetch.py::test_a_session_tells_only_what_is_new",),
    ),
    Mutant(
        "session-forgets-nothing",
        "Partitions that the client has forgotten are fetched on.",
        (Edit(_HANDLER, "    resumed.forget(_forgotten(request, by_id))\n", ""),),
        ("test_fetch.py::test_a_session_forgets_what_it_is_told_to_forget",),
    ),
    Mutant(
        "session-epoch-unchecked",
        "A session goes on with any epoch, so that a lost reply is never noticed.",
        (Edit(_SESSIONS, "        if session.epoch != epoch:", "        if epoch < 0:"),),
        ("test_fetch.py::test_a_session_goes_on_only_with_its_next_epoch",),
    ),
    Mutant(
        "session-id-reused",
        "Two clients are given the same session.",
        (
            Edit(
                _SESSIONS,
                "while session_id == INVALID_SESSION_ID or session_id in self._sessions:",
                "while session_id == INVALID_SESSION_ID:",
            ),
            Edit(_SESSIONS, "session_id = self._random.randint(1, _EPOCH_MAX)", "session_id = 1"),
        ),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
    Mutant(
        "closed-session-lives-on",
        "A session that the client has closed can be gone on with.",
        (
            Edit(
                _HANDLER,
                "        if request.session_id != INVALID_SESSION_ID:\n            sessions.remove",
                "        if request.session_id == INVALID_SESSION_ID:\n            sessions.remove",
            ),
        ),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
)
