"""UdpSource: datagrams of syslog or StatsD that come to a port, each a record.

What comes is kept in memory until the next transaction, and is lost with the process: UDP promises no more.  Where more
comes than the topic takes, the newest is dropped.  That is counted, and so are lines of StatsD that are no metrics.

Owns the port, the loop on a thread that hears it, and what waits: so many datagrams, and so many bytes, at most.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

import asyncio_dgram

from pybroker.connectors.declared.datagram_values import statsd, syslog
from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun

_KEPT_MAX: Final = 100_000
_KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
# Of one transaction.  A datagram of StatsD may be thousands of records.
_RECORDS_MAX: Final = 10_000
_BOUND_WITHIN_S: Final = 30.0

_log = logging.getLogger(__name__)


def start(work: Work) -> Run:
    """Start it; a port that is taken ends the run."""
    return PolledRun(work, lambda _: _UdpPoller(work))


class Kept:
    """Datagrams that wait to be written; one thread adds and another one takes, and each counts what it does itself."""

    def __init__(self) -> None:
        self._kept: deque[tuple[bytes, str]] = deque()
        self._added_bytes = self._taken_bytes = 0
        self._dropped = self._told = 0

    def add(self, raw: bytes, host: str) -> None:
        """Keep one, or drop it where there is no room."""
        if len(self._kept) >= _KEPT_MAX or self.size + len(raw) > _KEPT_BYTES_MAX:
            self._dropped += 1
            return
        self._added_bytes += len(raw)
        self._kept.append((raw, host))

    def take(self) -> Iterator[tuple[bytes, str]]:
        """The datagrams in their order, each of which is forgotten with it."""
        while self._kept:
            raw, host = self._kept.popleft()
            self._taken_bytes += len(raw)
            yield raw, host

    def dropped(self) -> int:
        """How many were dropped since this was asked for the last time."""
        dropped = self._dropped
        told, self._told = self._told, dropped
        return dropped - told

    @property
    def size(self) -> int:
        """The bytes of the datagrams."""
        return self._added_bytes - self._taken_bytes


class _UdpPoller:
    def __init__(self, work: Work) -> None:
        self._is_syslog = work.value("format").lower() == "syslog"
        self._kept = Kept()
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
        polled = Polled()
        for raw, host in self._kept.take():
            if self._is_syslog:
                values, no_metrics = [{"from": host, **syslog(raw)}], 0
            else:
                values, no_metrics = statsd(raw)
            for value in values:
                key = value.get("host", host) if self._is_syslog else value["name"]
                polled.records.append((str(key).encode(), json.dumps(value, separators=(",", ":")).encode()))
            if no_metrics:
                polled.passed_over += no_metrics
                polled.reason = f"a line from {host} is no metric of StatsD"
            if len(polled.records) + polled.passed_over >= _RECORDS_MAX:
                break
        if dropped := self._kept.dropped():
            polled.passed_over += dropped
            polled.reason = "a datagram for which there was no room"
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
            self._kept.add(raw, str(peer[0] if isinstance(peer, tuple) else peer))

    def _end_loop(self) -> None:
        def stop() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()
