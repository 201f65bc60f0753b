"""Who is at the other end of a connection: the order of SASL requests, sessions, and authentication anew (KIP-368).

Owns: which step may come when, what a failure tells, how long a session lasts, and that a client which authenticates
anew stays the same.  Owns no mechanism (``sasl``), no message of Kafka's (``handlers``) and no connection (``net``).

Counterpart in Kafka: ``SaslServerAuthenticator``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pybroker.security.sasl import NotYet, SaslError, SaslRefused, SaslServer

if TYPE_CHECKING:
    from pybroker.env import Clock

# KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS
_REAUTH_INTERVAL_MS: Final = 1_000


class Step(Enum):
    """What may come next; a test walks what each request leads to."""

    HANDSHAKE = 1  # SaslHandshake (before the first login ApiVersions may come, too, once)
    EXCHANGE = 2  # tokens: in SaslAuthenticate, or bare after a SaslHandshake of version 0
    DONE = 3  # ``session`` says who it is; where it ends SaslHandshake begins anew, at most once a second
    FAILED = 4  # nothing more is served


class LoginFailed(Exception):
    """The login is over.  The text may be sent; ``reason`` is for the log alone.

    ``is_answered``: else the connection ends without an answer, as Kafka ends those that choose a wrong mechanism anew.
    """

    def __init__(self, message: str, reason: str = "", *, is_answered: bool = True) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.is_answered = is_answered


class Session(NamedTuple):
    """A login that succeeded.  Times are of the clock that never goes back; None: until the connection ends."""

    principal: str  # "User:alice"
    mechanism: str
    lifetime_ms: int  # as clients get it: 0 for no end
    expires_at_ms: int | None
    is_broker: bool = False  # of this cluster, by its secret
    by_token: bool = False  # a delegation token's holder


class Started(NamedTuple):
    """An exchange that has begun."""

    server: SaslServer
    max_session_ms: int = 0  # connections.max.reauth.ms; 0 for no end
    is_of_brokers: bool = False


class Mechanisms(Protocol):
    """What a listener lets its clients use (``security/mechanisms.py``)."""

    @property
    def names(self) -> Sequence[str]:
        """What clients get."""
        ...

    def start(self, name: str) -> Started | None:
        """Begin an exchange; None where the mechanism is not enabled."""
        ...


class Login:
    """The logins of one connection.  ``mechanisms()`` is what its listener has at that moment.

    A longer token than ``token_bytes_max`` fails, in a login anew as well (``sasl.server.max.receive.size``).
    """

    __slots__ = (
        "_begun_ms",
        "_clock",
        "_mechanism",
        "_mechanisms",
        "_started",
        "_token_bytes_max",
        "has_bare_tokens",
        "session",
        "step",
    )

    def __init__(self, mechanisms: Callable[[], Mechanisms], clock: Clock, token_bytes_max: int) -> None:
        self._mechanisms = mechanisms
        self._token_bytes_max = token_bytes_max
        self._clock = clock
        self._mechanism = ""
        self._started: Started | None = None
        self._begun_ms: int | None = None  # of the last login anew
        self.has_bare_tokens = False
        self.session: Session | None = None
        self.step = Step.HANDSHAKE

    @property
    def names(self) -> list[str]:
        """The mechanisms that clients get."""
        return list(self._mechanisms().names)

    @property
    def is_in_exchange(self) -> bool:
        """Whether a token is next."""
        return self.step is Step.EXCHANGE

    def is_done(self) -> bool:
        """Whether ``session`` is that of the last exchange."""
        return self.step is Step.DONE

    def may_begin(self) -> bool:
        """Whether SaslHandshake may come now: a session without an end is not renewed."""
        if self.step is not Step.DONE or self.session is None:
            return self.step is Step.HANDSHAKE
        if self.session.expires_at_ms is None:
            return False
        return self._begun_ms is None or self._clock.monotonic_ms() - self._begun_ms >= _REAUTH_INTERVAL_MS

    def begin(self, mechanism: str, version: int) -> None:
        """SaslHandshake, which ``may_begin``.  Raises LoginFailed for a mechanism that is not enabled."""
        if self.session is not None:
            self._begun_ms = self._clock.monotonic_ms()
        if version == 0 and self.session is not None:
            self.step = Step.FAILED
            raise LoginFailed("Re-authentication needs SaslHandshake 1", is_answered=False)
        started = self._mechanisms().start(mechanism)
        if started is None:
            self.step = Step.FAILED
            text, reason = f"Unsupported SASL mechanism {mechanism}", "an unsupported SASL mechanism"
            raise LoginFailed(text, reason, is_answered=self.session is None)
        self._mechanism, self._started = mechanism, started
        self.has_bare_tokens = version == 0
        self.step = Step.EXCHANGE

    def go_on(self, token: bytes) -> bytes | NotYet:
        """The answer to a token; with the last one ``session`` is the new one, and the step is DONE.

        ``NotYet`` where it has to be waited for: then it is asked for again, with the same token, and nothing between.

        Raises LoginFailed, after which nothing more is served.
        """
        started = self._started
        assert started is not None, "SaslHandshake comes first"
        before, kind = self.session, "authentication" if self.session is None else "re-authentication"
        if before is not None and before.mechanism != self._mechanism:
            self._fail()
            raise LoginFailed(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{before.mechanism}'",
                is_answered=False,
            )
        try:
            if len(token) > self._token_bytes_max:
                raise SaslError(f"a message of {len(token)} bytes")
            answer = started.server.evaluate(token)
            if not isinstance(answer, NotYet) and started.server.user is not None:
                self._complete(started, started.server.user, before)
        except SaslRefused as error:
            self._fail()
            raise LoginFailed(str(error), f"{kind} failed: {error.reason}") from error
        except SaslError as error:
            self._fail()
            message = (
                f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            raise LoginFailed(message, f"{message} ({error})") from error
        return answer

    def _complete(self, started: Started, user: str, before: Session | None) -> None:
        principal = f"User:{user}"
        if before is not None and before.principal != principal:
            one, other = before.principal.replace(":", ".", 1), principal.replace(":", ".", 1)
            raise SaslRefused(f"Cannot change principals during re-authentication from {one}: {other}")
        lifetime_ms, ends = started.max_session_ms, started.max_session_ms > 0
        if started.server.expires_at_ms is not None:
            left_ms = max(started.server.expires_at_ms - self._clock.now_ms(), 0)
            lifetime_ms, ends = min(left_ms, lifetime_ms) if ends else left_ms, True
        expires_at_ms = self._clock.monotonic_ms() + lifetime_ms if ends else None
        is_broker, by_token = started.is_of_brokers, started.server.is_token
        self.session = Session(principal, self._mechanism, lifetime_ms, expires_at_ms, is_broker, by_token)
        self._started = None
        self.step = Step.DONE

    def _fail(self) -> None:
        self._started = None
        self.step = Step.FAILED
