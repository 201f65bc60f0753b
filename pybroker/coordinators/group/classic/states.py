"""The states of a classic group and every legal way from one to another.

Owns: the table.  A pair that is not in it is a bug of ours; a test walks all pairs.

    Empty                no member has an assignment; offsets may be there, and new members may be asking for their id
    PreparingRebalance   waiting for all members to join
    CompletingRebalance  all have joined; waiting for the leader's assignment
    Stable               every member has its assignment, and the log has them all
    Dead                 unloaded or deleted; nothing follows

Counterpart in Kafka: ``ClassicGroupState``.
"""

from __future__ import annotations

from enum import StrEnum


class ClassicState(StrEnum):
    """The states, by the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(StrEnum):
    """What moves a group.

    - ``REBALANCE``: a member joined, changed or left, and all have to join again.
    - ``JOINED``: the join phase ended with members.
    - ``ASSIGNED``: a record with members was replayed, the leader's assignment or a static member's new id.
    - ``EMPTIED``: a record without members was replayed.
    - ``UNLOADED``: the partition is lost, or the group's tombstone was replayed.
    """

    REBALANCE = "rebalance"
    JOINED = "joined"
    ASSIGNED = "assigned"
    EMPTIED = "emptied"
    UNLOADED = "unloaded"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState

TRANSITIONS: dict[tuple[ClassicState, Event], ClassicState] = {
    (EMPTY, Event.REBALANCE): PREPARING,
    (STABLE, Event.REBALANCE): PREPARING,
    (COMPLETING, Event.REBALANCE): PREPARING,
    (PREPARING, Event.JOINED): COMPLETING,
    (COMPLETING, Event.ASSIGNED): STABLE,
    (STABLE, Event.ASSIGNED): STABLE,
    (PREPARING, Event.EMPTIED): EMPTY,
    # While a log is loaded, records follow one another without the rebalances that were between them.
    (EMPTY, Event.ASSIGNED): STABLE,
    (EMPTY, Event.EMPTIED): EMPTY,
    (STABLE, Event.EMPTIED): EMPTY,
    (EMPTY, Event.UNLOADED): DEAD,
    (PREPARING, Event.UNLOADED): DEAD,
    (COMPLETING, Event.UNLOADED): DEAD,
    (STABLE, Event.UNLOADED): DEAD,
    (DEAD, Event.UNLOADED): DEAD,
}
