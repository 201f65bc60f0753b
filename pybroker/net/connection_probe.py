"""Connections that only ask whether a process listens: implements ``ConnectionProbe`` of ``liveness``.

Owns: the tries that go on.  Does not own when one is due, nor what follows from its end.

Invariant: a try ends after ``LIVENESS_PROBE_MS`` at the latest, and leaves no connection behind.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from pybroker.cluster.failure_detection.liveness import ProbeResult
from pybroker.net.loop_env import within

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a broker may take to answer whether it takes connections, which is asked by connecting (a probe).
LIVENESS_PROBE_MS = 500


class TcpConnectionProbe:
    """Lives on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tries: set[asyncio.Task[None]] = set()

    def probe(self, host: str, port: int, done: Callable[[ProbeResult], None]) -> None:
        """See ``ConnectionProbe.probe``."""
        task = self._loop.create_task(self._try(host, port, done))
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)

    def close(self) -> None:
        """See ``ConnectionProbe.close``."""
        for task in list(self._tries):
            task.cancel()

    async def _try(self, host: str, port: int, done: Callable[[ProbeResult], None]) -> None:
        answer = ProbeResult.UNANSWERED
        with suppress(OSError, ValueError, OverflowError):  # the last two for what is no host, or no port
            answer = await within(LIVENESS_PROBE_MS, self._ask(host, port))
        done(answer)

    async def _ask(self, host: str, port: int) -> ProbeResult:
        """A name has refused when all of its addresses have; one that cannot be reached keeps no other from taking."""
        answer = ProbeResult.REFUSED
        for _, _, _, _, address in await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                transport, _ = await self._loop.create_connection(asyncio.Protocol, str(address[0]), port)
            except ConnectionRefusedError:
                continue
            except OSError:
                answer = ProbeResult.UNANSWERED
            else:
                transport.abort()
                return ProbeResult.TAKEN
        return answer
