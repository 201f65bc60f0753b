"""UdpSource: datagrams of syslog or StatsD that come to a port, each a record.

What comes is kept in memory until the next transaction, and is lost with the process: UDP promises no more.  Where more
comes than the topic takes, the newest is dropped and counted in the log.

Owns the port, and the loop on a thread that hears it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from typing import Final

import asyncio_dgram

from pybroker.connectors.declared.datagram_values import statsd, syslog
from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun

_KEPT_MAX: Final = 100_000
_BOUND_WITHIN_S: Final = 30.0

_log = logging.getLogger(__name__)


def start(work: Work) -> Run:
    """Start it; a port that is taken ends the run."""
    return PolledRun(work, lambda _: _UdpPoller(work))


class _UdpPoller:
    def __init__(self, work: Work) -> None:
        self._name = work.name
        self._is_syslog = work.value("format").lower() == "syslog"
        self._kept: deque[tuple[bytes, str]] = deque()
        self._dropped = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"udp-{work.name}", daemon=True)
        self._thread.start()
        at = (work.value("host"), work.value("port"))
        try:
            self._server = asyncio.run_coroutine_threadsafe(asyncio_dgram.bind(at), self._loop).result(_BOUND_WITHIN_S)
        except BaseException:
            self._end_loop()
            raise
        self._hearing = asyncio.run_coroutine_threadsafe(self._hear(), self._loop)
        _log.info("%s hears UDP at %s:%d", work.name, *self._server.sockname[:2])

    def poll(self) -> Polled:
        """See `Poller`."""
        if self._dropped:
            _log.warning("%s: %d datagrams were dropped", self._name, self._dropped)
            self._dropped = 0
        polled = Polled()
        for _ in range(len(self._kept)):
            raw, host = self._kept.popleft()
            values = [{"from": host, **syslog(raw)}] if self._is_syslog else list(statsd(raw))
            for value in values:
                key = value.get("host", host) if self._is_syslog else value["name"]
                polled.records.append((str(key).encode(), json.dumps(value, separators=(",", ":")).encode()))
        return polled

    def close(self) -> None:
        """See `Poller`."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._hearing.cancel()
        self._end_loop()

    async def _hear(self) -> None:
        while True:
            try:
                raw, peer = await self._server.recv()
            except asyncio_dgram.TransportClosed:
                return
            if len(self._kept) >= _KEPT_MAX:
                self._dropped += 1
            else:
                self._kept.append((raw, str(peer[0] if isinstance(peer, tuple) else peer)))

    def _end_loop(self) -> None:
        def stop() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()
