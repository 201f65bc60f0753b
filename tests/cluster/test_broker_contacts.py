"""Whose session with the active controller is over."""

from __future__ import annotations

from pybroker.cluster.broker_contacts import BrokerContacts
from pybroker.cluster_limits import CONTACTS_LOOK_MS

from .fakes import ManualLoop, fake_env

SESSION_MS = 9_000


def contacts() -> tuple[ManualLoop, BrokerContacts, list[int]]:
    """With how often it has asked for a look."""
    loop = ManualLoop()
    made = BrokerContacts(fake_env(loop), SESSION_MS)
    looks: list[int] = []
    made.look = lambda: looks.append(1)
    made.on_activity(True)
    return loop, made, looks


def go_on(loop: ManualLoop, ms: int) -> None:
    """As a loop that runs."""
    for _ in range(ms // CONTACTS_LOOK_MS):
        loop.advance(CONTACTS_LOOK_MS)


def test_a_broker_that_never_came_has_a_session_from_the_controllers_begin() -> None:
    loop, made, looks = contacts()
    go_on(loop, SESSION_MS - CONTACTS_LOOK_MS)
    assert not made.is_over(1)
    assert not looks
    go_on(loop, CONTACTS_LOOK_MS)
    assert made.is_over(1)
    assert looks


def test_each_heartbeat_begins_a_session_anew() -> None:
    loop, made, _ = contacts()
    for _ in range(10):
        go_on(loop, 2_000)
        made.note(1)
        assert made.is_in_touch(1)
    go_on(loop, SESSION_MS - CONTACTS_LOOK_MS)
    assert (made.is_over(1), made.is_in_touch(1), made.is_over(2)) == (False, False, True)
    go_on(loop, CONTACTS_LOOK_MS)
    assert made.is_over(1)


def test_a_stall_of_the_controllers_own_is_no_brokers_silence() -> None:
    loop, made, looks = contacts()
    go_on(loop, 2_000)
    made.note(1)
    loop.advance(60_000)
    assert not made.is_over(1)
    assert not made.is_over(2)
    assert made.is_in_touch(1)
    go_on(loop, SESSION_MS)
    assert made.is_over(1)
    assert looks


def test_the_next_time_of_deciding_knows_nothing_of_the_last_one() -> None:
    loop, made, looks = contacts()
    go_on(loop, 2 * SESSION_MS)
    made.on_activity(False)
    looks.clear()
    go_on(loop, SESSION_MS)
    assert not looks
    made.on_activity(True)
    assert not made.is_over(1)
    made.close()
    go_on(loop, 2 * SESSION_MS)
    assert not looks
