"""Whose session with the active controller is over."""

from __future__ import annotations

from harness.virtual_world import VirtualWorld

from pybroker.cluster.failure_detection.broker_contacts import CONTACTS_LOOK_MS, BrokerContacts

SESSION_MS = 9_000


def contacts() -> tuple[VirtualWorld, BrokerContacts, list[int]]:
    """With how often it has asked for a look."""
    world = VirtualWorld()
    made = BrokerContacts(world.env, SESSION_MS)
    looks: list[int] = []
    made.look = lambda: looks.append(1)
    made.on_activity(True)
    return world, made, looks


def go_on(world: VirtualWorld, ms: int) -> None:
    """As a loop that runs."""
    for _ in range(ms // CONTACTS_LOOK_MS):
        world.advance(CONTACTS_LOOK_MS)


def test_a_broker_that_never_came_has_a_session_from_the_controllers_begin() -> None:
    world, made, looks = contacts()
    go_on(world, SESSION_MS - CONTACTS_LOOK_MS)
    assert not made.is_over(1)
    assert not looks
    go_on(world, CONTACTS_LOOK_MS)
    assert made.is_over(1)
    assert looks


def test_each_heartbeat_begins_a_session_anew() -> None:
    world, made, _ = contacts()
    for _ in range(10):
        go_on(world, 2_000)
        made.note(1)
        assert made.is_in_touch(1)
    go_on(world, SESSION_MS - CONTACTS_LOOK_MS)
    assert (made.is_over(1), made.is_in_touch(1), made.is_over(2)) == (False, False, True)
    go_on(world, CONTACTS_LOOK_MS)
    assert made.is_over(1)


def test_a_stall_of_the_controllers_own_is_no_brokers_silence() -> None:
    world, made, looks = contacts()
    go_on(world, 2_000)
    made.note(1)
    world.leap(60_000)
    assert not made.is_over(1)
    assert not made.is_over(2)
    assert made.is_in_touch(1)
    go_on(world, SESSION_MS)
    assert made.is_over(1)
    assert looks


def test_the_next_time_of_deciding_knows_nothing_of_the_last_one() -> None:
    world, made, looks = contacts()
    go_on(world, 2 * SESSION_MS)
    made.on_activity(False)
    looks.clear()
    go_on(world, SESSION_MS)
    assert not looks
    made.on_activity(True)
    assert not made.is_over(1)
    made.close()
    go_on(world, 2 * SESSION_MS)
    assert not looks
