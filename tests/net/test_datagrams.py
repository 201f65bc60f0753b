"""Datagrams between two sockets of this machine."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
import uvloop

from pybroker.net import datagrams
from pybroker.net.datagrams import DATAGRAMS_WAITING_MAX, DatagramSocket
from pybroker.net.loop_env import loop_env


async def pair() -> tuple[DatagramSocket, DatagramSocket, int]:
    """Two sockets, and the port of the second one."""
    env = loop_env()
    first = await DatagramSocket.bind(env, "127.0.0.1", 0)
    second = await DatagramSocket.bind(env, "127.0.0.1", 0)
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
            await DatagramSocket.bind(loop_env(), "127.0.0.1", port)
        first.close()
        second.close()

    asyncio.run(run())


# A socket that is bound to loopback cannot send there: EACCES, EINVAL, and for the last EMSGSIZE.
OUT_OF_REACH = [("255.255.255.255", b""), ("10.1.1.1", b""), ("127.0.0.1", bytes(70_000))]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("unreachable", "data"), OUT_OF_REACH)
def test_an_error_of_one_address_costs_another_no_datagram(unreachable: str, data: bytes, loop: Any) -> None:
    async def run() -> None:
        first, second, port = await pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        for number in range(20):
            first.send(unreachable, 9, data)
            first.send("127.0.0.1", port, b"%d" % number)
            assert await asyncio.wait_for(heard.get(), 10) == b"%d" % number
        first.close()
        second.close()
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


class Refusing:
    """A transport that tells of an error of each datagram to one port, at once or with the next one."""

    def __init__(self, first: DatagramSocket, bad_port: int, code: int, *, late: bool) -> None:
        self._transport: Any = first._stream._transport
        self._send = self._transport.sendto
        self._late, self._bad_port, self._code, self._owed = late, bad_port, code, False
        self._transport.sendto = self.sendto

    def sendto(self, data: bytes, address: Any) -> None:
        tell = address[1] == self._bad_port
        if self._late:
            tell, self._owed = self._owed, tell
        if tell:
            self._transport._protocol.error_received(OSError(self._code, "told by the kernel"))
        if address[1] != self._bad_port:
            self._send(data, address)


CODES = [errno.ENETUNREACH, errno.EPERM, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENOBUFS, errno.ENETDOWN]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_no_error_of_the_kernel_s_is_kept_for_another_address(code: int, late: bool) -> None:
    async def run() -> None:
        first, second, port = await pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        Refusing(first, 9, code, late=late)
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        for number in range(20):
            first.send("127.0.0.1", 9, b"in vain")
            first.send("127.0.0.1", port, b"%d" % number)
            assert await asyncio.wait_for(heard.get(), 10) == b"%d" % number
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_a_name_with_an_address_that_cannot_be_reached_is_reached_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        first, second, port = await pair()

        async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            assert host == "a"
            return [(0, 0, 0, "", (address, port)) for address in ("255.255.255.255", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        while heard.empty():  # what went to the other address first is lost
            first.send("a", port, b"one")
            await asyncio.sleep(0.01)
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_peer_that_has_another_address_is_heard_once_the_former_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "NAME_LOOKUP_RETRY_MS", 0)

    async def run() -> None:
        first, second, port = await pair()
        addresses, looked_up = ["255.255.255.255"], asyncio.Event()

        async def getaddrinfo(_host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            looked_up.set()
            return [(0, 0, 0, "", (address, port)) for address in addresses]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        first.send("a", port, b"one")
        await looked_up.wait()
        addresses[:] = ["127.0.0.1"]
        while heard.empty():
            first.send("a", port, b"two")
            await asyncio.sleep(0.01)
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_socket_that_is_lost_is_bound_anew_at_its_port() -> None:
    async def run() -> None:
        first, second, port = await pair()
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        first.start(lambda _: None)
        second.start(heard.put_nowait)
        first._stream._transport._fatal_error(OSError("the socket is broken"))
        second._stream._transport._fatal_error(OSError("the socket is broken"))
        while heard.empty():
            first.send("127.0.0.1", port, b"one")
            await asyncio.sleep(0.01)
        assert second._stream.sockname[1] == port
        first.close()
        second.close()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_broker_that_listens_on_all_interfaces_hears_both_families_and_speaks_to_both(host: str) -> None:
    async def run() -> None:
        everywhere, back = await DatagramSocket.bind(loop_env(), "", 0), await DatagramSocket.bind(loop_env(), host, 0)
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        everywhere.start(heard.put_nowait)
        back.start(heard.put_nowait)
        back.send(host, everywhere._stream.sockname[1], b"there")
        assert await asyncio.wait_for(heard.get(), 10) == b"there"
        everywhere.send(host, back._stream.sockname[1], b"and back")
        assert await asyncio.wait_for(heard.get(), 10) == b"and back"
        everywhere.close()
        back.close()
        await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_socket_that_is_closed_while_it_is_bound_anew_leaves_its_port(loop: Any) -> None:
    async def run() -> None:
        for turns in range(12):
            first = await DatagramSocket.bind(loop_env(), "127.0.0.1", 0)
            port = first._stream.sockname[1]
            first.start(lambda _: None)
            first._stream.close()
            for _ in range(turns):
                await asyncio.sleep(0)
            first.close()
            async with asyncio.timeout(10):
                # A loop of uvloop's that ends while it binds waits for ever for that socket where warnings are errors.
                while len(asyncio.all_tasks()) > 1 or not is_free(port):
                    await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def is_free(port: int) -> bool:
    """Whether a socket can be bound there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
