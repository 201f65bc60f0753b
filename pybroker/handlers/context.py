"""What a handler is given, and what it may give back.

Owns: ``RequestContext`` (who asks, by which listener, in which version) and ``Parked`` (a reply that
comes later).  Owns no I/O: ``net`` makes contexts and sends what handlers return.

A handler is a plain function in a file of its own, ``def handle(ctx, request)``. It returns a response message now, a
``Parked`` which is completed exactly once, or ``None`` for no reply at all (Produce with acks=0).

A handler that walks through as much as a client likes to name shares its work. It is a generator (or returns one),
which yields after each element, as a place where others may have their turn. ``answer = yield parked`` goes on when
that is completed. What it returns is the handler's answer. Where there is little to do it is over in its connection's
share of the turn, and costs next to nothing. Between two yields a handler must not take long.

A view of a request's bytes dies when the handler returns, unless the handler has called ``hold_request()``.  A handler
never reorders two requests of one connection, and a Produce handler appends, or takes its place among the appends,
before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from pybroker.handlers.services import Services
    from pybroker.security.login import Login, Session


class CloseConnection(Exception):
    """Raised by a handler: close the connection without a reply, with this as the reason in the log."""


class HeldRequest(Protocol):
    """The bytes of a request that outlive its handler (``ctx.connection.hold_request()``), until ``release()``."""

    def release(self) -> None: ...


class RequestChannel(Protocol):
    """What a handler may ask of, and tell, whatever the request came by: a connection."""

    client_software: tuple[str, str]  # name and version, of ApiVersions; empty before
    is_broker: bool  # it has proved that it is another broker's of this cluster
    by_token: bool  # its session is a delegation token's holder's
    login: Login | None  # by which it is said who it is; None where nobody asks

    def login_began(self) -> None:
        """The next thing to be served is the exchange."""
        ...

    def logged_in(self, session: Session) -> None:
        """It is known who it is, once the request is answered."""
        ...

    def login_failed(self, response: Any, reason: str) -> Parked:
        """Answer so, after a while, and close the connection, with ``reason`` in the log."""
        ...

    def hold_request(self) -> HeldRequest:
        """Keep the bytes of the request being served."""
        ...

    def hold_copy(self, size: int) -> HeldRequest:
        """Have so many bytes of the request count that are copied."""
        ...

    def refuse(self, reason: str) -> None:
        """The request was no good: close the connection without a reply, with ``reason`` in the log."""
        ...


# What a parked request without a reply completes with: it keeps its place until it is done, and nothing is sent.
NO_REPLY: Any = object()


class Parked:
    """A reply that comes later.  The connection is muted (as in Kafka) until it completes.

    ``complete(response)`` is called exactly once, by the owner of the wait.  When the client goes away first, the
    connection calls ``abandon()``, which runs ``on_abandon`` so that the owner can forget the wait; ``complete`` after
    that is ignored.  While ``holds_back`` is set not even Produce overtakes a Produce.
    """

    __slots__ = ("_deliver", "abandoned", "completed", "holds_back", "on_abandon", "response")

    def __init__(self) -> None:
        self.holds_back = False
        self.completed = False
        self.abandoned = False
        self.response: Any = None
        self.on_abandon: Callable[[], None] | None = None
        self._deliver: Callable[[Any], None] | None = None

    def complete(self, response: Any) -> None:
        """Hand over the response message (``None``: close the connection without one; or ``NO_REPLY``)."""
        if self.abandoned:
            return
        assert not self.completed, "a parked reply completes exactly once"
        self.completed = True
        self.response = response
        # What is over refers to nothing: else each parked request is a cycle that waits for the garbage collector.
        self.on_abandon = None
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(response)

    def subscribe(self, deliver: Callable[[Any], None]) -> None:
        """Called by the connection: ``deliver(response)`` at completion, at once if it has completed already."""
        if self.completed:
            deliver(self.response)
        else:
            self._deliver = deliver

    def abandon(self) -> None:
        """Called by the connection when the client is gone."""
        if not self.completed and not self.abandoned:
            self.abandoned = True
            on_abandon, self.on_abandon, self._deliver = self.on_abandon, None, None
            if on_abandon is not None:
                on_abandon()


# What a handler does in steps: each ``yield`` is nothing or a Parked, which gives its response; the end is the answer.
Steps = Generator[Any, Any, Any]


class RequestContext:
    """One request's surroundings: version, client, listener, principal, and the services of the broker."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "listener",
        "principal",
        "services",
    )

    services: Services
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str  # as Kafka prints it in DescribeGroups: "/127.0.0.1"
    listener: str  # the name of the listener the request came in on, e.g. "PLAINTEXT"
    principal: str  # who it is, as Kafka prints it: "User:alice", or "User:ANONYMOUS" where nobody asks
    connection: RequestChannel
    is_forwarded: ClassVar[bool] = False  # by another broker, which has judged what each broker judges for itself

    def authorize(self, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True) -> bool:
        """Whether the principal may do ``operation`` on the resource; without an authorizer it may do everything."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.allows(
            self, operation, resource_type, name, log_if_denied=log_if_denied
        )

    def authorize_by_resource_type(self, operation: int, resource_type: int) -> bool:
        """Whether the principal may do ``operation`` on any resource of the type."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.allows_by_resource_type(self, operation, resource_type)

    @property
    def by_token(self) -> bool:
        """Whether the client has shown a delegation token, which may ask for no others."""
        return self.connection.by_token

    @property
    def is_brokers(self) -> bool:
        """Whether another broker of this cluster asks by itself, and has proved that it is one.

        Handlers ask this.  ``connection.is_broker`` says whose connection it is: a broker's also while it forwards what
        a client asks.
        """
        return self.connection.is_broker and not self.is_forwarded
