"""A socket for datagrams: implements ``cluster/liveness.py``'s ``Datagrams`` with asyncio-dgram.

Owns: the socket, one task that receives and one that sends, and the addresses that names stand for.  Does not own what
is said.

Invariant: nobody waits for a datagram: what cannot be sent at once is dropped, oldest first, once so many wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncio_dgram

from pybroker.cluster_limits import DATAGRAMS_WAITING_MAX, NAME_LOOKUP_MS

log = logging.getLogger(__name__)


class DatagramSocket:
    """See the module's docstring; made by ``bind``."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[str, int, bytes]] = deque(maxlen=DATAGRAMS_WAITING_MAX)
        self._has_unsent = asyncio.Event()
        self._known: dict[tuple[str, int], tuple[Any, float]] = {}
        self._family = stream.socket.family
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def bind(cls, host: str, port: int) -> DatagramSocket:
        """Bind ``host:port`` ("" all interfaces).  Raises OSError."""
        return cls(await asyncio_dgram.bind((host or None, port)))

    def start(self, receive: Callable[[bytes], None]) -> None:
        """See ``Datagrams.start``."""
        self._tasks = [self._loop.create_task(self._receive(receive)), self._loop.create_task(self._send())]

    def send(self, host: str, port: int, data: bytes) -> None:
        """See ``Datagrams.send``."""
        self._unsent.append((host, port, data))
        self._has_unsent.set()

    def close(self) -> None:
        """See ``Datagrams.close``."""
        for task in self._tasks:
            task.cancel()
        self._stream.close()

    async def _receive(self, receive: Callable[[bytes], None]) -> None:
        while True:
            try:
                data, _ = await self._stream.recv()
                receive(data)
            except asyncio_dgram.TransportClosed:
                return
            except OSError as error:  # a former datagram was refused where it came to
                log.debug("datagram: %s", error)
            except Exception:
                log.exception("a datagram could not be taken")

    async def _send(self) -> None:
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            while self._unsent:
                host, port, data = self._unsent.popleft()
                with suppress(OSError):
                    address = await self._address(host, port)
                    await self._stream.send(data, address)

    async def _address(self, host: str, port: int) -> Any:
        """The address that a name stands for, looked up again after a while."""
        known = self._known.get((host, port))
        now = self._loop.time()
        if known is not None and now < known[1]:
            return known[0]
        found = await self._loop.getaddrinfo(host, port, family=self._family, type=socket.SOCK_DGRAM)
        address = found[0][4]
        self._known[host, port] = address, now + NAME_LOOKUP_MS / 1_000
        return address
