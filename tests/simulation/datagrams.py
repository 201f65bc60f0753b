"""Datagrams between simulated processes: some are lost, some come twice, and they overtake each other.

Owns: one process's socket for datagrams, as much of asyncio's transport as asyncio-dgram uses.  Does not own who can
reach whom, nor how long that takes (``network``).
"""

from __future__ import annotations

import socket
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.network import Address, Network
    from tests.simulation.scheduler import Life

LOST_SHARE = 0.01
TWICE_SHARE = 0.01


class DatagramEnd:
    """See the module's docstring.  It is gone with its process."""

    def __init__(self, network: Network, life: Life, protocol: Any, address: Address) -> None:
        self._network = network
        self._random = Random(network.random.getrandbits(64))
        self.life = life
        self.protocol = protocol
        self._address = address
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = {"socket": SimpleNamespace(family=socket.AF_INET), "sockname": self._address}
        return found.get(name, default)

    def sendto(self, data: bytes, address: Address) -> None:
        network = self._network
        for _ in range(2 if self._random.random() < TWICE_SHARE else 1):
            if self._random.random() >= LOST_SHARE:
                delay_us = network.latency_us(self._random)
                network.scheduler.after(delay_us, None, self._arrive, bytes(data), address)

    def _arrive(self, data: bytes, address: Address) -> None:
        """Into the life that is there by now: a process reads what came while it was started."""
        network = self._network
        there = network.datagram_ends.get(address)
        if there is None or there.life.ended or address[0] in network.down:
            return
        if not network.is_cut(self._address[0], address[0]):
            network.scheduler.after(0, there.life, there.protocol.datagram_received, data, self._address)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if self._network.datagram_ends.get(self._address) is self:
                del self._network.datagram_ends[self._address]
