"""Classic groups, static members, consumer groups."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "member-id-not-required",
        "A new member is let in without having come back with its id, and a lost reply leaves a ghost.",
        (Edit("_join_dynamic", "joining.api_version < KNOWN_MEMBER_ID_VERSION", "joining.api_version >= 0"),),
        ("test_groups.py::test_a_new_member_has_to_come_back_with_the_id_it_was_given",),
    ),
    Mutant(
        "heartbeat-of-any-generation",
        "The heartbeat of a member that missed a rebalance is fine, so that it goes on with partitions of others.",
        (Edit("_check_heartbeat", "request.generation_id == group.generation_id", "request.generation_id >= 0"),),
        ("test_groups.py::test_another_generation_is_refused",),
    ),
    Mutant(
        "sync-of-any-generation",
        "A member of another generation is given an assignment.",
        (
            Edit(
                "_check_sync",
                """
                if request.generation_id != group.generation_id:
                    return ErrorCode.ILLEGAL_GENERATION
                """,
                "",
            ),
        ),
        ("test_groups.py::test_another_generation_is_refused",),
    ),
    Mutant(
        "heartbeat-silent-in-a-rebalance",
        "The members are not told by their heartbeats that they have to join again.",
        (Edit("member_requests.heartbeat", "ClassicState.PREPARING_REBALANCE", "ClassicState.DEAD"),),
        (
            "test_groups.py::test_a_newcomer_makes_the_others_join_again",
            "test_groups.py::test_a_member_that_leaves_starts_a_rebalance",
        ),
    ),
    Mutant(
        "members-told-to-everybody",
        "Every member is told who the others are, and thinks that it leads.",
        (
            Edit(
                "join_response",
                "leader == member_id and group.protocol_name is not None",
                "group.protocol_name is not None",
            ),
        ),
        ("test_groups.py::test_a_newcomer_makes_the_others_join_again",),
    ),
    Mutant(
        "generation-stays",
        "A rebalance does not begin a new generation.",
        (
            Edit(
                "ClassicGroup.begin_generation",
                "self.generation_id += 1",
                "self.generation_id = max(self.generation_id, 1)",
            ),
        ),
        ("test_groups.py::test_a_newcomer_makes_the_others_join_again",),
    ),
    Mutant(
        "leave-without-a-rebalance",
        "When a member leaves, the others are not told, and its partitions lie idle.",
        (
            Edit(
                "member_requests.leave",
                """
                if group.state is not ClassicState.EMPTY and any(not member.error_code for member in members):
                    rebalance(group, settings, now_ms, result)
                """,
                "",
            ),
        ),
        ("test_groups.py::test_a_member_that_leaves_starts_a_rebalance",),
    ),
    Mutant(
        "any-protocol-joins",
        "A member that shares no protocol with the others is let in.",
        (Edit("join_requests.join", "group.supports(request.protocol_type, joining.protocols)", "joining.protocols"),),
        ("test_groups.py::test_members_have_a_protocol_in_common",),
    ),
    Mutant(
        "session-timeout-unbounded",
        "Any session timeout is taken.",
        (
            Edit(
                "GroupCoordinator.join_group",
                "not minimum_ms <= request.session_timeout_ms <= maximum_ms",
                "request.session_timeout_ms < 0",
            ),
        ),
        ("test_groups.py::test_a_session_timeout_has_bounds",),
    ),
    Mutant(
        "static-member-starts-a-rebalance",
        "A static member that comes back disturbs the whole group.",
        (
            Edit(
                "_replace_static",
                "group.state is ClassicState.STABLE and selected is not None and selected == group.protocol_name",
                "group.state is ClassicState.EMPTY and selected is not None",
            ),
        ),
        ("test_groups.py::test_a_static_member_that_comes_back_disturbs_nobody",),
    ),
    Mutant(
        "replaced-member-unknown-not-fenced",
        "Who was replaced under its instance id hears UNKNOWN_MEMBER_ID, joins again, and throws the new one out.",
        (Edit("ClassicGroup.check_member", "ErrorCode.FENCED_INSTANCE_ID", "ErrorCode.UNKNOWN_MEMBER_ID"),),
        ("test_groups.py::test_whoever_was_replaced_is_fenced",),
    ),
    Mutant(
        "coordinator-of-the-first-key-only",
        "Of many keys in a FindCoordinator only the first is answered.",
        (Edit("find_coordinator.handle", "request.coordinator_keys", "request.coordinator_keys[:1]"),),
        ("test_groups.py::test_the_coordinator_is_one_of_the_brokers",),
    ),
    Mutant(
        "unknown-group-found",
        "DescribeGroups 6 does not say that the group does not exist.",
        (Edit("group_responses.GROUP_ID_NOT_FOUND_SINCE", 'DescribedGroup.since("error_message")', "7"),),
        ("test_groups.py::test_a_group_that_is_not_there_is_dead_or_not_found",),
    ),
    Mutant(
        "group-deleted-under-its-members",
        "A group with members is deleted.",
        (
            Edit(
                "ClassicGroup.check_delete", "0 if self.state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP", "0"
            ),
        ),
        ("test_groups.py::test_a_group_with_members_is_not_deleted",),
    ),
    Mutant(
        "member-epoch-unchecked",
        "A member of a consumer group goes on with any epoch.",
        (Edit("_check_epoch", "epoch in {JOIN_EPOCH, member.member_epoch}", "epoch >= JOIN_EPOCH"),),
        ("test_groups.py::test_members_of_a_consumer_group_are_fenced_by_their_epoch",),
    ),
    Mutant(
        "assignment-told-with-every-beat",
        "Every heartbeat brings the whole assignment, and clients reconcile for ever.",
        (
            Edit(
                "consumer_heartbeat.heartbeat",
                "_assignment(after.assigned) if _is_told(request, before, after) else None",
                "_assignment(after.assigned)",
            ),
        ),
        ("test_groups.py::test_the_broker_assigns_to_the_members_of_a_consumer_group",),
    ),
    Mutant(
        "stale-member-epoch-commits",
        "A member of a consumer group commits with any epoch.",
        (Edit("_stale", "ErrorCode.STALE_MEMBER_EPOCH", "0"),),
        ("test_groups.py::test_members_of_a_consumer_group_commit_with_their_epoch",),
    ),
)
