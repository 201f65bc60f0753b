"""What every kind of accepted connection has in common: the address of its peer, and the ends that it may have.

Owns: the log line with which a connection ends, and the difference between a refusal, an end and an abort.  Does not
own when a connection ends, nor what it holds until then: that is of ``connection``, ``login_connection``,
``tls_connection`` and ``connection_rate_limit``.

Invariant: a connection is refused with one line of the log, or one for many of its kind, and only while it is open.

Kafka counterpart: Selector.close and the log lines of SocketServer.Processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from pybroker.net.processor import Processor


def peer_host_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address in Kafka's form: ``/127.0.0.1``."""
    peer = transport.get_extra_info("peername")
    return f"/{peer[0]}" if peer else "/unknown"


class AcceptedConnection:
    """A connection ends by ``close`` or ``abort``; its class says by ``__str__`` how the log names it."""

    __slots__ = ()

    _processor: Processor
    closed: bool
    peer_host: str

    def close(self) -> None:
        """Close after what is already handed to the transport has been sent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        raise NotImplementedError

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the peer sent, with one log line, or one for many of its kind."""
        if not self.closed:
            self.warn(reason)
            self.close()

    def give_up(self, reason: str) -> None:
        """Close at once, because of what the peer does not do."""
        self.refuse(reason)
        self.abort()

    def warn(self, reason: str) -> None:
        """Log why the connection ends."""
        line = "closing the connection of %s: %s"
        self._processor.rate_limited_log.warning(self.peer_host, reason, line, self, reason)
