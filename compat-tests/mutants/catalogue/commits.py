"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_METADATA_KEPT = "test_commits.py::test_a_commit_keeps_its_metadata_and_its_leader_epoch"
_STALE = "test_commits.py::test_a_stale_member_does_not_commit"
_ALIKE = "test_commits.py::test_commits_that_are_alike_are_kept_one_by_one"

MUTANTS = (
    Mutant(
        "commit-metadata-lost",
        "The metadata string of a commit is lost.",
        (Edit("_offset_value", 'partition.committed_metadata or ""', '""'),),
        (_METADATA_KEPT,),
    ),
    Mutant(
        "commit-leader-epoch-lost",
        "The leader epoch of a commit is lost, and with it the protection against a truncated log.",
        (Edit("_offset_value", "partition.committed_leader_epoch", "NO_LEADER_EPOCH"),),
        (_METADATA_KEPT,),
    ),
    Mutant(
        "commit-metadata-unbounded",
        "The metadata of a commit may be of any size.",
        (
            Edit(
                "offset_operations.commit_offsets",
                "len(partition.committed_metadata) > metadata_max",
                "metadata_max < 0",
            ),
        ),
        ("test_commits.py::test_metadata_has_a_bound",),
    ),
    Mutant(
        "commit-only-forward",
        "A lower offset than the last is not taken, so that nobody can go back.",
        (
            Edit(
                "GroupCoordinatorShard.replay",
                "topic.values[read_partition(key)] = value",
                """
                partition = read_partition(key)
                topic.values[partition] = max(topic.values.get(partition, value), value)
                """,
            ),
            Edit(
                "GroupCoordinatorShard._replay_offset",
                "topic_offsets.values[partition] = value",
                "topic_offsets.values[partition] = max(topic_offsets.values.get(partition, value), value)",
            ),
        ),
        ("test_commits.py::test_the_last_commit_counts_even_if_it_is_lower",),
    ),
    Mutant(
        "commit-of-any-generation",
        "A member that missed a rebalance commits for partitions that others have by now.",
        (
            Edit(
                "ClassicGroup.check_offset_commit",
                """
                if generation_id != self.generation_id:
                    return ErrorCode.ILLEGAL_GENERATION
                """,
                "",
            ),
        ),
        (_STALE, _ALIKE),
    ),
    Mutant(
        "repeated-commit-unchecked",
        "Of commits that are alike only the first is checked: the front has a rule less than the ordinary way.",
        (
            Edit(
                "offset_operations.commit_offsets_again",
                "_accept(group, commit.request, commit.api_version, result)",
                "0",
            ),
        ),
        (_ALIKE,),
    ),
    Mutant(
        "repeated-commit-keeps-the-first-epoch",
        "Of commits that are alike each is stored with the leader epoch of none.",
        (
            Edit(
                "RepeatedCommit.add_records",
                "pack_offset(offset, leader_epoch, metadata, now_ms, topic_id)",
                "pack_offset(offset, -1, metadata, now_ms, topic_id)",
            ),
        ),
        (_ALIKE,),
    ),
    Mutant(
        "commit-while-the-leader-assigns",
        "A commit is taken while the leader assigns, though it may be for partitions that move.",
        (Edit("ClassicGroup.check_offset_commit", "ClassicState.COMPLETING_REBALANCE", "ClassicState.DEAD"),),
        ("test_commits.py::test_commits_during_a_rebalance",),
    ),
    Mutant(
        "simple-consumer-among-members",
        "Who is no member commits for a group that has some.",
        (
            Edit("ClassicGroup.check_offset_commit", "0 if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID", "0"),
            Edit(
                "offset_operations._accept",
                "group.state in _STATES_WITH_SESSIONS",
                "request.member_id in group.members",
            ),
        ),
        ("test_commits.py::test_the_simple_consumer_commits_only_where_nobody_is_a_member",),
    ),
    Mutant(
        "group-not-found-told-to-all",
        "Clients that do not know GROUP_ID_NOT_FOUND are told it.",
        (Edit("_check_commit", "api_version >= GROUP_ID_NOT_FOUND_VERSION", "api_version >= 0"),),
        ("test_commits.py::test_a_generation_of_a_group_that_is_not_there",),
    ),
    Mutant(
        "commit-for-partitions-that-are-not",
        "Offsets are kept for partitions that do not exist.",
        (
            Edit(
                "offset_commit._split",
                "not 0 <= partition.partition_index < count",
                "partition.partition_index >= 1000 * count",
            ),
        ),
        ("test_commits.py::test_partitions_that_are_not_there_are_refused_one_by_one",),
    ),
    Mutant(
        "commit-by-unknown-id-as-name",
        "A commit by an unknown topic id hears UNKNOWN_TOPIC_OR_PARTITION.",
        (Edit("offset_commit._resolve", "ErrorCode.UNKNOWN_TOPIC_ID", "ErrorCode.UNKNOWN_TOPIC_OR_PARTITION"),),
        ("test_commits.py::test_offsets_are_committed_and_fetched_by_topic_id",),
    ),
    Mutant(
        "nothing-committed-is-zero",
        "Where nothing is committed the offset is 0, and auto.offset.reset never counts.",
        (Edit("offset_operations.NO_OFFSET", "-1", "0"),),
        ("test_commits.py::test_nothing_committed_is_minus_one",),
    ),
    Mutant(
        "null-topics-are-none",
        "OffsetFetch of null topics brings none instead of all.",
        (
            Edit(
                "offset_operations.fetch_offsets",
                "offsets.topics(group_id) if exists else ()",
                "offsets.topics(group_id) if not exists else ()",
            ),
        ),
        ("test_commits.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "no-topics-are-all",
        "OffsetFetch of no topics brings all of them.",
        (Edit("offset_operations.fetch_offsets", "request.topics is None", "not request.topics"),),
        ("test_commits.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "only-the-first-group-fetched",
        "Of many groups in an OffsetFetch only the first is answered.",
        (Edit("offset_fetch.handle", "request.groups", "request.groups[:1]"),),
        ("test_commits.py::test_groups_are_fetched_together_and_kept_apart",),
    ),
    Mutant(
        "unstable-offsets-shown",
        "Who insists on stable offsets is given one that an open transaction may change.",
        (Edit("_fetch_one", "offsets.is_unstable(group_id, topic, partition)", "partition < 0"),),
        ("test_transactions.py::test_offsets_of_a_transaction_count_when_it_is_committed",),
    ),
    Mutant(
        "deleted-offset-stays",
        "OffsetDelete says that it is done, and writes no tombstone.",
        (
            Edit(
                "offset_operations.delete_offsets", "_tombstones(offsets, request.group_id, topic.name, indexes)", "[]"
            ),
        ),
        ("test_commits.py::test_a_deleted_offset_is_gone",),
    ),
    Mutant(
        "offsets-in-use-deleted",
        "Offsets of a topic that a member reads are deleted.",
        (Edit("offset_operations.delete_offsets", "group.is_subscribed_to(topic.name)", "not topic.name"),),
        ("test_commits.py::test_offsets_of_a_topic_that_is_read_are_not_deleted",),
    ),
    Mutant(
        "offsets-outlive-their-group",
        "A deleted group that is founded anew finds its old offsets.",
        (
            Edit(
                "all_tombstones",
                "[topic.tombstone(partition) for topic in offsets.topics(group_id) for partition in topic.values]",
                "list[Record]()",
            ),
        ),
        ("test_commits.py::test_offsets_go_with_their_group",),
    ),
)
