"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "latest-ignores-isolation",
        "The latest offset of a reader of committed data lies behind an open transaction.",
        (Edit("Partition.offset_for", "self.upper_bound(read_committed)", "self.upper_bound(False)"),),
        ("test_transactions.py::test_committed_readers_stop_at_an_open_transaction",),
    ),
    Mutant(
        "timestamp-past-the-end-is-the-end",
        "A timestamp past the end finds the end of the log instead of nothing.",
        (
            Edit(
                "Partition.shown",
                "TimestampOffset(-1, -1, -1)",
                "TimestampOffset(-1, self.upper_bound(read_committed), -1)",
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_past_the_end_finds_nothing",),
    ),
    Mutant(
        "timestamp-finds-the-batch",
        "A timestamp finds the first record of its batch, which may be older.",
        (
            Edit(
                "first_record_since",
                "_ANY_TIME if header.is_log_append_time else timestamp_ms - header.base_timestamp",
                "_ANY_TIME",
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_finds_the_first_record_that_is_not_older",),
    ),
    Mutant(
        "timestamp-finds-only-newer",
        "A timestamp finds the first record that is newer, and misses the one of that very time.",
        (
            Edit(
                "first_record_since", "timestamp_ms - header.base_timestamp", "timestamp_ms + 1 - header.base_timestamp"
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_finds_the_first_record_that_is_not_older",),
    ),
    Mutant(
        "max-timestamp-is-the-last",
        "The largest timestamp is taken for that of the last record.",
        (
            Edit(
                "partition._search",
                "log.offset_of_max_timestamp()",
                "TimestampOffset(-1, log.log_end_offset - 1, 0)",
            ),
        ),
        ("test_list_offsets.py::test_the_largest_timestamp_need_not_be_the_last",),
    ),
    Mutant(
        "latest-tiered-is-the-latest",
        "Without tiered storage the latest tiered offset is the end of the log, so that readers look for data there.",
        (Edit("_fixed_offset", "TimestampOffset(-1, -1, -1)", "TimestampOffset(-1, log.high_watermark, -1)"),),
        ("test_list_offsets.py::test_without_tiered_storage_nothing_is_tiered",),
    ),
    Mutant(
        "special-timestamps-in-every-version",
        "Special timestamps are served in versions that do not have them.",
        (
            Edit(
                "list_offsets._answer",
                "_SINCE.get(asked.timestamp, _NEVER) > ctx.api_version",
                "asked.timestamp not in _SINCE",
            ),
        ),
        ("test_list_offsets.py::test_a_special_timestamp_is_refused_before_its_version",),
    ),
    Mutant(
        "earliest-is-zero",
        "The earliest offset is 0 though the first records were deleted.",
        (Edit("_fixed_offset", "TimestampOffset(-1, log.log_start_offset, epoch)", "TimestampOffset(-1, 0, epoch)"),),
        (
            "test_fetch.py::test_deleted_records_are_out_of_range",
            "test_topics.py::test_records_are_deleted_up_to_an_offset",
        ),
    ),
)
