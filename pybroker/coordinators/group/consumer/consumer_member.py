"""One member of a consumer group (KIP-848), as the log has it.

Owns: what the member said of itself, its epoch, what it was given and what it has still to give back.  Values only:
a change makes another member, and only replaying its record puts that one into the group.

Counterpart in Kafka: ``ConsumerGroupMember`` and ``MemberState``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from pybroker import limits
from pybroker.coordinators.group.classic.classic_member import Protocols

# Epochs that say something else than how far the member has come.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

NO_TIMEOUT = -1

# Topic id -> partition -> the epoch at which the member got it.
Assigned = Mapping[bytes, Mapping[int, int]]
# Topic id -> partitions: what a client says that it owns, or is to own.
Owned = Mapping[bytes, frozenset[int]]

NOTHING_ASSIGNED: Assigned = {}


class MemberState(IntEnum):
    """Where a member stands on its way to the target, by the numbers in its record.

    - ``STABLE``: it has all that its epoch's target gives it.
    - ``UNREVOKED_PARTITIONS``: it is to give partitions up and has not said that it did.
    - ``UNRELEASED_PARTITIONS``: it has the target's epoch; some of its partitions are still with others.
    - ``UNKNOWN``: this is a state of a later version.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 3


class ClassicFacet(NamedTuple):
    """What a member said that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMember(NamedTuple):
    """A member; static when ``instance_id`` is not None, of the classic protocol when ``classic`` is not None."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = LEAVE_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Assigned = NOTHING_ASSIGNED
    pending_revocation: Assigned = NOTHING_ASSIGNED
    classic: ClassicFacet | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has what the target of that epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def with_epoch(self, member_epoch: int, **changes: object) -> ConsumerMember:
        """The member at another epoch, or anew at its own: what it had is the epoch before."""
        return self._replace(previous_member_epoch=self.member_epoch, member_epoch=member_epoch, **changes)  # type: ignore[arg-type]

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which the member got a partition that it has or has to give back; None for any other."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def topic_names(names: Iterable[str]) -> frozenset[str]:
    """Subscriptions, which members of a group have in common, as one object."""
    return _shared(frozenset(names))


@lru_cache(limits.SUBSCRIPTIONS_REMEMBERED)
def _shared(names: frozenset[str]) -> frozenset[str]:
    return names
