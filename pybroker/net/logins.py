"""What the connections that log in share: what they are served, step by step, and the account of who is half open.

Owns: the tables of what is served before, in and after a login.  Does not own the steps (``security/login``).

Kafka counterpart: the checks of API keys in SaslServerAuthenticator, and Processor's of expired sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker.handlers.context import Parked
from pybroker.net.dispatch import API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY, Dispatcher
from pybroker.net.half_open import HalfOpenConnections
from pybroker.net.long_requests import LongRequests

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.env import Env

# What is read at once of a connection that is not authenticated: a login's requests have some hundred bytes.
LOGIN_READ_BYTES = 16 << 10


class Logins:
    """``failure_delay_ms`` is how late the answer to a failure is sent.  Strangers' requests have long ones of their
    own."""

    __slots__ = (
        "_timers",
        "exchange",
        "expired",
        "failure_delay_ms",
        "half_open",
        "handshake",
        "handshake_alone",
        "long_requests",
        "nothing",
        "scratch",
        "tls_scratch",
    )

    def __init__(self, env: Env, failure_delay_ms: int) -> None:
        self.failure_delay_ms = failure_delay_ms
        self._timers = env.timers
        self.half_open = HalfOpenConnections(env)
        self.long_requests = LongRequests(env)
        self.scratch = memoryview(bytearray(LOGIN_READ_BYTES))
        self.tls_scratch = memoryview(bytearray(limits.TLS_READ_BYTES))
        before = "is not served before authentication"
        self.handshake = Dispatcher.only(API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, why=before)
        self.handshake_alone = Dispatcher.only(SASL_HANDSHAKE_KEY, why=before)
        self.exchange = Dispatcher.only(
            SASL_AUTHENTICATE_KEY,
            why="is not served during authentication",
            out_of_order=(API_VERSIONS_KEY, SASL_HANDSHAKE_KEY),
        )
        self.expired = Dispatcher.only(SASL_HANDSHAKE_KEY, why="is not served: the session has expired")
        self.nothing = Dispatcher.only(why="is not served after a failed authentication")

    def tell_late(self, response: Any, close: Callable[[], None]) -> Parked:
        """The answer to a login that failed, after ``failure_delay_ms``, and as much later the end.

        Kafka closes with the answer; clients that find both at once may miss what it says.
        """
        parked = Parked()

        def tell() -> None:
            parked.complete(response)
            self._timers.call_later(self.failure_delay_ms if response is not None else 0, close)

        parked.on_abandon = self._timers.call_later(self.failure_delay_ms, tell).cancel
        return parked

    def close(self) -> None:
        """No login goes on any more."""
        self.half_open.close()
        self.long_requests.close()
