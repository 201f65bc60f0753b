"""What an in-process broker has beside its thread: temporary directories, keys and its port.

Owns: making and removing them, and the socket that holds the port while the broker does not run.  Does not own when:
the broker's thread makes and removes them, unless they are kept for a broker that is started again (``broker``).

Invariants: a directory that was given is never removed; a fork of the process removes nothing.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.testing.security import Security


class Belongings:
    """Directories and a port; ``are_kept`` has them outlive the thread, for a broker that is started again."""

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
        self._port: socket.socket | None = None

    def make(self, security: Security | None) -> None:
        """Make what is not there yet."""
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="pybroker-"))
        if security is not None and self.keys_dir is None:
            self.keys_dir = Path(tempfile.mkdtemp(prefix="pybroker-keys-"))
            self.settings = security.prepare(self.keys_dir)

    def hold_port(self, host: str, number: int) -> None:
        """Keep the port of a broker that has ended: nothing else gets it, and connections are refused."""
        if self._port is None:
            self.address = host, number
            before, _, _ = self.listen.rpartition(":")
            self.listen = f"{before}:{number}"
            with suppress(OSError):  # it is advertised by a name that is not this machine's: nothing holds the port
                family, *_, place = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
                self._port = socket.socket(family)
                self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._port.bind(place)

    def end(self) -> None:
        """Remove what was made; in a fork of the process nothing."""
        if self._process != os.getpid():
            return
        if self._has_own_dir and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._has_own_keys and self.keys_dir is not None:
            shutil.rmtree(self.keys_dir, ignore_errors=True)
        if self._port is not None:
            self._port.close()
