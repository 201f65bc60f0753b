"""Datagrams between two sockets of this machine."""

from __future__ import annotations

import asyncio
import socket

import pytest

from pybroker.cluster_limits import DATAGRAMS_WAITING_MAX
from pybroker.net import datagrams
from pybroker.net.datagrams import DatagramSocket


async def pair() -> tuple[DatagramSocket, DatagramSocket, int]:
    """Two sockets, and the port of the second one."""
    first, second = await DatagramSocket.bind("127.0.0.1", 0), await DatagramSocket.bind("127.0.0.1", 0)
    return first, second, second._stream.sockname[1]


def test_a_datagram_arrives_whole_by_a_name_as_by_an_address() -> None:
    async def run() -> None:
        first, second, port = await pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        first.send("127.0.0.1", port, b"one")
        assert await asyncio.wait_for(heard.get(), 10) == b"one"
        first.send("localhost", port, b"two")
        assert await asyncio.wait_for(heard.get(), 10) == b"two"
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_what_cannot_be_sent_holds_nothing_up_and_a_fault_of_the_receiver_ends_nothing() -> None:
    async def run() -> None:
        first, second, port = await pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        def receive(data: bytes) -> None:
            heard.put_nowait(data)
            raise ValueError("a fault of whoever hears")

        first.start(lambda _: None)
        second.start(receive)
        first.send("no.such.host.invalid", 1, b"nowhere")
        first.send("127.0.0.1", 1, b"nobody listens there")
        for data in (b"one", b"two"):
            first.send("127.0.0.1", port, data)
            assert await asyncio.wait_for(heard.get(), 10) == data
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


class Names:
    """Name resolution in the test's hand: ``slow`` never ends, ``gone`` is not found, others are 127.0.0.1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.gone: set[str] = set()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._getaddrinfo)

    async def _getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        if host == "slow":
            await asyncio.Event().wait()
        if host in self.gone:
            raise socket.gaierror("not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.0.1", port))]


def test_a_name_whose_lookup_takes_long_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        first, second, port = await pair()
        names = Names(monkeypatch)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        for number in range(3):
            first.send("slow", 1, b"is not heard")
            first.send("fast", port, b"%d" % number)
            assert await asyncio.wait_for(heard.get(), 10) == b"%d" % number
        assert sorted(names.asked) == ["fast", "slow"], "one lookup at a time for a name"
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_a_name_that_is_not_found_any_more_keeps_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "NAME_LOOKUP_MS", 0)
    monkeypatch.setattr(datagrams, "NAME_LOOKUP_RETRY_MS", 0)

    async def run() -> None:
        first, second, port = await pair()
        names = Names(monkeypatch)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        for number in range(4):
            first.send("a", port, b"%d" % number)
            assert await asyncio.wait_for(heard.get(), 10) == b"%d" % number
            names.gone = {"a"}
        assert len(names.asked) > 1
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_of_a_name_that_is_not_found_yet_the_last_datagram_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "NAME_LOOKUP_RETRY_MS", 0)

    async def run() -> None:
        first, second, port = await pair()
        names = Names(monkeypatch)
        names.gone = {"a"}
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        first.send("a", port, b"one")
        while not names.asked:
            await asyncio.sleep(0)
        names.gone = set()
        first.send("a", port, b"two")
        assert await asyncio.wait_for(heard.get(), 10) == b"two"
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_of_too_many_that_wait_the_oldest_are_dropped() -> None:
    async def run() -> None:
        first, second, port = await pair()
        for number in range(DATAGRAMS_WAITING_MAX + 5):
            first.send("127.0.0.1", port, number.to_bytes(4, "big"))
        assert len(first._unsent) == DATAGRAMS_WAITING_MAX
        assert first._unsent[0][2] == (5).to_bytes(4, "big")
        first.close()
        second.close()

    asyncio.run(run())


def test_an_address_that_is_taken_is_an_os_error() -> None:
    async def run() -> None:
        first, second, port = await pair()
        with pytest.raises(OSError, match="in use"):
            await DatagramSocket.bind("127.0.0.1", port)
        first.close()
        second.close()

    asyncio.run(run())
