"""The port to the other brokers: requests to them, and what becomes of each.

Owns: the ``Peers`` protocol, what a link's source has of it, too (``Asked``), the names of its channels, and how a
request fails.  Owns no connection (``net/peer_client`` implements it) and no meaning of a request.

Invariants: ``done`` runs exactly once, on the loop, never inside of the call that brought it (``close`` alone tells
those that wait at once).  Requests of one channel to one broker leave in order, and are answered in order.  What waits
for a broker fails when the image says that it is fenced, has moved or is gone.

Counterpart in Kafka: ``NodeToControllerChannelManager``, ``BrokerBlockingSender`` and ``InterBrokerSendThread``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from pybroker_protocol.schema import Request

# Each channel is a connection of its own to each broker: what is answered late on one holds up nothing on another.
CONTROL: Final = "control"
HEARTBEATS: Final = "heartbeats"  # and registrations: what is not answered in time breaks this connection alone
FORWARDING: Final = "forwarding"
REPLICATION: Final = "replication"
TRANSACTIONS: Final = "transactions"  # questions to a transaction coordinator
MARKERS: Final = "markers"  # they wait for followers


class PeerFailure(Enum):
    """Why there is no response; the value is what the log says."""

    UNREACHABLE = "no connection to it can be made"
    BUSY = "too much waits for it already"
    TIMED_OUT = "it did not answer in time"
    DISCONNECTED = "its connection broke"
    BAD_REPLY = "it answered with what is no reply to the request"
    CLOSED = "this broker stops"


class PeerError(NamedTuple):
    """A request without a response.

    ``may_be_done``: the other broker may have got the request, and done it; else it surely has not.  ``message`` has
    the particulars, for the log.
    """

    reason: PeerFailure
    may_be_done: bool
    message: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}" if self.message else self.reason.value


# ``done(response, None)`` or ``done(None, error)``.
PeerDone = Callable[[Any | None, PeerError | None], None]


class Asked(Protocol):
    """Brokers by their ids, of this cluster or of another one; see the module's docstring for when ``done`` runs."""

    def ask(
        self,
        broker_id: int,
        request: Request,
        version: int,
        done: PeerDone,
        *,
        timeout_ms: int,
        channel: str = CONTROL,
    ) -> None:
        """Send a request in that version; the response is decoded.

        A ``records`` field of the response is a memoryview that is valid until ``done`` returns.  The time-out begins
        now; after it a request that was sent may be done yet, and its connection is made anew.  ValueError for a
        request that the version cannot express.
        """
        ...

    def close(self) -> None:
        """Close all connections; what waits fails, inside of this call.  Whoever asks from now on is told CLOSED."""
        ...


class Peers(Asked, Protocol):
    """The other brokers of the cluster.

    ``on_broken(broker_id)`` is called when a connection to a broker broke, or could not be made.
    """

    on_broken: Callable[[int], None]

    def forward(
        self,
        broker_id: int,
        frame: bytes | memoryview,
        principal: str,
        client_host: str,
        done: PeerDone,
        *,
        timeout_ms: int,
        by_token: bool = False,
    ) -> None:
        """Send a client's whole request, header and all but without its length, by Envelope (KIP-590).

        Raises ValueError, before anything is sent, for what another broker would not take.

        ``principal``, ``client_host`` and ``by_token`` are those of ``RequestContext``.  The response is an
        ``EnvelopeResponse``.
        """
        ...
