"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_PARTITION = "pybroker.replication.partition"
_SEARCH = "pybroker_protocol.record_search"

MUTANTS = (
    Mutant(
        "latest-ignores-isolation",
        "The latest offset of a reader of committed data lies behind an open transaction.",
        (
            Edit(
                _PARTITION,
                "return TimestampOffset(-1, self.upper_bound(read_committed), self.leader_epoch)",
                "return TimestampOffset(-1, self.upper_bound(False), self.leader_epoch)",
            ),
        ),
        ("test_transactions.py::test_committed_readers_stop_at_an_open_transaction",),
    ),
    Mutant(
        "timestamp-past-the-end-is-the-end",
        "A timestamp past the end finds the end of the log instead of nothing.",
        (
            Edit(
                _PARTITION,
                "        if found is None or found.offset >= self.upper_bound(read_committed):\n"
                "            return TimestampOffset(-1, -1, -1)",
                "        if found is None or found.offset >= self.upper_bound(read_committed):\n"
                "            return TimestampOffset(-1, self.upper_bound(read_committed), -1)",
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_past_the_end_finds_nothing",),
    ),
    Mutant(
        "timestamp-finds-the-batch",
        "A timestamp finds the first record of its batch, which may be older.",
        (
            Edit(
                _SEARCH,
                "_ANY_TIME if header.is_log_append_time else timestamp_ms - header.base_timestamp,",
                "_ANY_TIME,",
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_finds_the_first_record_that_is_not_older",),
    ),
    Mutant(
        "timestamp-finds-only-newer",
        "A timestamp finds the first record that is newer, and misses the one of that very time.",
        (
            Edit(
                _SEARCH,
                "_ANY_TIME if header.is_log_append_time else timestamp_ms - header.base_timestamp,",
                "_ANY_TIME if header.is_log_append_time else timestamp_ms + 1 - header.base_timestamp,",
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_finds_the_first_record_that_is_not_older",),
    ),
    Mutant(
        "max-timestamp-is-the-last",
        "The largest timestamp is taken for that of the last record.",
        (
            Edit(
                _PARTITION,
                "found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else "
                "log.offset_for_timestamp(timestamp)",
                "found = TimestampOffset(-1, log.log_end_offset - 1, 0) if timestamp == MAX_TIMESTAMP else "
                "log.offset_for_timestamp(timestamp)",
            ),
        ),
        ("test_list_offsets.py::test_the_largest_timestamp_need_not_be_the_last",),
    ),
    Mutant(
        "latest-tiered-is-the-latest",
        "Without tiered storage the latest tiered offset is the end of the log, so that readers look for data there.",
        (
            Edit(
                _PARTITION,
                "if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):\n"
                "            return TimestampOffset(-1, -1, -1)",
                "if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):\n"
                "            return TimestampOffset(-1, log.high_watermark, -1)",
            ),
        ),
        ("test_list_offsets.py::test_without_tiered_storage_nothing_is_tiered",),
    ),
    Mutant(
        "special-timestamps-in-every-version",
        "Special timestamps are served in versions that do not have them.",
        (
            Edit(
                "pybroker.handlers.list_offsets",
                "_SINCE.get(asked.timestamp, _NEVER) > ctx.api_version",
                "asked.timestamp not in _SINCE",
            ),
        ),
        ("test_list_offsets.py::test_a_special_timestamp_is_refused_before_its_version",),
    ),
    Mutant(
        "earliest-is-zero",
        "The earliest offset is 0 though the first records were deleted.",
        (
            Edit(
                _PARTITION,
                "return TimestampOffset(-1, log.log_start_offset, self._epoch_of_start())",
                "return TimestampOffset(-1, 0, self._epoch_of_start())",
            ),
        ),
        (
            "test_fetch.py::test_deleted_records_are_out_of_range",
            "test_topics.py::test_records_are_deleted_up_to_an_offset",
        ),
    ),
)
