"""The table of a long request, walked: each event comes by what a step does, or a client that goes."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import limits
from pybroker.handlers.context import NO_REPLY, Parked, Steps
from pybroker.net.long_requests import TRANSITIONS, UNFINISHED, Event, LongRequest, LongRequests, State

S, E = State, Event

# What the table says, written down a second time and by state: (what may happen, where that leads).
LEGAL: dict[State, dict[Event, State]] = {
    S.BEGUN: {E.WAITS: S.WAITING, E.SMALL: S.READY, E.LARGE: S.QUEUED, E.ENDED: S.OVER},
    S.WAITING: {E.WAITS: S.WAITING, E.SMALL: S.READY, E.LARGE: S.QUEUED, E.ENDED: S.OVER},
    S.QUEUED: {E.ADMITTED: S.PLACED, E.ENDED: S.OVER},
    S.PLACED: {E.WAITS: S.WAITING, E.LARGE: S.PLACED, E.ENDED: S.OVER},
    S.READY: {E.WAITS: S.WAITING, E.SMALL: S.READY, E.LARGE: S.QUEUED, E.ENDED: S.OVER},
    S.OVER: {},
}

# One way from the start to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    S.BEGUN: (),
    S.WAITING: (E.WAITS,),
    S.QUEUED: (E.LARGE,),
    S.PLACED: (E.LARGE,),
    S.READY: (E.SMALL,),
    S.OVER: (E.SMALL, E.ENDED),
}


class Walk:
    """A request whose next share ends with the event that a test wants."""

    def __init__(self, state: State) -> None:
        self.world = VirtualWorld()
        self.others = LongRequests(self.world.env)
        self.others._places = 1 if state is S.PLACED else 0
        self._next = E.ENDED
        self._awaited = Parked()
        held = SimpleNamespace(release=lambda: None)
        connection: Any = SimpleNamespace(
            closed=False, meter=None, unsent_bytes=0, serving=lambda _: nullcontext(), hold_copy=lambda _: held
        )
        api: Any = SimpleNamespace(api_key=0)
        self.request = LongRequest(self.others, connection, api, self._steps(), 1, is_large=False)
        for event in WAYS[state]:
            self.happen(event)
        assert self.request.state is state

    def _steps(self) -> Steps:
        while self._next is not E.ENDED:
            if self._next is E.WAITS:
                self._awaited = Parked()
                yield self._awaited
            else:
                self.request.is_large = self._next is E.LARGE
                self.world.clock.pass_ns(limits.TIME_SLICE_NS + 1)
                yield
        return NO_REPLY

    def happen(self, event: Event) -> None:
        """Have an event come from outside."""
        self._next = event
        match self.request.state:
            case S.BEGUN:
                if event is E.ENDED:  # the client goes before the request is in a queue
                    self._next = E.SMALL
                assert self.request.begin() is UNFINISHED
                if event is E.ENDED:
                    self.request.parked.abandon()
                self.request.wait_or_queue()
            case S.WAITING:
                self._awaited.complete(None)
            case S.QUEUED:
                if event is E.ENDED:
                    self.request.parked.abandon()
                self.others._places += 1
                self.others._admit()
            case _:
                self.world.turn()


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_of_state_and_event_is_either_listed_or_refused(state: State, event: Event) -> None:
    walk = Walk(state)
    if event not in LEGAL[state]:
        with pytest.raises(KeyError):
            walk.others.move(walk.request, event)
        assert walk.request.state is state
        return
    walk.happen(event)
    after = walk.request.state
    assert after is LEGAL[state][event]
    assert (walk.request in walk.others._ready) == (after in {S.PLACED, S.READY})
    assert (walk.request in walk.others._waiting) == (after is S.QUEUED)
    assert walk.others._places == (state in {S.PLACED, S.QUEUED} and after is not S.PLACED), "the place is free again"


def test_every_state_can_be_reached_and_can_end() -> None:
    assert {*TRANSITIONS.values(), S.BEGUN} == set(State)
    assert all(TRANSITIONS[state, E.ENDED] is S.OVER for state in State if state is not S.OVER)


@pytest.mark.parametrize("state", [S.WAITING, S.QUEUED, S.PLACED, S.READY])
def test_a_request_whose_client_is_gone_goes_no_further(state: State) -> None:
    walk = Walk(state)
    walk.request.parked.abandon()
    walk.others._places = 1
    walk.others._admit()
    walk.world.turn()
    assert not walk.others._ready
    assert not walk.others._waiting
    with pytest.raises(StopIteration):
        next(walk.request._steps)
