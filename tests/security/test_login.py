"""The steps of a login, walked: to ask whether one may begin changes nothing; one anew is of a session that ends, and
rare.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from harness.virtual_world import VirtualClock

from pybroker.security.login import Login, LoginFailed, Started, Step
from pybroker.security.plain import PlainServer
from pybroker.security.sasl import NotYet, SaslError

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


class Scripted:
    """An exchange that goes as each token says."""

    user: str | None = None
    expires_at_ms = None
    is_token = False

    def evaluate(self, token: bytes) -> bytes | NotYet:
        match token:
            case b"late":
                return NotYet(lambda go_on: lambda: None)
            case b"wrong":
                raise SaslError("a wrong token")
            case b"last":
                self.user = "alice"
        return b"answer"


class ScriptedMechanisms(Mechanisms):
    def start(self, name: str) -> Started | None:
        return Started(Scripted(), 60_000) if name in self.names else None


HANDSHAKES: dict[str, tuple[str, int]] = {"PLAIN": ("PLAIN", 1), "bare": ("PLAIN", 0), "unknown": ("NONE", 1)}
TOKENS = {each: each.encode() for each in ("more", "late", "last", "wrong")}
H, X, D, F = Step

# By step, and by what comes: where it leads.  What is not there is refused, and changes nothing.
WALK: dict[Step, dict[str, Step]] = {
    H: {"PLAIN": X, "bare": X, "unknown": F},
    X: {"more": X, "late": X, "last": D, "wrong": F},
    D: {"PLAIN": X, "bare": F, "unknown": F},
    F: {},
}


def login_at(step: Step, clock: VirtualClock) -> Login:
    mechanisms: Any = ScriptedMechanisms()
    login = Login(lambda: mechanisms, clock, TOKEN_BYTES_MAX)
    for each in {H: (), X: ("PLAIN",), D: ("PLAIN", "last"), F: ("PLAIN", "wrong")}[step]:
        come(login, each)
    assert login.step is step
    return login


def come(login: Login, what: str) -> bool:
    """Whether a handler hands it to the login, which makes of it what it will."""
    may_come = login.is_in_exchange if what in TOKENS else login.may_begin()
    if may_come:
        try:
            if what in TOKENS:
                login.go_on(TOKENS[what])
            else:
                login.begin(*HANDSHAKES[what])
        except LoginFailed:
            assert login.step is F
    return may_come


@pytest.mark.parametrize(("step", "what"), list(itertools.product(Step, [*HANDSHAKES, *TOKENS])))
def test_each_step_takes_what_the_table_has_and_refuses_all_else(step: Step, what: str) -> None:
    login = login_at(step, VirtualClock())
    session = login.session
    assert come(login, what) == (what in WALK[step])
    assert login.step is WALK[step].get(what, step)
    assert (login.session is session) == (what != "last" or step is not X), "who it is changes at the end alone"
