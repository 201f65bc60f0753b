"""Metadata and topics."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "no-topics-are-all-in-metadata",
        "Metadata of no topics brings all of them.",
        (
            Edit(
                "metadata._answer",
                "request.topics is None or (ctx.api_version == 0 and not request.topics)",
                "not request.topics",
            ),
        ),
        ("test_topics.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "no-topics-are-none-in-version-0",
        "Metadata 0 of no topics brings none, though it cannot ask for all in another way.",
        (
            Edit(
                "metadata._answer",
                "request.topics is None or (ctx.api_version == 0 and not request.topics)",
                "request.topics is None",
            ),
        ),
        ("test_topics.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "topics-made-unasked",
        "Metadata makes topics though the client does not want that: a mistyped name stays for ever.",
        (Edit("_answer_by_name", "request.allow_auto_topic_creation", "True"),),
        ("test_topics.py::test_an_unknown_topic_is_made_only_for_who_wants_it",),
    ),
    Mutant(
        "auto-creation-cannot-be-switched-off",
        "auto.create.topics.enable is ignored.",
        (Edit("_answer_by_name", 'services.config.get_bool("auto.create.topics.enable")', "True"),),
        ("test_topics.py::test_no_topic_is_made_where_that_is_switched_off",),
    ),
    Mutant(
        "auto-creation-does-nothing",
        "Metadata never makes a topic.",
        (Edit("_answer_by_name", "services.auto_topic_creation.begin", "(lambda *_: None)"),),
        ("test_topics.py::test_an_unknown_topic_is_made_only_for_who_wants_it",),
    ),
    Mutant(
        "internal-topics-look-like-others",
        "Internal topics are not marked as such, and pattern subscriptions read them.",
        (Edit("metadata._topic", "topic.is_internal", "False"),),
        ("test_groups.py::test_the_topic_of_committed_offsets_is_internal",),
    ),
    Mutant(
        "leader-epoch-untold",
        "Metadata does not tell the leader epoch, and clients cannot tell old news from new.",
        (Edit("metadata._partition", "partition.leader_epoch", "-1"),),
        ("test_topics.py::test_a_partition_has_a_leader_among_the_brokers",),
    ),
    Mutant(
        "metadata-by-unknown-id-as-name",
        "Metadata of an unknown topic id says UNKNOWN_TOPIC_OR_PARTITION.",
        (Edit("_answer_by_id", "ErrorCode.UNKNOWN_TOPIC_ID", "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION"),),
        ("test_topics.py::test_topics_are_known_by_their_ids",),
    ),
    Mutant(
        "page-begins-at-the-first-partition",
        "The cursor of DescribeTopicPartitions is ignored, and the client pages for ever.",
        (Edit("describe_topic_partitions.handle", "page.first_index if position == 0 else 0", "0"),),
        ("test_topics.py::test_partitions_are_described_page_by_page",),
    ),
    # --- topics
    Mutant(
        "create-topics-all-or-nothing",
        "One bad topic keeps the good ones of its request from being created.",
        (
            Edit(
                "topic_changes.create_topics",
                "results[topic.name] = TopicCreation(topic.name, refused.error_code, refused.message)",
                """
                results[topic.name] = TopicCreation(topic.name, refused.error_code, refused.message)
                return [TopicCreation(each.name, refused.error_code, refused.message) for each in topics]
                """,
            ),
        ),
        (
            "test_topics.py::test_a_mixed_request_creates_the_valid_topics",
            "test_topics.py::test_a_topic_named_twice_is_refused",
        ),
    ),
    Mutant(
        "topic-named-twice-created",
        "Of a topic that is named twice in a request one wins.",
        (
            Edit(
                "topic_changes.create_topics",
                """
                if counts[topic.name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                """,
                """
                if topic.name in results:
                    continue
                """,
            ),
        ),
        ("test_topics.py::test_a_topic_named_twice_is_refused",),
    ),
    Mutant(
        "existing-topic-created-again",
        "A topic that exists is created again, and its data are lost.",
        (
            Edit(
                "topic_changes._check_name",
                "name in image.topics_by_name",
                "name in INTERNAL_TOPICS and name in image.topics_by_name",
            ),
        ),
        ("test_topics.py::test_a_mixed_request_creates_the_valid_topics",),
    ),
    Mutant(
        "validation-creates",
        "A CreateTopics that is only to be validated creates.",
        (Edit("create_topics.handle", "request.validate_only", "False"),),
        ("test_topics.py::test_validating_creates_nothing",),
    ),
    Mutant(
        "colliding-names-created",
        "Two topics whose names differ only in dots and underscores are created, and their metrics are one.",
        (Edit("topic_changes._check_name", "colliding_name(name, image.topics_by_name)", "colliding_name(name, ())"),),
        ("test_topics.py::test_names_that_differ_in_dots_and_underscores_alone_collide",),
    ),
    Mutant(
        "created-partitions-answered-in-part",
        "Of the topics of a CreatePartitions only the refused ones are answered.",
        (
            Edit(
                "create_partitions.handle",
                "results[result.name] = _result(result)",
                """
                if result.error_code:
                    results[result.name] = _result(result)
                """,
            ),
        ),
        ("test_topics.py::test_every_topic_of_a_create_partitions_is_answered",),
    ),
    Mutant(
        "partitions-shrink",
        "CreatePartitions to fewer partitions than there are is granted.",
        (
            Edit(
                "topic_changes.create_partitions",
                "yield from _grow_topic(builder, topic, random, allows)",
                """
                known = builder.view().topics_by_name.get(topic.name)
                if known is None or topic.total_count >= len(known.partitions):
                    yield from _grow_topic(builder, topic, random, allows)
                """,
            ),
        ),
        ("test_topics.py::test_every_topic_of_a_create_partitions_is_answered",),
    ),
    Mutant(
        "records-deleted-past-the-end",
        "DeleteRecords past the end deletes all there is and says that it went well.",
        (Edit("Log.increment_log_start_offset", "return OFFSET_OUT_OF_RANGE", "offset = self.high_watermark"),),
        ("test_topics.py::test_records_are_deleted_up_to_an_offset",),
    ),
    Mutant(
        "records-of-compacted-topics-deleted",
        "DeleteRecords cuts a compacted topic, whose newest values are not its last records.",
        (
            Edit(
                "Partition.delete_records", '"delete" not in log.config.cleanup_policy', "not log.config.cleanup_policy"
            ),
        ),
        ("test_topics.py::test_records_of_a_compacted_topic_are_not_deleted",),
    ),
    # --- internal topics
    Mutant(
        "committed-offsets-deleted-by-retention",
        "The topic of committed offsets is not compacted, and retention deletes what groups have committed.",
        (Edit("CoordinatorType.new_topic", "dict(self.configs)", '{"cleanup.policy": "delete"}'),),
        ("test_internal_topics.py::test_internal_topics_are_made_when_they_are_first_needed",),
    ),
    Mutant(
        "offsets-topic-like-others",
        "The topic of committed offsets has as many partitions as any other topic.",
        (
            Edit(
                "CoordinatorType.new_topic",
                "self.partition_count(config)",
                'config.get_int("num.partitions")',
            ),
        ),
        ("test_internal_topics.py::test_internal_topics_are_made_when_they_are_first_needed",),
    ),
    Mutant(
        "internal-topics-only-by-the-broker",
        "An internal topic that a client has made is not taken for one.",
        (Edit("_create_topic", "topic.name in INTERNAL_TOPICS", "len(topic.configs) > 2"),),
        ("test_internal_topics.py::test_a_client_may_make_an_internal_topic_before_it_is_needed",),
    ),
    Mutant(
        "minimum-of-in-sync-replicas-unset",
        "Eligible leader replicas are tracked, but min.insync.replicas is not set for all brokers together.",
        (Edit("prepare_settings", "MIN_INSYNC_REPLICAS not in for_all", "MIN_INSYNC_REPLICAS in for_all"),),
        ("test_topics.py::test_the_minimum_of_in_sync_replicas_is_set_for_all_brokers_and_for_none_alone",),
    ),
    Mutant(
        "minimum-of-in-sync-replicas-for-one-broker",
        "One broker may have a min.insync.replicas of its own while eligible leader replicas are tracked.",
        (
            Edit(
                "eligible_replicas.refusal",
                "change.resource_name and (is_named or is_dropped)",
                "change.resource_name and is_dropped",
            ),
        ),
        ("test_topics.py::test_the_minimum_of_in_sync_replicas_is_set_for_all_brokers_and_for_none_alone",),
    ),
    Mutant(
        "default-of-a-group-untold",
        "A group's own setting hides the default behind it where brokers have no name for it.",
        (
            Edit(
                "group_entries",
                """
                if broker_name is not None:
                    synonyms += broker_synonyms(config, broker_name)
                elif setting is not None:
                    synonyms.append(Synonym(name, value_text(setting.default), DEFAULT_CONFIG))
                """,
                """
                if broker_name is not None:
                    synonyms += broker_synonyms(config, broker_name)
                elif setting is not None and not synonyms:
                    synonyms.append(Synonym(name, value_text(setting.default), DEFAULT_CONFIG))
                """,
            ),
        ),
        ("test_topics.py::test_a_setting_of_a_group_that_brokers_have_no_name_for_has_its_default_behind_it",),
    ),
)
