"""The steps of a login: to ask whether one may begin changes nothing; one anew is of a session that ends, and rare."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from harness.virtual_world import VirtualClock

from pybroker.security.login import Login, LoginFailed, Started
from pybroker.security.plain import PlainServer

TOKEN = b"\0alice\0secret"


TOKEN_BYTES_MAX = 100


class Mechanisms:
    names: Sequence[str] = ("PLAIN",)

    def __init__(self, max_session_ms: int = 60_000) -> None:
        self._max_session_ms = max_session_ms

    def start(self, name: str) -> Started | None:
        return Started(PlainServer({"alice": "secret"}), self._max_session_ms)


def logged_in(clock: VirtualClock, max_session_ms: int = 60_000) -> Login:
    mechanisms = Mechanisms(max_session_ms)
    login = Login(lambda: mechanisms, clock, TOKEN_BYTES_MAX)
    log_in(login)
    return login


def log_in(login: Login) -> None:
    assert login.may_begin()
    login.begin("PLAIN", 1)
    login.go_on(TOKEN)
    assert login.is_done()


def test_to_ask_whether_a_login_may_begin_is_not_to_begin_it() -> None:
    login = logged_in(VirtualClock())
    assert [login.may_begin() for _ in range(3)] == [True] * 3
    log_in(login)


def test_a_session_without_an_end_is_not_renewed() -> None:
    assert not logged_in(VirtualClock(), max_session_ms=0).may_begin()


def test_a_login_anew_begins_at_most_once_a_second() -> None:
    clock = VirtualClock()
    login = logged_in(clock)
    log_in(login)
    assert not login.may_begin()
    clock.pass_ms(999)
    assert not login.may_begin()
    clock.pass_ms(1)
    log_in(login)


def test_a_long_token_fails_in_a_login_anew_as_in_the_first() -> None:
    mechanisms = Mechanisms()
    fresh = Login(lambda: mechanisms, VirtualClock(), TOKEN_BYTES_MAX)
    for login in (fresh, logged_in(VirtualClock())):
        login.begin("PLAIN", 1)
        with pytest.raises(LoginFailed, match="invalid credentials"):
            login.go_on(TOKEN + b"x" * TOKEN_BYTES_MAX)
        assert not login.is_done()
