"""The states of an election, walked: each event comes as it comes from outside, in each state.

WATCHING   another broker holds the controller key
TAKING     its holder is gone: this one takes it, and waits until its image is as far
ACTIVE     this one decides
WITHDRAWN  it has taken its own live key away, because most brokers do not reach it
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.controller.controller_election import ControllerElection
from pybroker.cluster.image.cluster_image import BrokerRegistration
from pybroker.cluster.store.metadata_store import CommitResult, Snapshot, StoreError
from pybroker.cluster_limits import STORE_RETRY_MS

BROKERS = OWN, FORMER, NEXT, _ = (1, 2, 3, 4)
State = StrEnum("State", "WATCHING TAKING ACTIVE WITHDRAWN CLOSED")
# The holder's session is over; the store has given the key, or has not; another one holds it; this broker's session is
# lost; most do not reach this broker; its live key is there again.
Event = StrEnum("Event", "GONE TAKEN MISSED HELD LOST CUT_OFF ENTERED CLOSE")
WATCHING, TAKING, ACTIVE, WITHDRAWN, CLOSED = State
E = Event

# What comes only to who has asked for it is None elsewhere.
# fmt: off
ROWS: dict[Event, tuple[State | None, ...]] = {
    E.GONE:    (TAKING,   TAKING,   ACTIVE,    WITHDRAWN, CLOSED),
    E.TAKEN:   (None,     ACTIVE,   None,      None,      None),
    E.MISSED:  (None,     WATCHING, None,      None,      None),
    E.HELD:    (WATCHING, TAKING,   WATCHING,  WITHDRAWN, CLOSED),
    E.LOST:    (WATCHING, WATCHING, WATCHING,  WITHDRAWN, CLOSED),
    E.CUT_OFF: (WATCHING, TAKING,   WITHDRAWN, WITHDRAWN, CLOSED),
    E.ENTERED: (WATCHING, TAKING,   ACTIVE,    WATCHING,  CLOSED),
    E.CLOSE:   (CLOSED,   CLOSED,   CLOSED,    CLOSED,    CLOSED),
}
# fmt: on
TABLE = {(state, event): after for event, row in ROWS.items() for state, after in zip(State, row, strict=True) if after}

# One way from the start to each state.
WAYS: dict[State, tuple[Event, ...]] = {
    WATCHING: (),
    TAKING: (E.GONE,),
    ACTIVE: (E.GONE, E.TAKEN),
    WITHDRAWN: (E.GONE, E.TAKEN, E.CUT_OFF),
    CLOSED: (E.CLOSE,),
}


class Surroundings:
    """The store, the image, the live keys and the controller; the store answers when a test has it answer."""

    def __init__(self, state: State) -> None:
        self.world = VirtualWorld()
        self.listeners: list[Callable[[], None]] = []
        self.known = self.has_own = True
        registered = {each: BrokerRegistration(each, 1, b"%d" % each, {}) for each in BROKERS}
        self.image = SimpleNamespace(controller_id=FORMER, brokers=registered)
        self.brokers = {each: SimpleNamespace(sends_heartbeats=True) for each in BROKERS}
        self.is_active = self.is_cut_off = False
        self.answers: list[Callable[..., None]] = []  # those that the store owes
        self.withdrawals = 0
        self.look: Callable[[], None] = lambda: None
        around: Any = self
        self.election = ControllerElection(self.world.env, around, around, around, around, OWN, contacts=around)
        self.election.withdraw = self._note_withdrawal
        self.election.start()
        for event in WAYS[state]:
            self.happen(event)
        assert self.state is state

    @property
    def state(self) -> State:
        election = self.election
        assert not (election._taking and self.is_active)
        if election._closed:
            return CLOSED
        if election._is_withdrawn:
            return WITHDRAWN
        return ACTIVE if self.is_active else TAKING if election._taking else WATCHING

    # --- the store and the image ---

    def read(self, _prefix: str, done: Callable[..., None]) -> None:
        self.answers.append(done)

    def commit(self, _transaction: Any, done: Callable[..., None]) -> None:
        done(CommitResult(revision=7))

    def when_at(self, _revision: int, call: Callable[[], None]) -> None:
        self.image.controller_id = OWN
        call()

    def is_live(self, broker_id: int, _incarnation_id: bytes) -> bool:
        return broker_id in self.brokers

    # --- the controller and its contacts ---

    def activate(self, *_: Any) -> None:
        self.is_active = True

    def deactivate(self) -> None:
        self.is_active = False

    def fence_brokers(self, *_: Any) -> None:
        pass

    def is_over(self, _broker_id: int) -> bool:
        return self.is_cut_off

    def is_in_touch(self, _broker_id: int) -> bool:
        return not self.is_cut_off

    def silent_ms(self, _broker_id: int) -> int:
        return 0

    def _note_withdrawal(self) -> None:
        self.withdrawals += 1
        self.image.controller_id = NEXT  # another one decides

    def happen(self, event: Event) -> None:
        """Have an event come from outside."""
        match event:
            case E.GONE:
                holder = self.image.controller_id
                self.brokers.pop(FORMER if holder == OWN else holder, None)
                self.look()
            case E.TAKEN:
                self.answers.pop()(Snapshot({}, 7), None)
            case E.MISSED:
                self.answers.pop()(None, StoreError("away"))
            case E.HELD:
                self.image.controller_id = NEXT
                self.look()
            case E.LOST:
                self.election.step_down()
            case E.CUT_OFF:
                self.is_cut_off = True
                self.look()
            case E.ENTERED:
                self.election.start()
            case E.CLOSE:
                self.election.close()


@pytest.mark.parametrize(("state", "event"), list(TABLE))
def test_each_event_leads_in_each_state_to_what_the_table_has(state: State, event: Event) -> None:
    around = Surroundings(state)
    withdrawals = around.withdrawals
    around.happen(event)
    assert around.state is TABLE[state, event]
    withdraws = around.state is WITHDRAWN and state is not WITHDRAWN
    assert around.withdrawals - withdrawals == withdraws


@pytest.mark.parametrize("answer", [E.TAKEN, E.MISSED])
@pytest.mark.parametrize("event", [E.LOST, E.CLOSE])
def test_an_answer_of_the_store_that_comes_too_late_changes_nothing(event: Event, answer: Event) -> None:
    around = Surroundings(TAKING)
    around.happen(event)
    around.happen(answer)
    assert around.state is TABLE[TAKING, event]


@pytest.mark.parametrize("event", [E.MISSED, E.LOST])
def test_who_could_not_take_the_key_looks_again_after_a_pause(event: Event) -> None:
    around = Surroundings(TAKING)
    around.happen(event)
    around.world.advance(STORE_RETRY_MS - 1)
    assert around.state is WATCHING
    around.world.advance(1)
    assert around.state is TAKING


def test_every_state_can_be_reached_from_every_other_one_until_the_election_is_closed() -> None:
    moves = {(before, after) for (before, _), after in TABLE.items() if before is not after}
    for _ in State:
        moves |= {(first, last) for (first, one), (other, last) in itertools.product(moves, moves) if one is other}
    assert moves >= {(one, other) for one in State for other in State if one is not other and one is not CLOSED}
