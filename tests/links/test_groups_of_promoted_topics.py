"""What becomes of groups' offsets as a topic is promoted, failed over or cut, though brokers are killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.cluster.image.link_states import (
    ADOPTED,
    CAUGHT_UP,
    DISCARD,
    FAIL_OVER,
    PROMOTE,
    PROMOTED,
    PROMOTING,
    LinkState,
    MirroredTopic,
)
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequest
from tests.links.virtual_groups import LINK, OF_PARTITION, THERE, TOPIC, TOPIC_ID, GroupsHere

OF_FIRST, _ = OF_PARTITION[0]  # broker 1 coordinates it at first
OF_SECOND, ANOTHER_OF_SECOND = OF_PARTITION[1]
ALL_SETTLED = 0b11


@pytest.fixture
def here() -> Iterator[GroupsHere]:
    side = GroupsHere()
    yield side
    side.close()


def promote(here: GroupsHere) -> None:
    here.moved(PROMOTE)
    here.moved(CAUGHT_UP)
    assert here.mirror.state == PROMOTED


# --- which cluster ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["", "another-cluster"])
def test_nothing_is_taken_over_of_another_cluster_than_the_links_source(here: GroupsHere, known: str) -> None:
    here.decide(lambda builder: builder.put_link(LINK, LinkState(known)))
    here.source.offsets = {OF_FIRST: {0: 7}}
    here.look(2)
    assert here.committed(OF_FIRST) == {}
    here.decide(lambda builder: builder.put_link(LINK, LinkState(THERE)))
    here.world.advance(100)  # a look at once
    assert here.committed(OF_FIRST) == {0: 7}


def test_a_group_stays_where_it_is_while_another_cluster_answers(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 7}}
    here.look()
    here.source.cluster_id, here.source.offsets = "another-cluster", {OF_FIRST: {0: 32}, OF_SECOND: {0: 3}}
    here.look(3)
    assert (here.committed(OF_FIRST), here.committed(OF_SECOND)) == ({0: 7}, {})


def test_a_group_that_has_read_further_here_is_not_taken_back_by_a_step_forward_there(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 5}}
    here.look()
    here.commit(OF_FIRST, p0=20)
    here.source.offsets = {OF_FIRST: {0: 8}}
    here.look(2)
    assert here.committed(OF_FIRST) == {0: 20}
    here.source.offsets = {OF_FIRST: {0: 3}}
    here.look()
    assert here.committed(OF_FIRST) == {0: 3}


def test_a_group_whose_records_are_not_all_here_yet_is_not_taken_back_to_their_end(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 90}}
    here.look()
    here.ends[TOPIC, 0] = 80
    here.source.offsets = {OF_FIRST: {0: 95}}
    here.look()
    assert here.committed(OF_FIRST) == {0: 90}


# --- the last look at the source -------------------------------------------------------------------------------------


def test_each_group_is_looked_at_once_more_and_the_topic_is_this_clusters_own_then(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 5}, OF_SECOND: {1: 6}}
    promote(here)
    here.world.advance(100)
    assert (here.committed(OF_FIRST), here.committed(OF_SECOND)) == ({0: 5}, {1: 6})
    assert here.mirror.carried == ALL_SETTLED
    here.source.offsets = {OF_FIRST: {0: 50}, OF_SECOND: {1: 60}, ANOTHER_OF_SECOND: {0: 1}}
    here.look(3)
    assert (here.committed(OF_FIRST), here.committed(OF_SECOND)) == ({0: 5}, {1: 6})
    assert here.committed(ANOTHER_OF_SECOND) == {}
    asked = len(here.source.asked)
    here.look(3)
    assert len(here.source.asked) == asked


def test_a_group_is_settled_though_another_one_cannot_be_looked_at(here: GroupsHere) -> None:
    here.source.offsets = {OF_SECOND: {0: 5}, ANOTHER_OF_SECOND: {0: 4}}
    here.source.unstable = {ANOTHER_OF_SECOND}
    promote(here)
    here.look()
    assert here.committed(OF_SECOND) == {0: 5}
    assert here.mirror.carried == 0b01  # the first partition has no groups there
    here.source.offsets[OF_SECOND] = {0: 11}  # a straggler
    here.source.offsets["e"] = {0: 12}
    here.look(3)
    assert (here.committed(OF_SECOND), here.committed("e")) == ({0: 5}, {})
    here.source.unstable.clear()
    here.look(2)
    assert here.committed(ANOTHER_OF_SECOND) == {0: 4}
    assert here.mirror.carried == ALL_SETTLED


def test_a_broker_that_was_killed_as_a_topic_was_promoted_looks_once_more(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 30}}
    here.kill(1)
    promote(here)
    here.look()
    here.start(1)
    here.world.advance(100)
    assert here.committed(OF_FIRST) == {0: 30}
    assert here.mirror.carried == ALL_SETTLED
    here.kill(1)
    here.source.offsets = {OF_FIRST: {0: 40}}  # a straggler's, of what the cluster has settled
    here.start(1)
    here.look(2)
    assert here.committed(OF_FIRST) == {0: 30}


def test_the_next_coordinator_looks_once_more_where_the_last_one_has_not(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 30}, OF_SECOND: {0: 40}}
    here.source.is_away = True
    promote(here)
    here.look()
    here.kill(1)
    here.move(0, 2)
    here.source.is_away = False
    here.look()
    assert (here.committed(OF_FIRST), here.committed(OF_SECOND)) == ({0: 30}, {0: 40})
    assert here.mirror.carried == ALL_SETTLED


def test_what_a_broker_has_done_is_told_until_the_controller_hears_it(here: GroupsHere) -> None:
    here.hears = False
    promote(here)
    here.look(2)
    assert (here.mirror.carried, here.mirror.lowered) == (0, 0)
    here.hears = True
    here.look(2)
    assert (here.mirror.carried, here.mirror.lowered) == (ALL_SETTLED, ALL_SETTLED)


def test_no_offset_of_a_promoted_topic_is_past_what_was_here_of_its_source(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 130, 1: 70}}  # its consumers have gone on
    here.source.is_away = True
    promote(here)
    here.look()
    here.ends[TOPIC, 0] = 150  # producers have come here meanwhile
    here.source.is_away = False
    here.look(2)
    assert here.committed(OF_FIRST) == {0: 100, 1: 70}


def test_a_link_without_groups_has_none_to_look_at_and_later_ones_come_too_late() -> None:
    here = GroupsHere(groups="")
    here.source.offsets = {OF_FIRST: {0: 30}}
    promote(here)
    here.look()
    assert here.mirror.carried == ALL_SETTLED
    here.settings["groups"] = "*"
    for broker_id in (1, 2):
        here.kill(broker_id)
        here.start(broker_id)
    here.look(2)
    assert here.committed(OF_FIRST) == {}
    here.close()


def test_a_group_that_commits_no_offsets_holds_up_no_last_look(here: GroupsHere) -> None:
    here.source.offsets = {OF_FIRST: {0: 5}, OF_SECOND: {0: 7}}
    here.source.gone = {OF_SECOND}
    promote(here)
    here.look()
    assert here.committed(OF_FIRST) == {0: 5}
    assert here.mirror.carried == ALL_SETTLED


def test_share_groups_are_not_asked_for_offsets(here: GroupsHere) -> None:
    here.source.kind = "share"
    here.source.offsets = {OF_FIRST: {0: 5}}
    here.look(2)
    assert OffsetFetchRequest not in {type(request) for request in here.source.asked}
    assert here.committed(OF_FIRST) == {}


def test_an_offset_comes_without_its_metadata_where_that_is_too_long_here(here: GroupsHere) -> None:
    here.source.offsets, here.source.metadata = {OF_FIRST: {0: 5}}, "x" * 4_097
    here.look()
    assert here.committed(OF_FIRST) == {0: 5}


# --- past the end ----------------------------------------------------------------------------------------------------


def test_a_broker_that_was_killed_as_a_topic_began_to_take_writes_lowers_offsets_then(here: GroupsHere) -> None:
    here.commit(OF_FIRST, p0=5_000)
    here.commit(OF_SECOND, p0=4)
    here.kill(1)
    here.moved(FAIL_OVER)
    here.look()
    assert here.mirror.lowered == 0b10
    here.start(1)
    here.look()
    assert (here.committed(OF_FIRST), here.committed(OF_SECOND)) == ({0: 100}, {0: 4})
    assert here.mirror.lowered == ALL_SETTLED


def test_what_is_settled_is_not_lowered_once_more(here: GroupsHere) -> None:
    here.moved(FAIL_OVER)
    here.look()
    here.commit(OF_FIRST, p0=5_000)  # by an administrator's word
    here.kill(1)
    here.start(1)
    here.move(0, 2)
    here.look()
    assert here.committed(OF_FIRST) == {0: 5_000}


def test_a_coordinator_that_moves_while_an_end_is_asked_for_leaves_it_to_the_next(here: GroupsHere) -> None:
    here.commit(OF_FIRST, p0=5_000)
    here.ends.clear()  # no leader says where it ends
    here.moved(FAIL_OVER)
    here.look()
    here.kill(1)
    here.move(0, 2)
    here.ends[TOPIC, 0] = 100
    here.look()
    assert here.committed(OF_FIRST) == {0: 100}
    assert here.mirror.lowered == ALL_SETTLED


def cut(here: GroupsHere) -> None:
    """What the source lacks of an adopted topic, from 50 on, is cut off."""
    here.stand(state=ADOPTED, partings=((0, 50, 30),), ended=((1, 5),))
    here.moved(DISCARD)


def test_groups_go_back_to_a_cut_and_what_is_read_behind_it_then_stands(here: GroupsHere) -> None:
    here.commit(OF_FIRST, p0=70)
    here.world.advance(10)
    cut(here)
    here.world.advance(100)
    assert here.committed(OF_FIRST) == {0: 50}
    here.commit(OF_FIRST, p0=60)
    for broker_id in (1, 2):
        here.move(0, broker_id)
        here.look()
    here.kill(2)
    here.start(2)
    here.look()
    assert here.committed(OF_FIRST) == {0: 60}


def test_a_cut_is_looked_at_by_the_next_coordinator_whatever_the_clock_of_the_last_one_said() -> None:
    here = GroupsHere()
    here.kill(1)
    here.start(1, ahead_ms=3_600_000)
    here.commit(OF_FIRST, p0=70)
    here.hears = False
    cut(here)
    here.kill(1)  # before it has looked
    here.hears = True
    here.move(0, 2)
    here.world.advance(1_000)
    assert here.committed(OF_FIRST) == {0: 50}
    here.close()


def test_what_is_read_behind_a_cut_stands_though_a_broker_that_has_started_looks_twice(here: GroupsHere) -> None:
    here.commit(OF_FIRST, p0=70)
    here.kill(1)
    cut(here)
    here.hears = False
    here.start(1)
    here.look()
    assert here.committed(OF_FIRST) == {0: 50}
    here.commit(OF_FIRST, p0=60)
    here.moved(FAIL_OVER)
    here.hears = True
    here.look(2)
    assert here.committed(OF_FIRST) == {0: 60}
    assert here.mirror.lowered == ALL_SETTLED


def test_a_cut_is_remembered_through_a_promotion_until_groups_have_gone_back(here: GroupsHere) -> None:
    here.commit(OF_FIRST, p0=70)
    here.kill(1)
    cut(here)
    promote(here)
    here.look()
    here.start(1)
    here.look()
    assert here.committed(OF_FIRST) == {0: 50}


def test_a_cut_of_which_all_is_settled_is_forgotten_with_the_next_state(here: GroupsHere) -> None:
    cut(here)
    here.look()
    assert here.mirror.lowered == ALL_SETTLED
    here.moved(PROMOTE)
    assert (here.mirror.state, here.mirror.partings) == (PROMOTING, ())


def test_a_topic_that_is_adopted_again_begins_anew(here: GroupsHere) -> None:
    promote(here)
    here.look()
    here.decide(lambda builder: builder.put_mirror(TOPIC, MirroredTopic(LINK, TOPIC, TOPIC_ID, ADOPTED)))
    cut(here)
    promote(here)
    assert (here.mirror.carried, here.mirror.lowered) == (0, 0)
