"""The table of a replica's move, walked."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.manager.replica_move import TRANSITIONS, Event, ReplicaMove, State

S, E = State, Event

# What the table says, written down a second time and by state: (what may happen, where that leads).
LEGAL: dict[State, dict[Event, State]] = {
    S.IDLE: {E.WORK: S.WORKING, E.BACK: S.IDLE, E.CANCEL: S.ENDED, E.END: S.ENDED},
    S.WORKING: {E.BACK: S.IDLE, E.COMMIT: S.COMMITTED, E.CANCEL: S.CANCELLED, E.END: S.ENDED},
    S.CANCELLED: {E.BACK: S.ENDED, E.CANCEL: S.CANCELLED, E.END: S.ENDED},
    S.COMMITTED: {E.CANCEL: S.DISOWNED, E.END: S.ENDED},
    S.DISOWNED: {E.CANCEL: S.DISOWNED, E.END: S.ENDED},
    S.ENDED: {E.BACK: S.ENDED, E.CANCEL: S.ENDED, E.END: S.ENDED},
}

# One way from the start to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    S.IDLE: (),
    S.WORKING: (E.WORK,),
    S.CANCELLED: (E.WORK, E.CANCEL),
    S.COMMITTED: (E.WORK, E.COMMIT),
    S.DISOWNED: (E.WORK, E.COMMIT, E.CANCEL),
    S.ENDED: (E.END,),
}


class Walk:
    """A move of a log that is not open; ``let_go`` and ``ended`` count what others are told."""

    def __init__(self, state: State) -> None:
        self.let_go = self.ended = 0
        mover: Any = SimpleNamespace(ended=self._note_ended)
        log: Any = SimpleNamespace(topic="t", partition=0, opened=None)
        directory: Any = None
        self.world = VirtualWorld()
        self.move = ReplicaMove(self.world.env, mover, log, directory, directory, Path("t-0.future"))
        for event in WAYS[state]:
            self.move._become(event)
        self.move._release = self._note_let_go
        assert self.move._state is state

    def _note_ended(self, _move: ReplicaMove) -> None:
        self.ended += 1

    def _note_let_go(self) -> None:
        self.let_go += 1


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_of_state_and_event_is_either_listed_or_refused(state: State, event: Event) -> None:
    walk = Walk(state)
    if event not in LEGAL[state]:
        with pytest.raises(KeyError):
            walk.move._become(event)
        assert walk.move._state is state
        return
    told_before = walk.ended
    walk.move._become(event)
    after = walk.move._state
    assert after is LEGAL[state][event]
    ends = after is S.ENDED and state is not S.ENDED
    assert (walk.let_go, walk.ended - told_before) == (ends, ends), "appends go on, and the others hear of the end once"


def test_every_state_can_be_reached_and_can_end() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert all(TRANSITIONS[state, E.END] is S.ENDED for state in State)


@pytest.mark.parametrize("state", State)
def test_a_broker_that_stops_takes_back_what_is_not_committed(state: State) -> None:
    walk = Walk(state)
    walk.move.close()
    is_committed = state in {S.COMMITTED, S.DISOWNED}
    assert walk.move._state is (state if is_committed else LEGAL[state][E.CANCEL])
    assert walk.move.is_committed == is_committed


def test_a_move_that_goes_on_later_lets_appends_go_on_now() -> None:
    walk = Walk(S.WORKING)
    walk.move._again(100)
    assert (walk.move._state, walk.let_go, len(walk.world.timers.pending)) == (S.IDLE, 1, 1)
