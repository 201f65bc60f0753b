"""A client's end is noticed while its next request waits, but nothing behind a Produce is lost by that."""

from __future__ import annotations

from collections.abc import Iterator
from socket import SHUT_WR, socket, socketpair

import pytest

from pybroker.handlers.context import Parked
from tests.net.fake_network import API_KEY, FakeNetwork, FakeTransport, frame, post

PRODUCE = 0


class Client:
    """A client that has asked ``key`` and something behind it, neither of which is answered."""

    def __init__(self, network: FakeNetwork, ours: socket, key: int, behind: bool = True) -> None:
        self.abandoned: list[int] = []
        network.serve(self._handle, key)
        network.serve(self._handle, API_KEY)
        self.transport: FakeTransport = network.connect()
        self.transport.socket = ours
        post(self.transport, frame(b"first", key), *([frame(b"behind")] if behind else []))
        network.turn()

    def _handle(self, ctx: object, request: memoryview) -> Parked:
        parked = Parked()
        parked.on_abandon = lambda: self.abandoned.append(1)
        return parked


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


@pytest.fixture
def sockets() -> Iterator[tuple[socket, socket]]:
    ours, theirs = socketpair()
    with ours, theirs:
        yield ours, theirs


def look_after(network: FakeNetwork) -> None:
    for connection in list(network.processor.connections):
        connection.look_after(-1)


@pytest.mark.parametrize("how", ["closes", "sends nothing more"])
def test_client_that_goes_while_its_next_request_waits_is_let_go(
    network: FakeNetwork, sockets: tuple[socket, socket], how: str
) -> None:
    ours, theirs = sockets
    client = Client(network, ours, API_KEY)
    assert not client.transport.is_reading
    look_after(network)
    assert not client.transport.is_closing()
    theirs.close() if how == "closes" else theirs.shutdown(SHUT_WR)
    look_after(network)
    assert client.transport.is_closing()
    network.turn()
    assert client.abandoned == [1]


def test_what_is_behind_a_produce_is_waited_for(network: FakeNetwork, sockets: tuple[socket, socket]) -> None:
    ours, theirs = sockets
    client = Client(network, ours, PRODUCE)
    theirs.close()
    look_after(network)
    assert not client.transport.is_closing()


def test_whoever_is_read_from_is_not_asked_for(network: FakeNetwork, sockets: tuple[socket, socket]) -> None:
    ours, theirs = sockets
    client = Client(network, ours, API_KEY, behind=False)
    assert client.transport.is_reading
    theirs.close()
    look_after(network)
    assert not client.transport.is_closing()
