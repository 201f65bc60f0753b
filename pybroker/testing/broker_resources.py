"""What an in-process broker has beside its thread: temporary directories, keys and its ports.

Owns: making and removing them, and the sockets that hold the ports while the broker does not run.  Does not own when:
the broker's thread makes and removes them, unless they are kept for a broker that is started again
(``in_process_broker``).

Invariants: a directory that was given is never removed; a fork of the process removes nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybroker.testing.security import Security


# What ``getsockname`` gives: host, port, and more for IPv6.
SocketAddress = tuple[Any, ...]


class BrokerResources:
    """Directories and ports; ``are_kept`` has them outlive the thread, for a broker that is started again."""

    def __init__(self, given_dir: Path | None, given_keys: Path | None, listen: str) -> None:
        self.data_dir = given_dir
        self.keys_dir = given_keys
        self.listen = listen
        self.are_kept = False
        self.settings: dict[str, str] = {}  # of the keys
        self.address: tuple[str, int] | None = None  # where clients connect, of a broker that has ended
        self._has_own_dir = given_dir is None
        self._has_own_keys = given_keys is None
        self._process = os.getpid()
        self._ports: list[socket.socket] = []

    def make(self, security: Security | None) -> None:
        """Make what is not there yet."""
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="pybroker-"))
        if security is not None and self.keys_dir is None:
            self.keys_dir = Path(tempfile.mkdtemp(prefix="pybroker-keys-"))
            self.settings = security.prepare(self.keys_dir)

    def hold_ports(self, advertised: tuple[str, int], bound: Sequence[Sequence[SocketAddress]]) -> None:
        """Keep the ports of a broker that has ended: nothing else gets them, and connections are refused.

        ``bound`` has the addresses of each listener.  What is advertised may be another address, of a proxy's.
        """
        if self._ports:
            return
        self.address = advertised
        listeners = zip(self.listen.split(","), bound, strict=True)
        self.listen = ",".join(f"{listener.rpartition(':')[0]}:{place[0][1]}" for listener, place in listeners)
        for place in (each for addresses in bound for each in addresses):
            port = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
            self._ports.append(port)
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port.family == socket.AF_INET6:
                port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # its port of IPv4 has a socket of its own
            port.bind(place)

    def end(self) -> None:
        """Remove what was made; in a fork of the process nothing: there it lets go of the ports alone."""
        for port in self._ports:
            port.close()
        if self._process != os.getpid():
            return
        if self._has_own_dir and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._has_own_keys and self.keys_dir is not None:
            shutil.rmtree(self.keys_dir, ignore_errors=True)
