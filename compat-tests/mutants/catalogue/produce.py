"""Produce: what is refused, timestamps, idempotence."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_VALIDATOR = "pybroker.storage.validator"
_PRODUCERS = "pybroker.storage.producer_state"
_PRODUCE = "pybroker.handlers.produce"
_REPLICAS = "pybroker.replication.replica_manager"

_UNSOUND = "test_produce.py::test_a_batch_that_is_not_sound_leaves_no_trace"

MUTANTS = (
    Mutant(
        "crc-unchecked",
        "A batch with a wrong checksum is stored.",
        (Edit(_VALIDATOR, "        and crc32c(records[ATTRIBUTES_AT:]) == crc\n", ""),),
        (_UNSOUND, "test_produce.py::test_each_partition_is_answered_for_itself"),
    ),
    Mutant(
        "max-message-bytes-ignored",
        "A batch larger than max.message.bytes is stored.",
        (
            Edit(
                _VALIDATOR, "length + LOG_OVERHEAD == size <= rules.max_message_bytes", "length + LOG_OVERHEAD == size"
            ),
        ),
        ("test_produce.py::test_a_batch_may_be_as_large_as_the_topic_says",),
    ),
    Mutant(
        "max-message-bytes-off-by-one",
        "A batch of just max.message.bytes is refused.",
        (
            Edit(
                _VALIDATOR,
                "length + LOG_OVERHEAD == size <= rules.max_message_bytes",
                "length + LOG_OVERHEAD == size < rules.max_message_bytes",
            ),
            Edit(
                _VALIDATOR,
                "    if len(records) > rules.max_message_bytes:",
                "    if len(records) >= rules.max_message_bytes:",
            ),
        ),
        ("test_produce.py::test_a_batch_may_be_as_large_as_the_topic_says",),
    ),
    Mutant(
        "keyless-records-compacted",
        "A record without a key gets into a compacted topic, where the cleaner can do nothing with it.",
        (
            Edit(
                "pybroker.storage.record_validator",
                "keys_wanted=rules.compacted,",
                "keys_wanted=False,",
            ),
        ),
        ("test_produce.py::test_compacted_topics_want_keys",),
    ),
    Mutant(
        "control-batch-of-a-client",
        "A client may write control batches, and so end transactions of others.",
        (
            Edit(
                _VALIDATOR,
                "_FORBIDDEN_FLAGS = TIMESTAMP_TYPE_FLAG | CONTROL_FLAG",
                "_FORBIDDEN_FLAGS = TIMESTAMP_TYPE_FLAG",
            ),
        ),
        (_UNSOUND,),
    ),
    Mutant(
        "record-count-unchecked",
        "A batch whose record count and last offset delta disagree is stored, and leaves a hole in the offsets.",
        (Edit(_VALIDATOR, "        and count == last_offset_delta + 1\n", ""),),
        (_UNSOUND,),
    ),
    Mutant(
        "zstd-for-everybody",
        "Zstd is taken from clients whose version does not have it.",
        (
            Edit(_VALIDATOR, "and attributes & COMPRESSION_MASK < ZSTD", "and attributes & COMPRESSION_MASK <= ZSTD"),
            Edit(_VALIDATOR, "_ZSTD_PRODUCE_VERSION = 7", "_ZSTD_PRODUCE_VERSION = 3"),
        ),
        ("test_produce.py::test_zstd_is_for_clients_that_know_it",),
    ),
    Mutant(
        "internal-topics-writable",
        "Any client may write to the coordinators' topics.",
        (
            Edit(
                _PRODUCE,
                "if partition.topic in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT:",
                "if partition.topic in INTERNAL_TOPICS and ctx.client_id == _ADMIN_CLIENT:",
            ),
        ),
        ("test_produce.py::test_clients_do_not_write_to_internal_topics",),
    ),
    Mutant(
        "acks-unchecked",
        "Acknowledgements that do not exist are taken for all.",
        (Edit(_PRODUCE, "if request.acks not in (-1, 0, 1):", "if request.acks is None:"),),
        ("test_produce.py::test_acks_that_do_not_exist_are_refused",),
    ),
    Mutant(
        "unknown-topic-id-as-name",
        "An unknown topic id is answered as an unknown name is, and the client does not look for the topic's new id.",
        (
            Edit(
                _REPLICAS,
                "        if image is None and isinstance(topic, bytes):\n            return ErrorCode.UNKNOWN_TOPIC_ID",
                "        if image is None and isinstance(topic, bytes):\n"
                "            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION",
            ),
        ),
        ("test_produce.py::test_a_topic_id_that_nobody_has_is_unknown",),
    ),
    Mutant(
        "topic-id-of-the-name",
        "A topic made anew has the id of the one that was deleted.",
        (
            Edit(
                "pybroker.cluster.decisions.topics",
                "topic_id = rules.new_uuid()",
                'topic_id = topic.name.encode()[-16:].rjust(16, b"t")',
            ),
        ),
        ("test_produce.py::test_a_topic_made_anew_has_another_id",),
    ),
    # --- timestamps
    Mutant(
        "log-append-time-ignored",
        "The producer's timestamps stay though the topic wants the broker's.",
        (
            Edit(
                _VALIDATOR,
                'self.log_append_time = config.message_timestamp_type == "LogAppendTime"',
                "self.log_append_time = False",
            ),
        ),
        ("test_produce.py::test_log_append_time_is_the_brokers",),
    ),
    Mutant(
        "log-append-time-untold",
        "The stored batch has the broker's time, but the producer is not told of it.",
        (
            Edit(
                _PRODUCE,
                "    reply.log_append_time_ms = result.log_append_time_ms",
                "    reply.log_append_time_ms = -1",
            ),
        ),
        ("test_produce.py::test_log_append_time_is_the_brokers",),
    ),
    Mutant(
        "timestamps-of-the-future",
        "message.timestamp.after.max.ms is ignored, and a record of the far future keeps its segment for ever.",
        (
            Edit(
                _VALIDATOR,
                "        and (max_timestamp - now_ms <= rules.timestamp_after_max_ms or rules.log_append_time)\n",
                "",
            ),
        ),
        ("test_produce.py::test_a_timestamp_of_the_far_future_is_refused",),
    ),
    # --- idempotence
    Mutant(
        "duplicate-appended",
        "A batch that a producer repeats is appended again.",
        (
            Edit(
                _PRODUCERS,
                "                if batch[0] == base_sequence and batch[1] == last_sequence:\n"
                "                    return batch",
                "                if batch[0] == base_sequence and batch[1] == last_sequence:\n"
                "                    return None",
            ),
        ),
        (
            "test_produce.py::test_each_of_the_last_five_batches_is_known_again",
            "test_produce.py::test_duplicates_among_many_requests_at_once_are_written_once",
        ),
    ),
    Mutant(
        "duplicate-told-the-last-offset",
        "A repeated batch is answered with the offset of the newest one.",
        (
            Edit(
                _PRODUCERS,
                "                if batch[0] == base_sequence and batch[1] == last_sequence:\n"
                "                    return batch",
                "                if batch[0] == base_sequence and batch[1] == last_sequence:\n"
                "                    return batches[-1]",
            ),
        ),
        ("test_produce.py::test_each_of_the_last_five_batches_is_known_again",),
    ),
    Mutant(
        "four-batches-remembered",
        "The fifth batch in flight is not known again when it is repeated.",
        (Edit(_PRODUCERS, "BATCHES_RETAINED = 5", "BATCHES_RETAINED = 4"),),
        ("test_produce.py::test_each_of_the_last_five_batches_is_known_again",),
    ),
    Mutant(
        "sequence-gap-accepted",
        "A batch is appended though the one before it is missing.",
        (
            Edit(
                _PRODUCERS,
                "            return self._out_of_order(producer_id, base_sequence, last_sequence, batches)",
                "            return None",
            ),
        ),
        (
            "test_produce.py::test_a_gap_in_the_sequence_is_refused",
            "test_produce.py::test_a_batch_older_than_the_five_is_refused",
        ),
    ),
    Mutant(
        "sequence-unchecked-among-many",
        "Sequences are not checked where requests come in a run: the short way has a rule less than the long one.",
        (
            Edit(
                "pybroker.storage.append_run",
                "if producers.check(producer_id, epoch, sequence, last_offset_delta, 0) is not None:",
                "if producers.check_epoch(producer_id, epoch) is not None:",
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
        (
            Edit(
                _PRODUCERS,
                "(batches[-1][1] + 1) & _LAST_SEQUENCE if batches else 0",
                "batches[-1][1] + 1 if batches else 0",
            ),
        ),
        ("test_produce.py::test_sequences_wrap_to_0",),
    ),
    Mutant(
        "producer-epoch-unfenced",
        "A producer of an older epoch goes on writing.",
        (
            Edit(
                _PRODUCERS,
                "            return _old_epoch(producer_id, producer_epoch, entry)\n        if base_sequence != 0",
                "            return None\n        if base_sequence != 0",
            ),
        ),
        ("test_produce.py::test_an_older_epoch_is_fenced_and_a_new_one_begins_at_0",),
    ),
    Mutant(
        "new-epoch-begins-anywhere",
        "A new epoch may begin in the middle of a sequence.",
        (
            Edit(
                _PRODUCERS,
                "if base_sequence != 0 and entry.producer_epoch >= 0:",
                "if base_sequence < 0 and entry.producer_epoch >= 0:",
            ),
        ),
        ("test_produce.py::test_an_older_epoch_is_fenced_and_a_new_one_begins_at_0",),
    ),
)
