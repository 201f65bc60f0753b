"""Telling the controller where replicas lie that have moved: until it has it, and only the last place of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.operations import FoundReplicas
from pybroker.cluster.membership.moved_replicas import MovedReplicas
from pybroker.cluster_limits import GATHERED_PARTITIONS_MAX
from pybroker_protocol.errors import ErrorCode

ONE, OTHER = (b"topic-id--------", 0), (b"topic-id--------", 1)
A, B = b"a" * 16, b"b" * 16


class Controller:
    """Keeps what it is told, and answers when a test says so."""

    def __init__(self) -> None:
        self.told: list[FoundReplicas] = []
        self.answer: Callable[[int], None] = lambda error_code: None

    def assign(self, found: FoundReplicas, done: Callable[[int], None]) -> None:
        self.told.append(dict(found))
        self.answer = done


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def moved(world: VirtualWorld, controller: Controller) -> MovedReplicas:
    return MovedReplicas(world.timers, controller.assign)


def test_what_comes_while_the_controller_is_asked_is_told_together_next(
    moved: MovedReplicas, controller: Controller
) -> None:
    moved.tell(ONE, A)
    moved.tell(ONE, B)
    moved.tell(OTHER, A)
    assert controller.told == [{ONE: A}]
    controller.answer(0)
    assert controller.told[1:] == [{ONE: B, OTHER: A}]
    controller.answer(0)
    assert len(controller.told) == 2


def test_what_the_controller_did_not_take_is_told_again_where_the_replica_lies_by_then(
    moved: MovedReplicas, controller: Controller, world: VirtualWorld
) -> None:
    moved.tell(ONE, A)
    controller.answer(ErrorCode.NOT_CONTROLLER)
    moved.tell(ONE, B)
    world.advance(10_000)
    assert controller.told == [{ONE: A}, {ONE: B}]


def test_very_many_are_told_in_several_requests(moved: MovedReplicas, controller: Controller) -> None:
    """One that is too long would be refused for ever."""
    for index in range(2 * GATHERED_PARTITIONS_MAX + 2):
        moved.tell((ONE[0], index), A)
    for _ in range(3):
        controller.answer(0)
    assert [len(found) for found in controller.told] == [1, GATHERED_PARTITIONS_MAX, GATHERED_PARTITIONS_MAX, 1]


def test_nothing_is_told_after_the_end(moved: MovedReplicas, controller: Controller, world: VirtualWorld) -> None:
    moved.tell(ONE, A)
    controller.answer(ErrorCode.NOT_CONTROLLER)
    moved.close()
    moved.tell(OTHER, A)
    world.advance(10_000)
    assert controller.told == [{ONE: A}]
