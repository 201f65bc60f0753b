"""Every state of a group × every operation × who asks: the error code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.coordinators.support import Cluster, Reply

OK = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
PARKED = None

STATES = ("absent", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable")


class Situation:
    """A group in one of its states, a member of it where it has one, and its generation."""

    def __init__(self, state: str) -> None:
        self.cluster = Cluster()
        self.member_id, self.generation = "left", 1
        if state == "absent":
            return
        (leader, self.member_id), self.generation = self.cluster.stable_group(2)
        if state == "Empty":
            self.cluster.leave((leader, None), (self.member_id, None))
        elif state == "PreparingRebalance":
            self.cluster.join(leader)
        elif state == "CompletingRebalance":
            self.cluster.join(leader)
            self.cluster.join(self.member_id)
            self.generation += 1
        assert self.cluster.state() == state


def heartbeat(now: Situation) -> Any:
    return now.cluster.heartbeat(now.member_id, now.generation).error


def stale_heartbeat(now: Situation) -> Any:
    return now.cluster.heartbeat(now.member_id, now.generation - 1).error


def stranger_heartbeat(now: Situation) -> Any:
    return now.cluster.heartbeat("stranger", now.generation).error


def sync(now: Situation) -> Any:
    reply = now.cluster.sync(now.member_id, now.generation)
    return PARKED if reply.parked else reply.error


def stale_sync(now: Situation) -> Any:
    return now.cluster.sync(now.member_id, now.generation - 1).error


def stranger_sync(now: Situation) -> Any:
    return now.cluster.sync("stranger", now.generation).error


def other_protocol_sync(now: Situation) -> Any:
    return now.cluster.sync(now.member_id, now.generation, protocol_name="sticky").error


def join_again(now: Situation) -> Any:
    reply = now.cluster.join(now.member_id)
    return PARKED if reply.parked else reply.error


def stranger_join(now: Situation) -> Any:
    return now.cluster.join("stranger").error


def new_join(now: Situation) -> Any:
    return now.cluster.join().error


def leave(now: Situation) -> Any:
    response = now.cluster.leave((now.member_id, None)).response
    assert response.error_code == OK
    return response.members[0].error_code


def stranger_leave(now: Situation) -> Any:
    return now.cluster.leave(("stranger", None)).response.members[0].error_code


def member_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5, now.member_id, now.generation)


def stale_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5, now.member_id, now.generation - 1)


def stranger_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5, "stranger", now.generation)


def old_member_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5, now.member_id, now.generation, version=8)


def simple_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5)


def member_without_generation_commit(now: Situation) -> Any:
    return now.cluster.commit_error(5, now.member_id, -1)


def delete_group(now: Situation) -> Any:
    reply = Reply()
    now.cluster.groups.delete_groups(["g"], reply.done)
    return reply.response[0].error_code


def delete_offset_error(cluster: Cluster, topic: str) -> tuple[int, int | None]:
    reply = Reply()
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    cluster.groups.delete_offsets(OffsetDeleteRequest(group_id="g", topics=topics), reply.done)
    response = reply.response
    return response.error_code, response.topics[0].partitions[0].error_code if response.topics else None


def delete_subscribed_offset(now: Situation) -> Any:
    return delete_offset_error(now.cluster, "t")


def delete_other_offset(now: Situation) -> Any:
    return delete_offset_error(now.cluster, "other")


SUBSCRIBED = (OK, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
ALLOWED = (OK, OK)
NO_GROUP = (NOT_FOUND, None)

#                       absent     Empty    Preparing    Completing   Stable
TABLE: dict[Callable[[Situation], Any], tuple[Any, ...]] = {
    heartbeat:         (UNKNOWN,   UNKNOWN, REBALANCING, OK,          OK),
    stale_heartbeat:   (UNKNOWN,   UNKNOWN, STALE,       STALE,       STALE),
    stranger_heartbeat: (UNKNOWN,  UNKNOWN, UNKNOWN,     UNKNOWN,     UNKNOWN),
    sync:              (UNKNOWN,   UNKNOWN, REBALANCING, PARKED,      OK),
    stale_sync:        (UNKNOWN,   UNKNOWN, STALE,       STALE,       STALE),
    stranger_sync:     (UNKNOWN,   UNKNOWN, UNKNOWN,     UNKNOWN,     UNKNOWN),
    other_protocol_sync: (UNKNOWN, UNKNOWN) + (ErrorCode.INCONSISTENT_GROUP_PROTOCOL,) * 3,
    join_again:        (UNKNOWN,   UNKNOWN, OK,          OK,          OK),
    stranger_join:     (UNKNOWN,   UNKNOWN, UNKNOWN,     UNKNOWN,     UNKNOWN),
    new_join:          (ErrorCode.MEMBER_ID_REQUIRED,) * 5,
    leave:             (UNKNOWN,   UNKNOWN, OK,          OK,          OK),
    stranger_leave:    (UNKNOWN,   UNKNOWN, UNKNOWN,     UNKNOWN,     UNKNOWN),
    member_commit:     (NOT_FOUND, UNKNOWN, OK,          REBALANCING, OK),
    stale_commit:      (NOT_FOUND, UNKNOWN, STALE,       STALE,       STALE),
    stranger_commit:   (NOT_FOUND, UNKNOWN, UNKNOWN,     UNKNOWN,     UNKNOWN),
    old_member_commit: (STALE,     UNKNOWN, OK,          REBALANCING, OK),
    simple_commit:     (OK,        OK,      UNKNOWN,     UNKNOWN,     UNKNOWN),
    member_without_generation_commit: (OK, OK, STALE,    STALE,       STALE),
    delete_group:      (NOT_FOUND, OK,      NON_EMPTY,   NON_EMPTY,   NON_EMPTY),
    delete_subscribed_offset: (NO_GROUP, ALLOWED, SUBSCRIBED, SUBSCRIBED, SUBSCRIBED),
    delete_other_offset: (NO_GROUP, ALLOWED, ALLOWED,    ALLOWED,     ALLOWED),
}  # fmt: skip

CASES = [
    pytest.param(operation, state, expected, id=f"{operation.__name__}-{state}")
    for operation, row in TABLE.items()
    for state, expected in zip(STATES, row, strict=True)
]


@pytest.mark.parametrize(("operation", "state", "expected"), CASES)
def test_operation_in_a_state_answers_as_kafka_does(
    operation: Callable[[Situation], Any], state: str, expected: Any
) -> None:
    assert operation(Situation(state)) == expected


def test_offsets_of_a_group_with_members_of_another_protocol_are_not_deleted() -> None:
    cluster = Cluster()
    _, reply = cluster.new_member(protocol_type="connect", protocols=(("v0", b""),))
    assert reply.parked
    assert delete_offset_error(cluster, "t") == (NON_EMPTY, None)


@pytest.mark.parametrize("operation", ["join", "sync", "heartbeat", "leave", "delete"])
def test_empty_group_id_is_invalid_for_everything_but_offsets(operation: str) -> None:
    cluster = Cluster()
    if operation == "delete":
        reply = Reply()
        cluster.groups.delete_offsets(OffsetDeleteRequest(group_id="", topics=[]), reply.done)
    elif operation == "leave":
        reply = cluster.leave(("m", None), group="")
    elif operation == "join":
        reply = cluster.join(group="")
    else:
        reply = getattr(cluster, operation)("m", 1, group="")
    assert reply.error == ErrorCode.INVALID_GROUP_ID


def test_offsets_may_be_kept_under_the_empty_group_id() -> None:
    cluster = Cluster()
    assert cluster.commit_error(5, group="") == OK
    assert cluster.committed("") == {("t", 0): 5}
