"""A socket for datagrams: implements ``cluster/liveness.py``'s ``Datagrams`` with asyncio-dgram.

Owns: the socket, one task that receives and one that sends, and the addresses that names stand for.  Does not own what
is said.

Invariants: nobody waits for a datagram: what cannot be sent at once is dropped, oldest first, once so many wait; a name
whose lookup takes long, or fails, holds up its own datagrams alone, and those only while it never had an address.
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

from pybroker.cluster_limits import DATAGRAMS_WAITING_MAX, NAME_LOOKUP_MS, NAME_LOOKUP_RETRY_MS

log = logging.getLogger(__name__)


class _Name:
    """What is known of a host and port: the address, the lookup under way, what waits for it, when it is due again."""

    __slots__ = ("address", "look_up_at", "lookup", "waiting")

    def __init__(self) -> None:
        self.address: Any | None = None
        self.lookup: asyncio.Task[None] | None = None
        self.waiting: bytes | None = None
        self.look_up_at = 0.0


class DatagramSocket:
    """See the module's docstring; made by ``bind``."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[str, int, bytes]] = deque(maxlen=DATAGRAMS_WAITING_MAX)
        self._has_unsent = asyncio.Event()
        self._names: dict[tuple[str, int], _Name] = {}
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
        for task in (*self._tasks, *(name.lookup for name in self._names.values())):
            if task is not None:
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
                address = self._address(host, port, data)
                if address is not None:
                    with suppress(OSError):
                        await self._stream.send(data, address)

    def _address(self, host: str, port: int, data: bytes) -> Any | None:
        """The address that a name stands for; while there is none yet, ``data`` waits for it in place of what did."""
        name = self._names.get((host, port))
        if name is None:
            name = self._names[host, port] = _Name()
        if name.lookup is None and self._loop.time() >= name.look_up_at:
            name.lookup = self._loop.create_task(self._look_up(name, host, port))
        if name.address is None:
            name.waiting = data
        return name.address

    async def _look_up(self, name: _Name, host: str, port: int) -> None:
        """Find the address of a name; one that cannot be found now keeps the one that it had."""
        lasts_ms = NAME_LOOKUP_RETRY_MS
        try:
            found = await self._loop.getaddrinfo(host, port, family=self._family, type=socket.SOCK_DGRAM)
            name.address, lasts_ms = found[0][4], NAME_LOOKUP_MS
        except (OSError, UnicodeError) as error:
            log.debug("no address for %s: %s", host, error)
        name.look_up_at = self._loop.time() + lasts_ms / 1_000
        name.lookup = None
        if name.address is not None and name.waiting is not None:
            self.send(host, port, name.waiting)
            name.waiting = None
