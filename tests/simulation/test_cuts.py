"""Partial and one-way cuts: no partition stands still for longer than a session, and mistakes in that are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from pybroker.cluster.controller.controller_election import ControllerElection
from pybroker.cluster.failure_detection.broker_contacts import BrokerContacts
from pybroker.cluster.failure_detection.liveness import Liveness
from tests.simulation.cut_simulation import (
    ALL,
    BOTH_WAYS,
    BROKER,
    CONTROLLER,
    DIRECTIONS,
    FROM_IT,
    STANDS_STILL,
    STORE,
    TO_IT,
    Aim,
    CutSimulation,
)

PAIRS = [(CONTROLLER, BROKER), (BROKER, BROKER), (CONTROLLER, STORE), (BROKER, STORE), (CONTROLLER, ALL), (BROKER, ALL)]
AIMS = [Aim(*pair, direction) for pair in PAIRS for direction in DIRECTIONS]
QUICK = [Aim(CONTROLLER, BROKER, BOTH_WAYS), Aim(CONTROLLER, BROKER, FROM_IT), Aim(BROKER, BROKER, TO_IT)]


@pytest.mark.parametrize("aim", QUICK, ids=", ".join)
def test_a_cut_between_two_brokers_stops_no_partition_for_longer_than_a_session(aim: Aim) -> None:
    outcome = CutSimulation(1, aim=aim, hears=True).run()
    assert outcome.violation is None, str(outcome.violation)


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.parametrize("hears", [True, False], ids=["with datagrams", "without datagrams"])
@pytest.mark.parametrize("aim", AIMS, ids=", ".join)
def test_no_cut_of_any_pair_stops_a_partition_for_longer_than_a_session(aim: Aim, hears: bool) -> None:
    outcome = CutSimulation(2, aim=aim, hears=hears).run()
    assert outcome.violation is None, str(outcome.violation)


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("brokers", "first"), [(3, 1), (3, 11), (5, 1)])
def test_one_cut_after_another_stops_no_partition_for_longer_than_a_session(brokers: int, first: int) -> None:
    for seed in range(first, first + (10 if brokers == 3 else 5)):
        outcome = CutSimulation(seed, brokers=brokers).run()
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


class Planted(NamedTuple):
    """A mistake, and the cut that finds it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    aim: Aim
    hears: bool = True


def never_fence_a_broker_that_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller goes by sessions with the store, and by what most brokers find."""
    monkeypatch.setattr(BrokerContacts, "is_over", lambda *_: False)


def wait_for_a_follower_as_long_as_it_may_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not ask whether a follower that does not fetch is cut off."""
    monkeypatch.setattr(Liveness, "is_cut_off", lambda *_: False)


def decide_on_while_most_brokers_come_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that is cut off fences all others, and never itself."""
    monkeypatch.setattr(ControllerElection, "_is_cut_off", lambda _: False)


PLANTED = [
    Planted(never_fence_a_broker_that_is_not_heard, Aim(CONTROLLER, BROKER, BOTH_WAYS)),
    Planted(wait_for_a_follower_as_long_as_it_may_lag, Aim(BROKER, BROKER, FROM_IT)),
    Planted(decide_on_while_most_brokers_come_to_nothing, Aim(CONTROLLER, ALL, TO_IT), hears=False),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.parametrize("planted", PLANTED, ids=[planted.plant.__name__ for planted in PLANTED])
def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    planted.plant(monkeypatch)
    for seed in range(1, 30):
        violation = CutSimulation(seed, aim=planted.aim, hears=planted.hears).run().violation
        if violation is not None:
            assert violation.invariant == STANDS_STILL, f"seed {seed}: {violation}"
            return
    pytest.fail("no seed found it")
