"""Questions of several leaders to the controller, which go in one request and have an answer each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.operations import InSyncChange, InSyncResult, InSyncResults, InSyncState
from pybroker.replication.isr_changes import IsrChanges
from pybroker_protocol.errors import ErrorCode
from tests.storage.logs import TOPIC_ID

ISR = ((1, 11), (2, 12))
STATE = InSyncState(1, 5, (1, 2), 8)


class Channel:
    """What was asked, to be answered by the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[InSyncChange], Callable[[InSyncResults], None]]] = []

    def alter_partitions(self, changes: Sequence[InSyncChange], done: Callable[[InSyncResults], None]) -> None:
        self.asked.append((changes, done))


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest.fixture
def changes(world: VirtualWorld, channel: Channel) -> IsrChanges:
    return IsrChanges(world.env.timers, channel)


def ask(changes: IsrChanges, index: int) -> list[tuple[int, InSyncState | None]]:
    answers: list[tuple[int, InSyncState | None]] = []
    changes.alter_partition(TOPIC_ID, index, 5, 7, ISR, lambda *answer: answers.append(answer))
    return answers


def test_what_is_asked_in_one_turn_goes_together_and_what_comes_then_waits(
    world: VirtualWorld, channel: Channel, changes: IsrChanges
) -> None:
    answers = [ask(changes, index) for index in range(3)]
    world.advance(0)
    later = ask(changes, 3)
    world.advance(0)
    ((asked, done),) = channel.asked
    assert list(asked) == [InSyncChange(TOPIC_ID, index, 5, 7, ISR) for index in range(3)]
    error = InSyncResult(TOPIC_ID, 1, ErrorCode.INELIGIBLE_REPLICA)
    done(InSyncResults([InSyncResult(TOPIC_ID, 0, 0, STATE), error, InSyncResult(TOPIC_ID, 2, 0, STATE)]))
    assert answers == [[(0, STATE)], [(ErrorCode.INELIGIBLE_REPLICA, None)], [(0, STATE)]]
    world.advance(0)
    assert len(channel.asked) == 2
    assert later == []


def test_an_error_of_the_whole_is_everybodys(world: VirtualWorld, channel: Channel, changes: IsrChanges) -> None:
    answers = [ask(changes, index) for index in range(2)]
    world.advance(0)
    channel.asked[0][1](InSyncResults([], ErrorCode.NOT_CONTROLLER))
    assert answers == [[(ErrorCode.NOT_CONTROLLER, None)]] * 2


def test_who_is_left_out_of_an_answer_is_told_that_it_failed(
    world: VirtualWorld, channel: Channel, changes: IsrChanges
) -> None:
    answers = [ask(changes, index) for index in range(2)]
    world.advance(0)
    channel.asked[0][1](InSyncResults([InSyncResult(TOPIC_ID, 0, 0, STATE)]))
    assert [answer[0][0] for answer in answers] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_request_has_a_bound(
    world: VirtualWorld, channel: Channel, changes: IsrChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.replication.isr_changes.ISR_CHANGES_AT_ONCE", 2)
    for index in range(3):
        ask(changes, index)
    world.advance(0)
    assert [len(asked) for asked, _ in channel.asked] == [2]
    channel.asked[0][1](InSyncResults([], ErrorCode.NOT_CONTROLLER))
    world.advance(0)
    assert [len(asked) for asked, _ in channel.asked] == [2, 1]


def test_nothing_is_asked_after_the_end(world: VirtualWorld, channel: Channel, changes: IsrChanges) -> None:
    ask(changes, 0)
    changes.close()
    world.advance(0)
    assert channel.asked == []
