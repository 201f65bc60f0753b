"""Datagrams between two sockets of this machine."""

from __future__ import annotations

import asyncio

import pytest

from pybroker.cluster_limits import DATAGRAMS_WAITING_MAX
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
