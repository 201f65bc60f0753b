"""When the loop looks for the next request instead of sleeping, and when it stops to."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import pytest

from pybroker.net.busy_poll import BUSY_POLL_BYTES, BUSY_POLL_FAILURES, BusyPoll, busy_poll

TURN_US = 10
ALLOWED_US = 200
CLIENT, OTHER_CLIENT = 1, 2
SMALL = 100


class Loop:
    """Turns that take ``TURN_US`` each as long as somebody wants one."""

    def __init__(self, allowed_us: int = ALLOWED_US) -> None:
        self.now_us = 0
        self.turns = 0
        self._ready: deque[Callable[[], None]] = deque()
        self.poll = busy_poll(allowed_us, False, self._ready.append, lambda: self.now_us * 1_000)
        self.request()  # the first one says who the client is

    def request(self, client: int = CLIENT, size: int = SMALL) -> None:
        if self.poll is not None:
            self.poll.on_request(client, size)

    def pass_time(self, us: int) -> None:
        """Go round for as long as that, then sleep for the rest of it."""
        until_us = self.now_us + us
        while self._ready and self.now_us < until_us:
            self.now_us += TURN_US
            self.turns += 1
            self._ready.popleft()()
        self.now_us = until_us

    def turns_after_requests_every(self, us: int, requests: int) -> int:
        before = self.turns
        for _ in range(requests):
            self.request()
            self.pass_time(us)
        return self.turns - before


def test_nothing_goes_round_without_requests() -> None:
    loop = Loop()
    loop.pass_time(1_000_000)
    assert loop.turns == 0


def test_loop_sleeps_once_no_request_came_in_the_time_allowed() -> None:
    loop = Loop()
    loop.request()
    loop.pass_time(1_000_000)
    assert loop.turns == ALLOWED_US // TURN_US + 1
    assert loop.poll is not None
    assert not loop.poll.active


def test_loop_stays_awake_while_requests_come_quickly() -> None:
    loop = Loop()
    assert loop.turns_after_requests_every(100, 1_000) == 1_000 * 100 // TURN_US


def test_requests_that_come_slowly_are_hardly_ever_looked_for() -> None:
    loop = Loop()
    loop.turns_after_requests_every(10_000, 2 << BUSY_POLL_FAILURES)
    tries = 10
    turns = loop.turns_after_requests_every(10_000, tries << BUSY_POLL_FAILURES)
    assert 0 < turns <= tries * (ALLOWED_US // TURN_US + 1)


def test_requests_that_come_quickly_again_are_looked_for_again() -> None:
    loop = Loop()
    loop.turns_after_requests_every(10_000, 2_000)
    loop.turns_after_requests_every(100, 2 << BUSY_POLL_FAILURES)
    assert loop.turns_after_requests_every(100, 1_000) == 1_000 * 100 // TURN_US


def test_loop_never_goes_round_where_that_is_not_allowed() -> None:
    loop = Loop(allowed_us=0)
    assert loop.turns_after_requests_every(1, 1_000) == 0


def test_loop_sleeps_between_requests_of_several_clients() -> None:
    loop = Loop()
    for _ in range(1_000):
        for client in (OTHER_CLIENT, CLIENT):
            loop.request(client)
            loop.pass_time(50)
    assert loop.turns == 0


def test_loop_goes_to_sleep_when_another_client_comes() -> None:
    loop = Loop()
    loop.request()
    loop.request(OTHER_CLIENT)
    loop.pass_time(ALLOWED_US)
    assert loop.turns == 1


def test_loop_sleeps_between_requests_that_move_much() -> None:
    loop = Loop()
    for _ in range(1_000):
        loop.request(size=BUSY_POLL_BYTES + 1)
        loop.pass_time(50)
    assert loop.turns == 0


@pytest.mark.parametrize(
    ("own_process", "processors", "allowed"), [(True, 2, True), (True, 1, False), (False, 2, False)]
)
def test_where_nobody_says_it_takes_a_process_of_its_own_and_two_processors(
    monkeypatch: pytest.MonkeyPatch, own_process: bool, processors: int, allowed: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert isinstance(busy_poll(-1, own_process, lambda _: None, lambda: 0), BusyPoll) is allowed
