"""What the tests of connections share: shortcuts from the first request or none, sweeps by hand, a wire by pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from comparator.wire import Connection
from harness.waiting import wait_until

from pybroker import limits
from pybroker.net.connection import Connection as ServedConnection
from pybroker.net.socket_server import SocketServer
from pybroker.server import BrokerServer
from pybroker.testing import Broker

UNKNOWN_TOPIC_ID = bytes(15) + b"\x77"


@pytest.fixture
def shortcuts_from_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.connection._SHORTCUT_PAUSE", 0)


@pytest.fixture
def without_shortcuts() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServedConnection, "_learn_shortcut", lambda *_: None)
        yield patch


@pytest.fixture
def no_sweep_but_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock brings no sweep: a permit ends with the second one of ``sweep``."""
    monkeypatch.setattr(limits, "SWEEP_INTERVAL_MS", 60_000)


def sockets_of(broker: Broker) -> SocketServer:
    server = broker._running()._sockets
    assert server is not None
    return server


def sweep(broker: Broker, times: int = 1) -> None:
    """Let the broker look after its connections, at once."""

    def look(server: BrokerServer, done: Callable[[Any], None]) -> None:
        assert server._sockets is not None
        for _ in range(times):
            assert server._sockets._sweep_timer is not None
            server._sockets._sweep_timer.cancel()
            server._sockets._sweep()
        done(None)

    broker._call(look)


def topic_id(broker: Broker, topic: str) -> bytes:
    """The id of a topic, or one that no topic has."""
    known = broker._running().services.metadata.image.topics_by_name.get(topic)
    return UNKNOWN_TOPIC_ID if known is None else known.topic_id


class Wire(Connection):
    """A connection that sends what was posted meanwhile in one piece."""

    posted: list[bytes] | None = None

    def send_raw(self, data: bytes) -> None:
        if self.posted is None:
            super().send_raw(data)
        else:
            self.posted.append(data)

    def send_posted(self) -> None:
        posted, self.posted = self.posted or [], None
        self.send_raw(b"".join(posted))


def served_side(broker: Broker, wire: Connection) -> ServedConnection:
    """What the broker knows of a client's connection, as soon as it does."""
    server, address = sockets_of(broker), wire._socket.getsockname()
    found: list[ServedConnection] = []

    def is_accepted() -> bool:
        known: set[ServedConnection] = broker._call(lambda _, done: done(set(server._connections)))
        found[:] = [served for served in known if served._transport.get_extra_info("peername") == address]
        return bool(found)

    wait_until(is_accepted, "the connection is accepted")
    return found[0]
