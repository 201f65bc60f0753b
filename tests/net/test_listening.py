"""Which port a listener has."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from pybroker.testing import Broker
from pybroker.testing.broker import LoopFactory, _fast_loop
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


@needs_ipv6
@pytest.mark.parametrize("loop_factory", [_fast_loop, asyncio.SelectorEventLoop, lucky_the_third_time])
def test_free_port_at_every_address_is_the_same_one_at_each(loop_factory: LoopFactory) -> None:
    with Broker(listen=":0", loop_factory=loop_factory) as broker:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, broker.port), timeout=15).close()
        (listener,) = sockets_of(broker)._listeners
        assert listener.server is not None
        assert {sock.getsockname()[1] for sock in listener.server.sockets} == {broker.port}


@needs_ipv6
def test_start_fails_where_no_port_is_free_at_every_address() -> None:
    def unlucky() -> asyncio.AbstractEventLoop:
        loop = UnluckyLoop()
        loop.unlucky = 1_000
        return loop

    with pytest.raises(OSError, match=r"cannot listen on \*:0: Address already in use"):
        Broker(listen=":0", loop_factory=unlucky).start()
