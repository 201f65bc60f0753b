"""A socket for datagrams: implements ``cluster/failure_detection/liveness.py``'s ``Datagrams`` with asyncio-dgram.

Owns: the socket, one task that receives and one that sends, and the addresses that names stand for.  Does not own what
is said.

Invariants:
- No caller waits for a datagram: what cannot be sent at once is dropped, oldest first, once so many wait.
- A name whose lookup takes long, or fails, holds up its own datagrams alone, and those only while it never had an
  address.
- An error of one address costs no other address a datagram.
- A socket that was lost is bound anew.

asyncio-dgram keeps the error of a datagram, and raises it in place of the next sending, to whatever address that is.
So what it keeps is taken from it before each sending and after it: the error after it is that of this address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import asyncio_dgram

from pybroker.net.loop_env import pause

if TYPE_CHECKING:
    from pybroker.env import Env

# Datagrams that wait to be sent: those of three intervals in the largest cluster (``liveness.BROKERS_MAX``).
DATAGRAMS_WAITING_MAX = 1_000

# How long the address of a broker's host name is taken for known, and until one that was not found is looked for again.
NAME_LOOKUP_MS = 30_000
NAME_LOOKUP_RETRY_MS = 1_000

log = logging.getLogger(__name__)


class _Name:
    """What is known of a host and port: its addresses, the lookup under way, what waits for it, when it is due again.

    Datagrams go to the first address; one that failed becomes the last.
    """

    __slots__ = ("addresses", "look_up_at_ns", "lookup", "waiting")

    def __init__(self) -> None:
        self.addresses: deque[Any] = deque()
        self.lookup: asyncio.Task[None] | None = None
        self.waiting: bytes | None = None
        self.look_up_at_ns = 0


class DatagramSocket:
    """Made by ``bind``."""

    def __init__(self, env: Env, stream: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers = env.timers
        self._now_ns = env.clock.monotonic_ns
        self._unsent: deque[tuple[str, int, bytes]] = deque(maxlen=DATAGRAMS_WAITING_MAX)
        self._has_unsent = asyncio.Event()
        self._names: dict[tuple[str, int], _Name] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._use(stream)

    @classmethod
    async def bind(cls, env: Env, host: str, port: int) -> DatagramSocket:
        """Bind ``host:port`` ("" all interfaces, of both families where there are two).  Raises OSError."""
        if not host:
            try:
                return cls(env, await asyncio_dgram.bind(("::", port)))
            except OSError as error:
                log.debug("no socket of IPv6: %s", error)
        return cls(env, await asyncio_dgram.bind((host or "0.0.0.0", port)))  # as the listener beside it

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

    # --- the socket --------------------------------------------------------------------------------------------------

    def _use(self, stream: Any) -> None:
        self._stream = stream
        self._bound_to = stream.sockname
        self._family = stream.socket.family
        # A socket of IPv6 that is not of IPv6 alone reaches an address of IPv4 by its mapped form.
        is_of_both = self._family == socket.AF_INET6 and not stream.socket.getsockopt(
            socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
        )
        self._lookup_flags = socket.AI_V4MAPPED | socket.AI_ALL if is_of_both else 0

    async def _bind_anew(self) -> None:
        """The socket was lost by an error of its own: without another one this broker would be mute and deaf."""
        log.warning("the socket for datagrams was lost; it is bound anew")
        while True:
            try:
                self._use(await self._bound())
            except OSError as error:
                log.debug("no socket for datagrams: %s", error)
                await pause(self._timers, NAME_LOOKUP_RETRY_MS)
            else:
                return

    async def _bound(self) -> Any:
        """A stream at the same address.  Raises OSError."""
        binding = self._loop.create_task(asyncio_dgram.bind(self._bound_to[:2]))
        try:
            return await asyncio.shield(binding)
        except asyncio.CancelledError:  # uvloop would leave the socket open
            binding.add_done_callback(_close_bound)
            raise

    async def _receive(self, receive: Callable[[bytes], None]) -> None:
        while True:
            try:
                data, _ = await self._stream.recv()
                receive(data)
            except asyncio_dgram.TransportClosed:
                await self._bind_anew()
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
                name = self._name(host, port)
                if name.addresses:
                    await self._send_to(name, data)
                else:
                    name.waiting = data  # in place of what waited

    async def _send_to(self, name: _Name, data: bytes) -> None:
        self._kept_error()
        address = name.addresses[0]
        error: Exception | None
        try:
            await self._stream.send(data, address)
            error = self._kept_error()
        except asyncio_dgram.TransportClosed:
            return  # the receiving task binds it anew
        except (OSError, ValueError, OverflowError) as raised:  # the others for what is no address of this socket's
            error = raised
        if error is not None:
            log.debug("datagram to %s: %s", address, error)
            name.addresses.rotate(-1)
            name.look_up_at_ns = min(name.look_up_at_ns, self._now_ns() + NAME_LOOKUP_RETRY_MS * 1_000_000)

    def _kept_error(self) -> OSError | None:
        """The last error that the stream has kept; it keeps none from now on."""
        kept = None
        while True:
            try:
                if self._stream.exception is None:
                    return kept
            except OSError as error:
                kept = error

    # --- names -------------------------------------------------------------------------------------------------------

    def _name(self, host: str, port: int) -> _Name:
        """What is known of a host and port; it is looked up when that is due."""
        name = self._names.get((host, port))
        if name is None:
            name = self._names[host, port] = _Name()
        if name.lookup is None and self._now_ns() >= name.look_up_at_ns:
            name.lookup = self._loop.create_task(self._look_up(name, host, port))
        return name

    async def _look_up(self, name: _Name, host: str, port: int) -> None:
        """Find the addresses of a name; one that cannot be found now keeps those that it had."""
        lasts_ms = NAME_LOOKUP_RETRY_MS
        try:
            found = await self._loop.getaddrinfo(
                host, port, family=self._family, type=socket.SOCK_DGRAM, flags=self._lookup_flags
            )
            addresses = list(dict.fromkeys(each[4] for each in found))
            if set(addresses) != set(name.addresses):  # else the one that works stays the first
                name.addresses = deque(addresses)
            lasts_ms = NAME_LOOKUP_MS
        except (OSError, UnicodeError) as error:
            log.debug("no address for %s: %s", host, error)
        name.look_up_at_ns = self._now_ns() + lasts_ms * 1_000_000
        name.lookup = None
        if name.addresses and name.waiting is not None:
            self.send(host, port, name.waiting)
            name.waiting = None


def _close_bound(binding: asyncio.Task[Any]) -> None:
    """Close what was bound although nothing waits for it any more."""
    if not binding.cancelled() and binding.exception() is None:
        binding.result().close()
