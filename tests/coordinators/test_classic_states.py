"""The transition table, walked."""

from __future__ import annotations

import itertools

import pytest

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.states import TRANSITIONS, ClassicState, Event

S = ClassicState

# What the table says, written down a second time and by state: (what may happen, where that leads).
LEGAL = {
    S.EMPTY: {
        Event.REBALANCE: S.PREPARING_REBALANCE,
        Event.ASSIGNED: S.STABLE,
        Event.EMPTIED: S.EMPTY,
        Event.UNLOADED: S.DEAD,
    },
    S.PREPARING_REBALANCE: {
        Event.JOINED: S.COMPLETING_REBALANCE,
        Event.EMPTIED: S.EMPTY,
        Event.UNLOADED: S.DEAD,
    },
    S.COMPLETING_REBALANCE: {
        Event.REBALANCE: S.PREPARING_REBALANCE,
        Event.ASSIGNED: S.STABLE,
        Event.UNLOADED: S.DEAD,
    },
    S.STABLE: {
        Event.REBALANCE: S.PREPARING_REBALANCE,
        Event.ASSIGNED: S.STABLE,
        Event.EMPTIED: S.EMPTY,
        Event.UNLOADED: S.DEAD,
    },
    S.DEAD: {Event.UNLOADED: S.DEAD},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ClassicState, Event)))
def test_every_pair_of_state_and_event_is_either_listed_or_refused(state: ClassicState, event: Event) -> None:
    group = ClassicGroup("g", 0)
    group.state = state
    if event in LEGAL[state]:
        group.transition(event, 5)
        assert (group.state, group.state_timestamp_ms) == (LEGAL[state][event], 5)
    else:
        with pytest.raises(KeyError):
            group.transition(event, 5)
        assert group.state is state


def test_every_state_but_the_first_can_be_reached_and_every_state_can_end() -> None:
    reached = {target for (source, _), target in TRANSITIONS.items() if source is not target}
    assert reached == set(ClassicState)
    assert all(TRANSITIONS[state, Event.UNLOADED] is S.DEAD for state in ClassicState)
