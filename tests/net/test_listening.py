"""Which port a listener has, and which buffers the kernel keeps for its connections."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from harness.sockets import FrameConnection
from harness.waiting import PATIENCE_S

from pybroker.net.socket_server import SEND_BUFFER_BYTES, SocketServer
from pybroker.testing import Broker, Cluster
from pybroker.testing.in_process_broker import LoopFactory, _fast_loop
from tests.net.conftest import sockets_of


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="there is one address family only")


class UnluckyLoop(asyncio.SelectorEventLoop):
    """Somebody else was faster with the port, so many times."""

    unlucky = 0

    async def create_server(self, *arguments: Any, port: Any = None, **options: Any) -> Any:
        if port and self.unlucky:
            self.unlucky -= 1
            raise OSError(errno.EADDRINUSE, "taken")
        return await super().create_server(*arguments, port=port, **options)


def lucky_the_third_time() -> asyncio.AbstractEventLoop:
    loop = UnluckyLoop()
    loop.unlucky = 2
    return loop


def kernel_bytes(option: int, size: int) -> int:
    """What the kernel makes of a buffer's size that is asked for."""
    with socket.socket() as sock:
        if size > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
        return sock.getsockopt(socket.SOL_SOCKET, option)


@pytest.mark.parametrize(("setting", "expected"), [(None, SEND_BUFFER_BYTES), ("65536", 65536), ("-1", -1)])
def test_sends_are_buffered_by_the_kernel_as_set_or_as_little_as_keeps_them_in_the_caches(
    setting: str | None, expected: int
) -> None:
    with Broker({} if setting is None else {"socket.send.buffer.bytes": setting}) as broker:
        (listener,) = sockets_of(broker).listeners
        assert listener.server is not None
        (listening,) = listener.server.sockets
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == kernel_bytes(socket.SO_SNDBUF, expected)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == kernel_bytes(socket.SO_RCVBUF, -1)


@needs_ipv6
@pytest.mark.parametrize("host", ["", "[::]"])
@pytest.mark.parametrize("loop_factory", [_fast_loop, asyncio.SelectorEventLoop, lucky_the_third_time])
def test_free_port_at_every_address_is_the_same_one_at_each(loop_factory: LoopFactory, host: str) -> None:
    """Every address of IPv6 takes IPv4 as well, as in Java."""
    with Broker(listen=f"{host}:0", loop_factory=loop_factory) as broker:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, broker.port), timeout=PATIENCE_S).close()
        (listener,) = sockets_of(broker).listeners
        assert listener.server is not None
        assert {sock.getsockname()[1] for sock in listener.server.sockets} == {broker.port}


@needs_ipv6
def test_start_fails_where_no_port_is_free_at_every_address() -> None:
    def unlucky() -> asyncio.AbstractEventLoop:
        loop = UnluckyLoop()
        loop.unlucky = 1_000
        return loop

    with pytest.raises(
        OSError, match=r"cannot listen on \*:0: Address already in use; end what listens there, or choose another port"
    ):
        Broker(listen=":0", loop_factory=unlucky).start()


def test_broker_that_others_may_know_of_refuses_no_connection(
    pybroker_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    early: list[FrameConnection] = []
    accept = SocketServer.accept

    async def connect_before(self: SocketServer) -> None:
        for listener in self.listeners:
            early.append(FrameConnection((listener.host, listener.port)))
            early[-1].send_frame(bytes.fromhex("0012 0000 00000007 ffff"))  # ApiVersions 0
        await accept(self)

    monkeypatch.setattr(SocketServer, "accept", connect_before)
    pybroker_cluster.add_broker()
    for connection in early:
        with connection:
            assert (connection.receive_payload() or b"")[:6] == bytes.fromhex("00000007 0000")
    assert early
