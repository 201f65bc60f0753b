"""Logins that end on a connection that lives (KIP-368), and the tokens of a link, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.virtual_world import VirtualWorld
from harness.wire import reply_frame

from pybroker.cluster.image.cluster_image import Endpoint
from pybroker.cluster.membership.peers import PeerError, PeerFailure
from pybroker.net.peer_link import PeerLink
from pybroker.net.peer_login import LoginRefused
from pybroker.net.peer_requests import PeerEncoder
from pybroker.net.source_tokens import REFUSED_PAUSE_MS, RETRY_BACKOFF_MS, SourceTokens
from pybroker.net.token_endpoint import Token
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT, VERSION = HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4
HEARTBEAT_KEY = 12
SESSION_MS = 10_000
USED_MS = 8_500


class Connection:
    """What was sent on it."""

    may_write = True
    framing: Any = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.broken = ""

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def abort(self, reason: str) -> None:
        self.broken = reason


class Login:
    """Takes one step."""

    def __init__(self, lifetime_ms: int) -> None:
        self.session_lifetime_ms = lifetime_ms
        self.is_over = False

    def begin(self, *, again: bool = False) -> bytes:
        return b"again" if again else b"first"

    def on_reply(self, frame: memoryview) -> bytes:
        if bytes(frame) == b"no":
            raise LoginRefused("not any more")
        self.is_over = True
        return b""


class Asked:
    """A link with one connection, and the requests that were asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lifetime_ms: int = SESSION_MS) -> None:
        self.world = VirtualWorld()
        self.connection = Connection()
        self.outcomes: list[PeerError | None] = []
        self._encoder = PeerEncoder("link")
        warnings = SimpleNamespace(warning=lambda *_: None)
        shared: Any = SimpleNamespace(
            long_replies=frozenset(),
            env=self.world.env,
            framing="long",
            login_framing="short",
            rate_limited_log=warnings,
            new_login=lambda: Login(lifetime_ms),
        )
        self.link = PeerLink("source", Endpoint("source", 9092), shared)

        def connect(link: PeerLink) -> None:
            link._candidate = cast(Any, self.connection)
            link.on_connected(cast(Any, self.connection))

        monkeypatch.setattr(PeerLink, "_connect", connect)
        self.ask()
        assert self.connection.sent == [b"first"]
        self.reply(b"yes")
        self.answer(0)

    def ask(self) -> None:
        deadline_ms = self.world.clock.monotonic_ms() + 60_000
        self.link.ask(
            self._encoder.encode(HEARTBEAT, VERSION, deadline_ms, lambda _, error: self.outcomes.append(error))
        )

    def reply(self, frame: bytes) -> None:
        self.link.on_frame(cast(Any, self.connection), memoryview(frame))

    def answer(self, correlation_id: int) -> None:
        """The answer to the request of that number."""
        self.reply(reply_frame(HEARTBEAT_KEY, HeartbeatResponse(error_code=0), VERSION, correlation_id)[4:])

    @property
    def logins(self) -> int:
        """How often it has begun to log in again."""
        return self.connection.sent.count(b"again")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def test_a_request_near_the_end_of_a_session_waits_for_another_login_on_the_same_connection(asked: Asked) -> None:
    asked.world.advance(USED_MS - 1)
    asked.ask()
    asked.answer(1)
    asked.world.advance(1)
    asked.ask()
    asked.ask()
    assert (asked.logins, asked.connection.sent[-1]) == (1, b"again")
    assert asked.connection.framing == "short"
    asked.reply(b"yes")
    assert asked.connection.framing == "long"
    asked.answer(2)
    asked.answer(3)
    assert (asked.outcomes, asked.connection.broken) == ([None] * 4, "")
    asked.world.advance(USED_MS)
    asked.ask()
    assert asked.logins == 2


def test_what_was_sent_is_answered_before_a_login_comes_again(asked: Asked) -> None:
    asked.world.advance(USED_MS - 1)
    asked.ask()
    asked.world.advance(1)
    sent = len(asked.connection.sent)
    asked.ask()
    assert (asked.logins, len(asked.connection.sent)) == (0, sent), "it waits"
    asked.answer(1)
    assert asked.logins == 1
    asked.reply(b"yes")
    asked.answer(2)
    assert asked.outcomes == [None] * 3


def test_a_login_that_is_refused_ends_the_connection_and_what_waits_for_it(asked: Asked) -> None:
    asked.world.advance(USED_MS)
    asked.ask()
    asked.reply(b"no")
    assert "not any more" in asked.connection.broken
    (error,) = asked.outcomes[1:]
    assert error is not None
    assert error.reason is PeerFailure.UNREACHABLE


@pytest.mark.parametrize(("lifetime_ms", "after_ms", "logins"), [(0, 10_000_000, 0), (100, 999, 0), (100, 1_000, 1)])
def test_a_session_without_an_end_is_for_good_and_no_login_comes_within_a_second(
    monkeypatch: pytest.MonkeyPatch, lifetime_ms: int, after_ms: int, logins: int
) -> None:
    asked = Asked(monkeypatch, lifetime_ms)
    asked.world.advance(after_ms)
    asked.ask()
    assert asked.logins == logins


# --- tokens ----------------------------------------------------------------------------------------------------------


class Tokens:
    """A link's tokens, of an endpoint that ``answers`` with what stands there."""

    def __init__(self) -> None:
        self.world = VirtualWorld()
        self.answers: Token | Exception = Token("one", 100.0)
        self.went_on = 0
        self.tokens = SourceTokens(self.world.env, self._fetch)

    def _fetch(self) -> Token:
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def want(self) -> None:
        self.tokens.when_known(self._go_on)

    def _go_on(self) -> None:
        self.went_on += 1

    def fetch(self) -> None:
        """The thread works, and the loop hears of it."""
        self.world.executors["source-tokens"].run()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


def test_a_first_login_waits_for_its_token(tokens: Tokens) -> None:
    tokens.want()
    tokens.want()
    assert tokens.went_on == 0
    tokens.fetch()
    assert (tokens.went_on, tokens.tokens.token()) == (2, "one")


def test_a_token_is_renewed_while_it_is_good_and_nothing_waits_for_that(tokens: Tokens) -> None:
    tokens.want()
    tokens.fetch()
    tokens.answers = Token("two", 100.0)
    tokens.world.advance(79_999)
    tokens.want()
    assert not tokens.world.executors["source-tokens"].jobs
    tokens.world.advance(1)
    tokens.want()
    assert (tokens.went_on, tokens.tokens.token()) == (3, "one")
    tokens.fetch()
    assert tokens.tokens.token() == "two"


def test_a_renewal_that_fails_is_tried_again_and_told_once_the_token_has_ended(tokens: Tokens) -> None:
    tokens.want()
    tokens.fetch()
    tokens.answers = ValueError("the endpoint is away")
    tokens.world.advance(80_000)
    tokens.want()
    tokens.fetch()
    assert tokens.tokens.token() == "one"
    tokens.world.advance(20_000)
    with pytest.raises(LoginRefused, match="the endpoint is away"):
        tokens.tokens.token()
    tokens.answers = Token("two", 100.0)
    tokens.want()
    tokens.fetch()
    assert tokens.tokens.token() == "two"


def test_an_endpoint_that_fails_is_asked_after_a_pause_and_each_login_hears_why(tokens: Tokens) -> None:
    tokens.answers = ValueError("no")
    for failures in range(3):
        tokens.want()
        tokens.fetch()
        assert tokens.went_on == 2 * failures + 1
        tokens.want()
        assert tokens.went_on == 2 * failures + 2, "it does not wait, and is refused"
        assert not tokens.world.executors["source-tokens"].jobs
        tokens.world.advance(RETRY_BACKOFF_MS << failures)


def test_a_token_that_is_refused_is_asked_for_anew_after_a_pause_and_until_then_the_reason_is_told(
    tokens: Tokens,
) -> None:
    tokens.want()
    tokens.fetch()
    tokens.tokens.refused("invalid_token")
    tokens.want()
    with pytest.raises(LoginRefused, match="invalid_token"):
        tokens.tokens.token()
    tokens.answers = Token("two", 100.0)
    tokens.world.advance(REFUSED_PAUSE_MS)
    tokens.want()
    tokens.fetch()
    assert tokens.tokens.token() == "two"


def test_what_waits_for_a_token_goes_on_at_the_end(tokens: Tokens) -> None:
    tokens.want()
    tokens.tokens.close()
    assert tokens.went_on == 1
    tokens.fetch()
    assert tokens.world.executors["source-tokens"].closed
