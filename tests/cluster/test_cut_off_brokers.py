"""Brokers that cannot reach the controller, and a controller that is reached by too few."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
from pybroker.cluster.membership import cluster_member
from pybroker.cluster.membership.heartbeats import Heartbeats
from pybroker.cluster.store.store_codec import LiveBroker, decode_live, encode_live

from .members import Members

SESSION_MS = 9_000
ROUND_MS = 500


def both_ways(one: int, *others: int) -> set[tuple[int, int]]:
    return {way for other in others for way in ((one, other), (other, one))}


def three() -> tuple[Members, int, int, int]:
    """Three brokers without datagrams: the controller, and the others, of which the first leads a topic."""
    members = Members().start(1, 2, 3)
    (controller,) = members.active()
    leader, third = [each for each in (1, 2, 3) if each != controller]
    members.create_topic("events", (leader, third, controller))
    members.settle()
    return members, controller, leader, third


def leader_of(members: Members, broker_id: int) -> int:
    return members.image(broker_id).topics_by_name["events"].partitions[0].leader


@pytest.mark.parametrize("ways", ["both", "from the controller", "to the controller"])
def test_a_leader_that_is_cut_from_the_controller_is_fenced_after_its_session_and_does_not_flap(ways: str) -> None:
    members, controller, leader, third = three()
    cut = {"both": both_ways(controller, leader), "from the controller": {(controller, leader)}}
    members.cut = cut.get(ways, {(leader, controller)})
    members.settle(SESSION_MS - 2_000 - ROUND_MS)
    assert leader_of(members, third) == leader
    members.settle(2_000 + 2 * ROUND_MS + 2_000)
    assert leader_of(members, leader) in (controller, third), "the cut-off one hears of it by the store"
    epochs = set()
    for _ in range(60):
        members.settle(1_000)
        epochs.add(members.image(third).brokers[leader].epoch)
        assert members.image(third).brokers[leader].fenced
    assert len(epochs) == 1
    assert members.active() == [controller]
    members.cut = set()
    members.settle(30_000)
    assert not members.image(controller).brokers[leader].fenced
    members.close()


@pytest.mark.parametrize("ways", ["both", "to the controller"])
def test_a_controller_that_is_cut_from_most_brokers_withdraws_and_another_one_decides_and_leads(ways: str) -> None:
    members, controller, leader, third = three()
    members.create_topic("its-own", (controller, leader, third))
    members.settle()
    members.cut = both_ways(controller, leader, third)
    if ways == "to the controller":
        members.cut = {way for way in members.cut if way[1] == controller}
    members.settle(SESSION_MS + 2_000 + 2 * ROUND_MS)
    (active,) = members.active()
    assert active in (leader, third)
    image = members.image(active)
    assert image.brokers[controller].fenced
    assert image.topics_by_name["its-own"].partitions[0].leader in (leader, third)
    members.settle(10 * SESSION_MS)
    assert members.active() == [active]
    assert not image.brokers[leader].fenced
    members.cut = set()
    members.settle(40_000)
    assert not members.image(active).brokers[controller].fenced
    members.close()


def test_a_withdrawal_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    withdraw = LiveBrokers.withdraw

    def fail_once(self: LiveBrokers, done: Callable[[str | None], None]) -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            done("the store did not answer")
        else:
            withdraw(self, done)

    monkeypatch.setattr(LiveBrokers, "withdraw", fail_once)
    members, controller, leader, third = three()
    members.cut = both_ways(controller, leader, third)
    members.settle(SESSION_MS + 4_000 + 2 * ROUND_MS)
    assert len(tries) == 2
    assert members.active() in ([leader], [third])
    members.close()


def test_a_controller_that_withdrew_and_is_back_soon_stays_registered_as_it_is() -> None:
    members, controller, leader, third = three()
    members.cut = both_ways(controller, leader, third)
    while members.active() in ([controller], []) or not members.image(members.active()[0]).brokers[controller].fenced:
        members.settle(100)
    (active,) = members.active()
    members.cut = set()
    while members.image(active).brokers[controller].fenced:
        members.settle(100)
    epoch = members.image(active).brokers[controller].epoch
    members.settle(3 * SESSION_MS)
    assert members.image(active).brokers[controller].epoch == epoch
    members.close()


def test_of_two_brokers_that_are_cut_from_each_other_the_controller_goes_on() -> None:
    members = Members().start(1, 2)
    (controller,) = members.active()
    other = 3 - controller
    members.cut = both_ways(1, 2)
    members.settle(3 * SESSION_MS)
    assert members.active() == [controller]
    assert members.image(other).brokers[other].fenced
    members.close()


def test_a_broker_whose_version_sends_no_heartbeats_is_not_fenced_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heartbeats, "start", lambda _: None)
    monkeypatch.setattr(cluster_member, "LiveBroker", lambda *own, **_: LiveBroker(*own))
    members, controller, leader, _ = three()
    members.settle(3 * SESSION_MS)
    assert members.active() == [controller]
    assert not members.image(controller).brokers[leader].fenced
    members.close()


def test_a_broker_of_this_version_that_sends_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heartbeats, "start", lambda _: None)
    members = Members().start(1, 2)
    (controller,) = members.active()
    epoch = members.image(controller).brokers[3 - controller].epoch
    members.settle(2 * SESSION_MS)
    assert members.image(controller).brokers[3 - controller].epoch > epoch, "it was fenced, and registered anew"
    members.close()


def test_what_a_live_key_says_is_read_by_and_of_older_versions() -> None:
    key, directories = "/live/1", (bytes(15) + b"a",)
    for live in (LiveBroker(bytes(16), directories), LiveBroker(bytes(16), directories, sends_heartbeats=True)):
        assert decode_live({key: encode_live(live)}) == {1: live}
