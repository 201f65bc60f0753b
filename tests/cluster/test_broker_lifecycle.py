"""The table of a broker's life, walked: each event comes as it comes from outside, in each state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.operations import Heartbeat, Registration
from pybroker.cluster.image.cluster_image import BrokerRegistration
from pybroker.cluster.membership.broker_lifecycle import TRANSITIONS, BrokerLifecycle, Event, State

OWN = BrokerRegistration(1, 6, b"own", {})
OTHER = OWN._replace(epoch=9, incarnation_id=b"other")
S, E = State, Event

# What the table says, written down a second time and by state: (what may happen, where that leads).
LEGAL = {
    S.ENTERING: {
        E.ENTERED: S.REGISTERING,
        E.SESSION_LOST: S.ENTERING,
        E.WITHDRAWAL: S.ENTERING,
        E.STOP: S.LEAVING,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.REGISTERING: {
        E.GRANTED: S.REGISTERED,
        E.SESSION_LOST: S.ENTERING,
        E.WITHDRAWAL: S.WITHDRAWN,
        E.STOP: S.LEAVING,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.REGISTERED: {
        E.FORGOTTEN: S.REGISTERING,
        E.SESSION_LOST: S.ENTERING,
        E.WITHDRAWAL: S.WITHDRAWN,
        E.STOP: S.LEAVING,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.WITHDRAWN: {
        E.REPLACED: S.ENTERING,
        E.SESSION_LOST: S.ENTERING,
        E.WITHDRAWAL: S.WITHDRAWN,
        E.STOP: S.LEAVING,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.LEAVING: {
        E.HANDED_OVER: S.LEFT,
        E.SESSION_LOST: S.LEFT,
        E.WITHDRAWAL: S.LEFT,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.LEFT: {E.SESSION_LOST: S.LEFT, E.WITHDRAWAL: S.LEFT, E.SUCCESSION: S.SUPERSEDED, E.CLOSE: S.CLOSED},
    S.SUPERSEDED: {
        E.SESSION_LOST: S.SUPERSEDED,
        E.WITHDRAWAL: S.SUPERSEDED,
        E.STOP: S.SUPERSEDED,
        E.SUCCESSION: S.SUPERSEDED,
        E.CLOSE: S.CLOSED,
    },
    S.CLOSED: {E.SESSION_LOST: S.CLOSED, E.WITHDRAWAL: S.CLOSED, E.SUCCESSION: S.CLOSED, E.CLOSE: S.CLOSED},
}

# One way from the start to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    S.ENTERING: (),
    S.REGISTERING: (E.ENTERED,),
    S.REGISTERED: (E.ENTERED, E.GRANTED),
    S.WITHDRAWN: (E.ENTERED, E.GRANTED, E.WITHDRAWAL),
    S.LEAVING: (E.ENTERED, E.GRANTED, E.STOP),
    S.LEFT: (E.ENTERED, E.GRANTED, E.STOP, E.HANDED_OVER),
    S.SUPERSEDED: (E.SUCCESSION,),
    S.CLOSED: (E.CLOSE,),
}


ANSWERS: dict[Event, Any] = {
    E.ENTERED: None,
    E.GRANTED: Registration(0, OWN.epoch),
    E.HANDED_OVER: Heartbeat(should_shut_down=True),
}


class Surroundings:
    """The store, the controller and the image: each keeps what it is to answer until a test has it answer."""

    def __init__(self, state: State) -> None:
        self.world = VirtualWorld()
        self.asked: dict[Event, list[Callable[..., None]]] = {each: [] for each in E}
        self.withdrawals = 0
        self.left = 0
        self.image = SimpleNamespace(brokers={}, topics_by_id={})
        self.listeners: list[Callable[[], None]] = []
        stands_in: Any = self
        self.lifecycle = BrokerLifecycle(
            self.world.env, stands_in, stands_in, stands_in, OWN, "cluster", -1, {},
            lambda: None, lambda: None, lambda: None, lambda: None,
        )  # fmt: skip
        self.lifecycle._answered_epoch = 5  # it was registered before
        self.lifecycle.start(60_000, 60_000, lambda why: None)
        for event in WAYS[state]:
            self.happen(event)
        assert self.state is state

    @property
    def state(self) -> State:
        return self.lifecycle._state

    def enter(self, done: Callable[..., None]) -> None:
        self.asked[E.ENTERED].append(done)

    def withdraw(self, done: Callable[..., None]) -> None:
        self.withdrawals += 1

    def register(self, _own: Any, _cluster_id: str, _before: int, done: Callable[..., None]) -> None:
        self.asked[E.GRANTED].append(done)

    def heartbeat(self, done: Callable[..., None], *, wants_shutdown: bool) -> None:
        self.asked[E.HANDED_OVER].append(done)

    def publish(self) -> None:
        pass

    def _note_left(self) -> None:
        self.left += 1

    def _show(self, *brokers: BrokerRegistration) -> None:
        self.image.brokers = {each.broker_id: each for each in brokers}
        self.listeners[0]()

    def happen(self, event: Event) -> None:
        """Have an event come from outside."""
        match event:
            case E.ENTERED | E.GRANTED | E.HANDED_OVER:
                self.asked[event].pop()(ANSWERS[event])
            case E.FORGOTTEN | E.REPLACED:
                self._show(OWN._replace(fenced=True))
            case E.SUCCESSION:
                self._show(OTHER)
            case E.SESSION_LOST:
                self.lifecycle.on_session_lost()
            case E.WITHDRAWAL:
                self.lifecycle.withdraw(1_000)
            case E.STOP:
                self.lifecycle.leave(1_000, self._note_left)
            case E.CLOSE:
                self.lifecycle.close()


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_of_state_and_event_is_either_listed_or_refused(state: State, event: Event) -> None:
    around = Surroundings(state)
    if event in LEGAL[state]:
        around.happen(event)
        assert around.state is LEGAL[state][event]
    else:
        with pytest.raises(KeyError):
            around.lifecycle._move(event)
        assert around.state is state


def test_every_state_can_be_reached_and_can_end() -> None:
    assert {target for (source, _), target in TRANSITIONS.items() if source is not target} == set(State)
    assert all(TRANSITIONS[state, E.CLOSE] is S.CLOSED for state in State)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (state, event)
        for state in (S.ENTERING, S.REGISTERING, S.LEAVING)
        for event, after in LEGAL[state].items()
        if event not in ANSWERS and (after is not state or event is E.SESSION_LOST)
    ],
)
def test_an_answer_to_what_a_former_state_has_asked_changes_nothing(state: State, event: Event) -> None:
    around = Surroundings(state)
    late = {each: asked.pop() for each, asked in around.asked.items() if asked}
    around.happen(event)
    for each, answer in late.items():
        answer(ANSWERS[each])
    assert around.state is LEGAL[state][event]


@pytest.mark.parametrize("event", [E.HANDED_OVER, E.SESSION_LOST, E.WITHDRAWAL, E.SUCCESSION])
def test_what_ends_the_leaving_is_told_once(event: Event) -> None:
    around = Surroundings(S.LEAVING)
    around.happen(event)
    around.world.advance(5_000)
    assert around.left == 1


def test_a_broker_that_leaves_is_gone_within_its_time_and_one_that_is_closed_hears_nothing() -> None:
    for closes in (False, True):
        around = Surroundings(S.LEAVING)
        if closes:
            around.happen(E.CLOSE)
        around.world.advance(999)
        assert around.left == 0
        around.world.advance(1)
        assert around.left == (not closes)


@pytest.mark.parametrize("state", [S.REGISTERED, S.LEAVING, S.LEFT, S.SUPERSEDED])
def test_the_patience_with_a_start_and_with_a_stop_ends_where_the_broker_is_closed(state: State) -> None:
    around = Surroundings(state)
    around.happen(E.CLOSE)
    assert not around.world.timers.pending


@pytest.mark.parametrize(("state", "times"), [(S.REGISTERED, 1), (S.LEAVING, 1), (S.SUPERSEDED, 0), (S.CLOSED, 0)])
def test_a_broker_that_withdraws_takes_its_key_away_though_it_leaves(state: State, times: int) -> None:
    around = Surroundings(state)
    around.happen(E.WITHDRAWAL)
    assert around.withdrawals == times


@pytest.mark.parametrize(("ms", "state"), [(999, S.WITHDRAWN), (1_000, S.ENTERING)])
def test_a_withdrawn_broker_comes_back_when_its_patience_is_over(ms: int, state: State) -> None:
    around = Surroundings(S.WITHDRAWN)
    around.world.advance(ms)
    assert around.state is state
