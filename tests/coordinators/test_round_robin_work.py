"""Long work of coordinators takes turns: one piece in each turn of the loop, whatever the number of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.regexes import Resolution
from pybroker.coordinators.group.consumer.target_assignment_builder import TargetAssignmentBuilder
from pybroker.coordinators.round_robin_work import RoundRobinWork
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from tests.coordinators.consumer_support import ConsumerCluster, Member, settle
from tests.coordinators.support import Cluster, Reply, World

GROUPS = [f"g{number:02}" for number in range(50)]
TOPICS = {f"t{number}": 1 for number in range(8)}


class Pieces:
    """Whose work had a piece done since it was last asked."""

    def __init__(self) -> None:
        self._done: list[Any] = []

    def note(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which does a piece, so that it is noted."""

        def noting(work: Any, *args: Any) -> Any:
            self._done.append(work)
            return method(work, *args)

        return noting

    def taken(self) -> list[Any]:
        done, self._done = self._done, []
        return done


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    """Small ones: a compilation or a match, a step of an assignor, a partition of a listing."""
    pieces = Pieces()
    for work in (Resolution, TargetAssignmentBuilder):
        monkeypatch.setattr(work, "advance", pieces.note(work.advance))
    monkeypatch.setattr("pybroker.coordinators.group.consumer.regexes.REGEX_MATCHES_PER_SLICE", 1)
    monkeypatch.setattr("pybroker.coordinators.group.consumer.target_assignment_builder.ASSIGNMENT_STEPS_PER_SLICE", 1)
    monkeypatch.setattr("pybroker.coordinators.runtime.LISTING_SLICE_MS", 0)
    return pieces


def in_each_turn(world: World, pieces: Pieces) -> list[list[Any]]:
    """Whose pieces each turn of the loop does until nothing is due, without the turns that do none."""
    turns = []
    while world.timers.is_due:
        world.turn()
        done = pieces.taken()
        if done:
            turns.append(done)
    return turns


def resolving() -> ConsumerCluster:
    """Groups whose expressions wait to be resolved."""
    cluster = ConsumerCluster()
    cluster.set_topics(**TOPICS)
    for group in GROUPS:
        assert cluster.enter("m", group=group, regex="t[0-5]").error == 0
    return cluster


def resolved(group: ConsumerGroup) -> set[str]:
    return set().union(*(found.topics for found in group.resolved.values()))


# --- groups ----------------------------------------------------------------------------------------------------------


def test_a_turn_does_one_slice_of_all_resolutions_and_all_come_to_their_end(pieces: Pieces) -> None:
    cluster = resolving()
    pieces.taken()
    turns = in_each_turn(cluster.world, pieces)
    assert max(len(done) for done in turns) == 1
    for group in GROUPS:
        assert resolved(cluster.group(group)) == {f"t{number}" for number in range(6)}
    assert not cluster.groups._runtime._contexts[0].state.consumers._resolutions


def test_each_resolution_has_its_turn_after_every_other(pieces: Pieces) -> None:
    cluster = resolving()
    pieces.taken()
    order = [done for (done,) in in_each_turn(cluster.world, pieces)]
    first_round = order[: len(GROUPS)]
    assert len(set(first_round)) == len(GROUPS)
    rounds = len(order) // len(GROUPS)
    assert rounds > len(TOPICS)
    assert order == first_round * rounds, "all have as much to do"


def test_a_turn_does_one_slice_of_all_assignments(pieces: Pieces) -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(**TOPICS)
    for group in GROUPS:
        assert cluster.enter("m", *TOPICS, group=group).error == 0
    pieces.taken()  # the first ones, in the requests
    turns = in_each_turn(cluster.world, pieces)
    assert max(len(done) for done in turns) == 1
    assert {len(cluster.group(group).target["m"]) for group in GROUPS} == {len(TOPICS)}


def test_an_assignment_waits_for_a_turn_of_one_resolution_and_not_for_one_of_each(pieces: Pieces) -> None:
    cluster = resolving()
    assert cluster.enter("m", *TOPICS, group="assigning").error == 0
    pieces.taken()
    kinds = [type(done) for (done,) in in_each_turn(cluster.world, pieces)]
    assert kinds[: 2 * len(TOPICS)] == [Resolution, TargetAssignmentBuilder] * len(TOPICS)


def test_resolutions_that_an_append_held_up_do_not_all_go_on_when_it_ends(pieces: Pieces) -> None:
    cluster = resolving()
    cluster.world.partitions.hold_appends = True
    cluster.commit(1, group="simple")
    pieces.taken()
    for _ in range(2 * len(GROUPS)):
        cluster.world.turn()
    assert not pieces.taken()
    cluster.world.partitions.hold_appends = False
    cluster.world.partitions.finish_appends()
    assert not pieces.taken()
    assert max(len(done) for done in in_each_turn(cluster.world, pieces)) == 1
    assert all(resolved(cluster.group(group)) for group in GROUPS)


def test_resolutions_of_a_partition_that_is_lost_take_no_more_turns(pieces: Pieces) -> None:
    cluster = resolving()
    cluster.world.turn()
    cluster.world.turn()
    cluster.groups.on_leadership(set(), {0})
    pieces.taken()
    assert not in_each_turn(cluster.world, pieces)
    assert not cluster.world.timers.is_due


def test_members_get_what_their_expressions_name_however_small_the_slices(pieces: Pieces) -> None:
    cluster = ConsumerCluster()
    cluster.set_topics(**TOPICS)
    members = [Member(cluster, "m", group=group, regex="t[0-5]") for group in GROUPS[:5]]
    settle(cluster, *members)
    assert all(set(member.owned) == {f"t{number}" for number in range(6)} for member in members)


# --- listings --------------------------------------------------------------------------------------------------------


def test_a_turn_does_one_slice_of_all_listings(pieces: Pieces) -> None:
    cluster = Cluster(partitions=4)
    replies = [Reply() for _ in range(10)]
    for reply in replies:
        cluster.groups.list_groups(ListGroupsRequest(states_filter=[], types_filter=[]), reply.done)
    turns = 0
    while any(reply.parked for reply in replies):
        answered = sum(not reply.parked for reply in replies)
        cluster.world.turn()
        turns += 1
        assert sum(not reply.parked for reply in replies) - answered <= 1
    assert turns == 3 * len(replies), "all but the first partition of each"


# --- whose turn it is ------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


def calls_in_turns(world: World, called: list[str]) -> list[list[str]]:
    """What is called in each turn until nothing is due."""
    turns = []
    while world.timers.is_due:
        world.turn()
        turns.append(called[:])
        called.clear()
    return turns


def test_kinds_take_turns_and_so_do_those_of_a_kind(world: World) -> None:
    turns, called = RoundRobinWork(world.timers), list[str]()
    for kind, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")):
        turns.add(kind, called.append, name)
    assert calls_in_turns(world, called) == [["a1"], ["b1"], ["a2"], ["b2"], ["a3"]]


def test_what_adds_itself_again_goes_behind_the_others(world: World) -> None:
    turns, called = RoundRobinWork(world.timers), list[str]()

    def twice() -> None:
        called.append("twice")
        if called.count("twice") < 2:
            turns.add("a", twice)

    turns.add("a", twice)
    turns.add("a", called.append, "once")
    while world.timers.is_due:
        world.turn()
    assert called == ["twice", "once", "twice"]


def test_what_is_called_off_takes_no_turn(world: World) -> None:
    turns, called = RoundRobinWork(world.timers), list[str]()
    gone = [turns.add(kind, called.append, "gone") for kind in "aab"]
    turns.add("a", called.append, "there")
    for each in gone + gone:
        each.cancel()
    assert calls_in_turns(world, called) == [["there"]]
    turns.add("b", called.append, "last").cancel()
    assert calls_in_turns(world, called) == [[]]
    turns.add("b", called.append, "anew")
    assert calls_in_turns(world, called) == [["anew"]]


def test_what_fails_is_in_nobodys_way(world: World) -> None:
    turns, called = RoundRobinWork(world.timers), list[str]()
    turns.add("a", {}.__getitem__, "not there")
    turns.add("a", called.append, "next")
    with pytest.raises(KeyError):
        world.turn()
    assert calls_in_turns(world, called) == [["next"]]
