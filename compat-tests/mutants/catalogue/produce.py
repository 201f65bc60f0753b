"""Produce: what is refused, timestamps, idempotence."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_UNSOUND = "test_produce.py::test_a_batch_that_is_not_sound_leaves_no_trace"

MUTANTS = (
    Mutant(
        "crc-unchecked",
        "A batch with a wrong checksum is stored.",
        (Edit("validate", "crc32c(records[ATTRIBUTES_AT:]) == crc", "True"),),
        (_UNSOUND, "test_produce.py::test_each_partition_is_answered_for_itself"),
    ),
    Mutant(
        "max-message-bytes-ignored",
        "A batch larger than max.message.bytes is stored.",
        (
            Edit(
                "validate", "length + LOG_OVERHEAD == size <= rules.max_message_bytes", "length + LOG_OVERHEAD == size"
            ),
        ),
        ("test_produce.py::test_a_batch_may_be_as_large_as_the_topic_says",),
    ),
    Mutant(
        "max-message-bytes-off-by-one",
        "A batch of just max.message.bytes is refused.",
        (
            Edit(
                "validate",
                "length + LOG_OVERHEAD == size <= rules.max_message_bytes",
                "length + LOG_OVERHEAD == size < rules.max_message_bytes",
            ),
            Edit("_reject_header", "len(records) > rules.max_message_bytes", "len(records) >= rules.max_message_bytes"),
        ),
        ("test_produce.py::test_a_batch_may_be_as_large_as_the_topic_says",),
    ),
    Mutant(
        "keyless-records-compacted",
        "A record without a key gets into a compacted topic, where the cleaner can do nothing with it.",
        (Edit("_notes", "rules.compacted", "False"),),
        ("test_produce.py::test_compacted_topics_want_keys",),
    ),
    Mutant(
        "control-batch-of-a-client",
        "A client may write control batches, and so end transactions of others.",
        (Edit("_FORBIDDEN_FLAGS", "TIMESTAMP_TYPE_FLAG | CONTROL_FLAG", "TIMESTAMP_TYPE_FLAG"),),
        (_UNSOUND,),
    ),
    Mutant(
        "record-count-unchecked",
        "A batch whose record count and last offset delta disagree is stored, and leaves a hole in the offsets.",
        (Edit("validate", "count == last_offset_delta + 1", "True"),),
        (_UNSOUND,),
    ),
    Mutant(
        "zstd-for-everybody",
        "Zstd is taken from clients whose version does not have it.",
        (
            Edit("validate", "attributes & COMPRESSION_MASK < ZSTD", "attributes & COMPRESSION_MASK <= ZSTD"),
            Edit("_ZSTD_PRODUCE_VERSION", "7", "3"),
        ),
        ("test_produce.py::test_zstd_is_for_clients_that_know_it",),
    ),
    Mutant(
        "internal-topics-writable",
        "Any client may write to the coordinators' topics.",
        (Edit("produce._refusal_of_partition", "ctx.client_id != _ADMIN_CLIENT", "ctx.client_id == _ADMIN_CLIENT"),),
        ("test_produce.py::test_clients_do_not_write_to_internal_topics",),
    ),
    Mutant(
        "acks-unchecked",
        "Acknowledgements that do not exist are taken for all.",
        (Edit("produce._refusal_of_request", "required_acks in _REQUIRED_ACKS", "required_acks is not None"),),
        ("test_produce.py::test_acks_that_do_not_exist_are_refused",),
    ),
    Mutant(
        "unknown-topic-id-as-name",
        "An unknown topic id is answered as an unknown name is, and the client does not look for the topic's new id.",
        (Edit("ReplicaManager.error_of", "ErrorCode.UNKNOWN_TOPIC_ID", "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION"),),
        ("test_produce.py::test_a_topic_id_that_nobody_has_is_unknown",),
    ),
    Mutant(
        "topic-id-of-the-name",
        "A topic made anew has the id of the one that was deleted.",
        (Edit("_create_topic", "rules.new_uuid()", 'topic.name.encode()[-16:].rjust(16, b"t")'),),
        ("test_produce.py::test_a_topic_made_anew_has_another_id",),
    ),
    # --- timestamps
    Mutant(
        "log-append-time-ignored",
        "The producer's timestamps stay though the topic wants the broker's.",
        (Edit("AppendRules.__init__", 'config.message_timestamp_type == "LogAppendTime"', "False"),),
        ("test_produce.py::test_log_append_time_is_the_brokers",),
    ),
    Mutant(
        "log-append-time-untold",
        "The stored batch has the broker's time, but the producer is not told of it.",
        (Edit("produce_appends.fill", "result.log_append_time_ms", "-1"),),
        ("test_produce.py::test_log_append_time_is_the_brokers",),
    ),
    Mutant(
        "timestamps-of-the-future",
        "message.timestamp.after.max.ms is ignored, and a record of the far future keeps its segment for ever.",
        (Edit("validate", "max_timestamp - now_ms <= rules.timestamp_after_max_ms or rules.log_append_time", "True"),),
        ("test_produce.py::test_a_timestamp_of_the_far_future_is_refused",),
    ),
    Mutant(
        "maximum-timestamp-believed",
        "A header's maximum timestamp is stored as a client claims it: records expire early, or are not found.",
        (Edit("with_maximum", "max_timestamp == header[MAX_TIMESTAMP]", "True"),),
        ("test_produce.py::test_a_header_that_claims_another_maximum_than_its_records_have_is_corrected",),
    ),
    Mutant(
        "future-behind-a-true-header",
        "message.timestamp.after.max.ms goes by what the header claims, not by the records.",
        (Edit("with_largest_delta", "largest - now_ms > rules.timestamp_after_max_ms", "False"),),
        ("test_produce.py::test_a_record_of_the_far_future_is_refused_whatever_the_header_claims",),
    ),
    # --- idempotence
    Mutant(
        "duplicate-appended",
        "A batch that a producer repeats is appended again.",
        (Edit("ProducerStateManager._check_sequence", "return batch", "return None"),),
        (
            "test_produce.py::test_each_of_the_last_five_batches_is_known_again",
            "test_produce.py::test_duplicates_among_many_requests_at_once_are_written_once",
        ),
    ),
    Mutant(
        "duplicate-told-the-last-offset",
        "A repeated batch is answered with the offset of the newest one.",
        (Edit("ProducerStateManager._check_sequence", "return batch", "return batches[-1]"),),
        ("test_produce.py::test_each_of_the_last_five_batches_is_known_again",),
    ),
    Mutant(
        "four-batches-remembered",
        "The fifth batch in flight is not known again when it is repeated.",
        (Edit("BATCHES_RETAINED", "5", "4"),),
        ("test_produce.py::test_each_of_the_last_five_batches_is_known_again",),
    ),
    Mutant(
        "sequence-gap-accepted",
        "A batch is appended though the one before it is missing.",
        (
            Edit(
                "ProducerStateManager._check_sequence",
                "self._out_of_order(producer_id, base_sequence, last_sequence, batches)",
                "None",
            ),
        ),
        (
            "test_produce.py::test_a_gap_in_the_sequence_is_refused",
            "test_produce.py::test_a_batch_older_than_the_five_is_refused",
        ),
    ),
    Mutant(
        "sequence-unchecked-among-many",
        "Sequences are not checked where requests come in a run: the front has a rule less than the ordinary way.",
        (
            Edit(
                "append_run.append_run",
                "place(log, records, header, leader_epoch, position, next_offset, formers)",
                "place(log, records, (*header[:9], -1, *header[10:]), leader_epoch, position, next_offset, formers)",
            ),
        ),
        (
            "test_produce.py::test_requests_that_are_alike_are_judged_one_by_one",
            "test_produce.py::test_duplicates_among_many_requests_at_once_are_written_once",
        ),
    ),
    Mutant(
        "sequence-does-not-wrap",
        "Behind the highest sequence number comes none: a producer that has sent 2^31 records is stuck.",
        (Edit("ProducerStateManager._check_sequence", "(batches[-1][1] + 1) & _LAST_SEQUENCE", "batches[-1][1] + 1"),),
        ("test_produce.py::test_sequences_wrap_to_0",),
    ),
    Mutant(
        "producer-epoch-unfenced",
        "A producer of an older epoch goes on writing.",
        (Edit("ProducerStateManager._check_sequence", "_old_epoch(producer_id, producer_epoch, entry)", "None"),),
        ("test_produce.py::test_an_older_epoch_is_fenced_and_a_new_one_begins_at_0",),
    ),
    Mutant(
        "new-epoch-begins-anywhere",
        "A new epoch may begin in the middle of a sequence.",
        (Edit("ProducerStateManager._check_sequence", "base_sequence != 0", "base_sequence < 0"),),
        ("test_produce.py::test_an_older_epoch_is_fenced_and_a_new_one_begins_at_0",),
    ),
)
