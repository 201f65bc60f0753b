"""Rules that the traps of the wire see and no test of a part of the broker does."""

from __future__ import annotations

from typing import Final

from mutants.mutant import EVERY, Edit, Mutant
from mutants.operators import always, instead, never, off_by_one

MUTANTS: Final = (
    # --- connections
    Mutant(
        "features-from-0-told-to-all",
        "Supported features that begin at 0 are shown below ApiVersions 4, whose clients cannot read them.",
        (Edit("api_versions.handle", off_by_one("low")),),
        ("test_connections.py::test_features_that_begin_at_0_are_left_out_below_version_4",),
    ),
    Mutant(
        "features-of-no-epoch",
        "The finalized features come with epoch -1, which tells clients to ignore them.",
        (Edit("api_versions.handle", instead("epoch", "-1")),),
        ("test_connections.py::test_finalized_features_say_which_protocols_are_served",),
    ),
    Mutant(
        "correlation-id-loses-its-sign",
        "A negative correlation id comes back as another number.",
        (Edit("Outbox.add", instead("correlation_id", "correlation_id & 0x7FFFFFFF"), EVERY),),
        ("test_connections.py::test_a_reply_carries_the_correlation_id_of_its_request",),
    ),
    # --- Produce
    Mutant(
        "max-message-bytes-off-by-one",
        "A batch of just max.message.bytes is refused.",
        (
            Edit("validator.validate", off_by_one("max_message_bytes")),
            Edit("validator._reject_header", off_by_one("max_message_bytes")),
        ),
        ("test_produce.py::test_a_batch_may_be_as_large_as_the_topic_says",),
    ),
    Mutant(
        "record-count-unchecked",
        "A batch whose record count and last offset delta disagree is stored, and leaves a hole in the offsets.",
        (Edit("validator.validate", always("last_offset_delta")),),
        ("test_produce.py::test_a_batch_that_is_not_sound_leaves_no_trace",),
    ),
    Mutant(
        "sequence-does-not-wrap",
        "Behind the highest sequence number comes none: a producer that has sent 2^31 records is stuck.",
        (Edit("ProducerStateManager._check_sequence", instead("_LAST_SEQUENCE", "-1"), EVERY),),
        ("test_produce.py::test_sequences_wrap_to_0",),
    ),
    Mutant(
        "acks-unchecked",
        "Acknowledgements that do not exist are taken for all.",
        (Edit("produce._refusal_of_request", always("_REQUIRED_ACKS")),),
        ("test_produce.py::test_acks_that_do_not_exist_are_refused",),
    ),
    Mutant(
        "unknown-topic-id-as-name",
        "An unknown topic id is answered as an unknown name is, and the client does not look for the topic's new id.",
        (Edit("ReplicaManager.error_of", instead("UNKNOWN_TOPIC_ID", "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION")),),
        ("test_produce.py::test_a_topic_id_that_nobody_has_is_unknown",),
    ),
    Mutant(
        "log-append-time-untold",
        "The stored batch has the broker's time, but the producer is not told of it.",
        (Edit("produce_appends.fill", instead("log_append_time_ms", "-1")),),
        ("test_produce.py::test_log_append_time_is_the_brokers",),
    ),
    Mutant(
        "idempotent-producers-share-an-id",
        "Producers without a transactional id are given the same producer id.",
        (Edit("init_producer_id.handle.done", instead("producer_id", "producer_id // 1000"), at=2),),
        ("test_transactions.py::test_an_idempotent_producer_gets_an_id_of_its_own",),
    ),
    # --- Fetch
    Mutant(
        "every-partition-passes-the-limit",
        "Every partition brings a batch, whatever the limit of the request is.",
        (Edit("FetchOperation._read_some", always("total")),),
        ("test_fetch.py::test_only_the_first_partition_may_pass_the_limit",),
    ),
    Mutant(
        "fetch-by-unknown-id-as-name",
        "A fetch by an unknown topic id hears UNKNOWN_TOPIC_OR_PARTITION.",
        (Edit("ReplicaManager.resolve", instead("UNKNOWN_TOPIC_ID", "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION"), EVERY),),
        ("test_fetch.py::test_topics_that_nobody_knows",),
    ),
    Mutant(
        "session-tells-everything",
        "An incremental reply tells of every partition, also where nothing is new.",
        (Edit("fetch_response.news", never("INITIAL_EPOCH")),),
        ("test_fetch.py::test_a_session_tells_only_what_is_new",),
    ),
    Mutant(
        "session-id-reused",
        "Two clients are given the same session.",
        (
            Edit("FetchSessionCache.begin", never("_sessions")),
            Edit("FetchSessionCache.begin", instead("randint", "1")),
        ),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
    Mutant(
        "closed-session-lives-on",
        "A session that the client has closed can be gone on with.",
        (Edit("fetch._session", never("INVALID_SESSION_ID")),),
        ("test_fetch.py::test_a_session_that_was_closed_is_not_there",),
    ),
    # --- ListOffsets
    Mutant(
        "timestamp-past-the-end-is-the-end",
        "A timestamp past the end finds the end of the log instead of nothing.",
        (
            Edit(
                "Partition.shown",
                instead("TimestampOffset", "TimestampOffset(-1, self.upper_bound(read_committed), -1)"),
            ),
        ),
        ("test_list_offsets.py::test_a_timestamp_past_the_end_finds_nothing",),
    ),
    Mutant(
        "max-timestamp-is-the-last",
        "The largest timestamp is taken for that of the last record.",
        (
            Edit(
                "partition._search",
                instead("offset_of_max_timestamp", "TimestampOffset(-1, log.log_end_offset - 1, 0)"),
            ),
        ),
        ("test_list_offsets.py::test_the_largest_timestamp_need_not_be_the_last",),
    ),
    Mutant(
        "earliest-is-zero",
        "The earliest offset is 0 though the first records were deleted.",
        (Edit("_fixed_offset", instead("TimestampOffset", "TimestampOffset(-1, 0, epoch)"), at=1),),
        (
            "test_fetch.py::test_deleted_records_are_out_of_range",
            "test_topics.py::test_records_are_deleted_up_to_an_offset",
        ),
    ),
    Mutant(
        "latest-tiered-is-the-latest",
        "Without tiered storage the latest tiered offset is the end of the log, so that readers look for data there.",
        (Edit("_fixed_offset", instead("TimestampOffset", "TimestampOffset(-1, log.high_watermark, -1)"), at=2),),
        ("test_list_offsets.py::test_without_tiered_storage_nothing_is_tiered",),
    ),
    Mutant(
        "special-timestamps-in-every-version",
        "Special timestamps are served in versions that do not have them.",
        (Edit("list_offsets._answer", never("_SINCE")),),
        ("test_list_offsets.py::test_a_special_timestamp_is_refused_before_its_version",),
    ),
    # --- groups and topics
    Mutant(
        "no-topics-are-all",
        "OffsetFetch of no topics brings all of them.",
        (Edit("offset_operations.fetch_offsets", always("topics")),),
        ("test_commits.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "colliding-names-created",
        "Two topics whose names differ only in dots and underscores are created, and their metrics are one.",
        (Edit("topic_changes._check_name", instead("colliding_name", "None")),),
        ("test_topics.py::test_names_that_differ_in_dots_and_underscores_alone_collide",),
    ),
    Mutant(
        "records-of-compacted-topics-deleted",
        "DeleteRecords cuts a compacted topic, whose newest values are not its last records.",
        (Edit("Partition.delete_records", never("cleanup_policy")),),
        ("test_topics.py::test_records_of_a_compacted_topic_are_not_deleted",),
    ),
    Mutant(
        "internal-topics-only-by-the-broker",
        "An internal topic that a client has made is not taken for one.",
        (Edit("_create_topic", never("INTERNAL_TOPICS")),),
        ("test_internal_topics.py::test_a_client_may_make_an_internal_topic_before_it_is_needed",),
    ),
)
