"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_OFFSETS = "pybroker.coordinators.group.offset_operations"
_REPEATED = "pybroker.coordinators.group.repeated_commit"
_GROUP = "pybroker.coordinators.group.classic_group"
_COMMIT = "pybroker.handlers.offset_commit"
_FETCH = "pybroker.handlers.offset_fetch"

_METADATA_KEPT = "test_commits.py::test_a_commit_keeps_its_metadata_and_its_leader_epoch"
_STALE = "test_commits.py::test_a_stale_member_does_not_commit"
_ALIKE = "test_commits.py::test_commits_that_are_alike_are_kept_one_by_one"

MUTANTS = (
    Mutant(
        "commit-metadata-lost",
        "The metadata string of a commit is lost.",
        (
            Edit(
                _OFFSETS,
                '    metadata = partition.committed_metadata or ""\n    if retention_ms',
                '    metadata = ""\n    if retention_ms',
            ),
        ),
        (_METADATA_KEPT,),
    ),
    Mutant(
        "commit-leader-epoch-lost",
        "The leader epoch of a commit is lost, and with it the protection against a truncated log.",
        (
            Edit(
                _OFFSETS,
                "return pack_offset(partition.committed_offset, partition.committed_leader_epoch, metadata",
                "return pack_offset(partition.committed_offset, NO_LEADER_EPOCH, metadata",
            ),
        ),
        (_METADATA_KEPT,),
    ),
    Mutant(
        "commit-metadata-unbounded",
        "The metadata of a commit may be of any size.",
        (
            Edit(
                _OFFSETS,
                "if partition.committed_metadata is not None and len(partition.committed_metadata) > metadata_max:",
                "if partition.committed_metadata is not None and metadata_max < 0:",
            ),
        ),
        ("test_commits.py::test_metadata_has_a_bound",),
    ),
    Mutant(
        "commit-only-forward",
        "A lower offset than the last is not taken, so that nobody can go back.",
        (
            Edit(
                "pybroker.coordinators.group.group_coordinator_shard",
                "            topic.values[read_partition(key)] = value",
                "            partition = read_partition(key)\n"
                "            topic.values[partition] = max(topic.values.get(partition, value), value)",
            ),
            Edit(
                "pybroker.coordinators.group.group_coordinator_shard",
                "        topic_offsets.values[partition] = value",
                "        topic_offsets.values[partition] = max(topic_offsets.values.get(partition, value), value)",
            ),
        ),
        ("test_commits.py::test_the_last_commit_counts_even_if_it_is_lower",),
    ),
    Mutant(
        "commit-of-any-generation",
        "A member that missed a rebalance commits for partitions that others have by now.",
        (
            Edit(
                _GROUP,
                "        if generation_id != self.generation_id:\n"
                "            return ErrorCode.ILLEGAL_GENERATION\n"
                "        if state is ClassicState.COMPLETING",
                "        if state is ClassicState.COMPLETING",
            ),
        ),
        (_STALE, _ALIKE),
    ),
    Mutant(
        "repeated-commit-unchecked",
        "Of commits that are alike only the first is checked: the short way has a rule less than the long one.",
        (
            Edit(
                _OFFSETS,
                "    result.response = _accept(group, commit.request, commit.api_version, result)",
                "    result.response = 0",
            ),
        ),
        (_ALIKE,),
    ),
    Mutant(
        "repeated-commit-keeps-the-first-epoch",
        "Of commits that are alike each is stored with the leader epoch of none.",
        (
            Edit(
                _REPEATED,
                "pack_offset(offset, leader_epoch, metadata, now_ms, topic_id)",
                "pack_offset(offset, -1, metadata, now_ms, topic_id)",
            ),
        ),
        (_ALIKE,),
    ),
    Mutant(
        "commit-while-the-leader-assigns",
        "A commit is taken while the leader assigns, though it may be for partitions that move.",
        (
            Edit(
                _GROUP,
                "        if state is ClassicState.COMPLETING_REBALANCE and not is_transactional:",
                "        if state is ClassicState.DEAD and not is_transactional:",
            ),
        ),
        ("test_commits.py::test_commits_during_a_rebalance",),
    ),
    Mutant(
        "simple-consumer-among-members",
        "Who is no member commits for a group that has some.",
        (
            Edit(_GROUP, "return 0 if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID", "return 0"),
            Edit(_OFFSETS, "group.state in _STATES_WITH_SESSIONS:", "request.member_id in group.members:"),
        ),
        ("test_commits.py::test_the_simple_consumer_commits_only_where_nobody_is_a_member",),
    ),
    Mutant(
        "group-not-found-told-to-all",
        "Clients that do not know GROUP_ID_NOT_FOUND are told it.",
        (Edit(_OFFSETS, "is_aware = api_version >= GROUP_ID_NOT_FOUND_VERSION", "is_aware = api_version >= 0"),),
        ("test_commits.py::test_a_generation_of_a_group_that_is_not_there",),
    ),
    Mutant(
        "commit-for-partitions-that-are-not",
        "Offsets are kept for partitions that do not exist.",
        (
            Edit(
                _COMMIT,
                "    unknown = [partition for partition in topic.partitions if not 0 <= "
                "partition.partition_index < count]",
                "    unknown = [partition for partition in topic.partitions if partition.partition_index >= "
                "1000 * count]",
            ),
        ),
        ("test_commits.py::test_partitions_that_are_not_there_are_refused_one_by_one",),
    ),
    Mutant(
        "commit-by-unknown-id-as-name",
        "A commit by an unknown topic id hears UNKNOWN_TOPIC_OR_PARTITION.",
        (
            Edit(
                _COMMIT,
                "        return ErrorCode.UNKNOWN_TOPIC_ID",
                "        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION",
            ),
        ),
        ("test_commits.py::test_offsets_are_committed_and_fetched_by_topic_id",),
    ),
    Mutant(
        "nothing-committed-is-zero",
        "Where nothing is committed the offset is 0, and auto.offset.reset never counts.",
        (Edit(_OFFSETS, "NO_OFFSET = -1", "NO_OFFSET = 0"),),
        ("test_commits.py::test_nothing_committed_is_minus_one",),
    ),
    Mutant(
        "null-topics-are-none",
        "OffsetFetch of null topics brings none instead of all.",
        (
            Edit(
                _OFFSETS,
                "for committed in offsets.topics(group_id) if exists else ():",
                "for committed in offsets.topics(group_id) if not exists else ():",
            ),
        ),
        ("test_commits.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "no-topics-are-all",
        "OffsetFetch of no topics brings all of them.",
        (Edit(_OFFSETS, "    if request.topics is None:\n", "    if not request.topics:\n"),),
        ("test_commits.py::test_null_topics_are_all_and_no_topics_are_none",),
    ),
    Mutant(
        "only-the-first-group-fetched",
        "Of many groups in an OffsetFetch only the first is answered.",
        (
            Edit(
                _FETCH,
                "groups = request.groups if ctx.api_version >= BATCHED_VERSION else [_as_group(request)]",
                "groups = request.groups[:1] if ctx.api_version >= BATCHED_VERSION else [_as_group(request)]",
            ),
        ),
        ("test_commits.py::test_groups_are_fetched_together_and_kept_apart",),
    ),
    Mutant(
        "unstable-offsets-shown",
        "Who insists on stable offsets is given one that an open transaction may change.",
        (
            Edit(
                _OFFSETS,
                "    if require_stable and offsets.is_unstable(group_id, topic, partition):",
                "    if require_stable and partition < 0:",
            ),
        ),
        ("test_transactions.py::test_offsets_of_a_transaction_count_when_it_is_committed",),
    ),
    Mutant(
        "deleted-offset-stays",
        "OffsetDelete says that it is done, and writes no tombstone.",
        (
            Edit(
                _OFFSETS,
                "            result.records += _tombstones(offsets, request.group_id, topic.name, indexes)",
                "            result.records += []",
            ),
        ),
        ("test_commits.py::test_a_deleted_offset_is_gone",),
    ),
    Mutant(
        "offsets-in-use-deleted",
        "Offsets of a topic that a member reads are deleted.",
        (
            Edit(
                _OFFSETS,
                "        subscribed = group.is_subscribed_to(topic.name)\n",
                "        subscribed = not topic.name\n",
            ),
        ),
        ("test_commits.py::test_offsets_of_a_topic_that_is_read_are_not_deleted",),
    ),
    Mutant(
        "offsets-outlive-their-group",
        "A deleted group that is founded anew finds its old offsets.",
        (
            Edit(
                _OFFSETS,
                "    records = [topic.tombstone(partition) for topic in offsets.topics(group_id) for "
                "partition in topic.values]",
                "    records: list[Record] = []",
            ),
        ),
        ("test_commits.py::test_offsets_go_with_their_group",),
    ),
)
