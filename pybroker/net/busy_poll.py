"""Looking for a lone client's next small request instead of sleeping, as long as one is likely to come in a moment.

Owns: whether the loop goes round without sleeping, and for how long. A client with one request in flight answers within
microseconds. A thread that went to sleep meanwhile, on a processor that halted, is woken at the cost of up to 100 µs
on a virtual machine. Half of that is the processor time of the process that wakes it.

It is only for small requests of one client in a row. Several keep the loop awake as it is, or leave it pauses in which
no client waits, and a client that sends or gets much waits for bytes.

Invariants:
- Nothing is asked of a broker without requests.
- When nothing comes in the time allowed the loop sleeps. More and more requests have to come before it is tried again,
  until tries succeed more often than not.
- Other processes that want the processor go first.

An in-process broker does not do it, because it would take the interpreter from its client, nor does a broker on one
processor.  A simulation must not set it: its time stands while the loop goes round, which would never end.  Measured
with eight connections at a fixed rate it cost a third more processor time for no better p99; hence the lone client.

Kafka has no counterpart; the idea is the kernel's ``net.core.busy_read`` and ``guest_halt_poll_ns``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pybroker.operating_system import processor_count

# How long the loop looks for the next request of a lone client where no setting says otherwise (µs), and how long that
# request and its reply may be: a client that sends more waits for bytes to be copied, not for a thread to wake.
BUSY_POLL_US = 200
BUSY_POLL_BYTES = 4 << 10

# After so many failures of busy polling more than successes, 2 ** this many requests pass between two tries.
BUSY_POLL_FAILURES = 8


class BusyPoll:
    """``microseconds`` is how long to look for a request after the last one, by the monotonic clock ``now_ns``."""

    __slots__ = (
        "_call_soon",
        "_client",
        "_failures",
        "_now_ns",
        "_ns",
        "_pause",
        "_requests",
        "_seen",
        "_until_ns",
        "active",
    )

    def __init__(self, microseconds: int, call_soon: Callable[..., Any], now_ns: Callable[[], int]) -> None:
        self.active = False
        self._client = 0
        self._requests = 0
        self._call_soon = call_soon
        self._now_ns = now_ns
        self._ns = microseconds * 1_000
        self._seen = 0
        self._until_ns = 0
        self._failures = 0
        self._pause = 0

    def on_request(self, client: int, size: int) -> None:
        """Requests came: look for the next one, unless that was in vain lately, or another ``client`` came before.

        ``client`` is any number that connections differ in, ``size`` the bytes of requests and immediate replies.
        """
        if client != self._client or size > BUSY_POLL_BYTES:
            self._client = client
            self._until_ns = 0
            return
        self._requests += 1
        if self.active:
            return
        if self._pause:
            self._pause -= 1
            return
        self.active = True
        self._seen = self._requests
        self._until_ns = self._now_ns() + self._ns
        self._call_soon(self._look)

    def _look(self) -> None:
        now_ns = self._now_ns()
        if self._requests != self._seen:
            self._seen = self._requests
            self._until_ns = now_ns + self._ns
            if self._failures:
                self._failures -= 1
        elif now_ns > self._until_ns:
            self.active = False
            self._failures = min(self._failures + 1, BUSY_POLL_FAILURES)
            self._pause = 1 << self._failures
            return
        os.sched_yield()
        self._call_soon(self._look)


def busy_poll(
    microseconds: int, own_process: bool, call_soon: Callable[..., Any], now_ns: Callable[[], int]
) -> BusyPoll | None:
    """``pybroker.busy.poll.us``: None where the loop always sleeps, so that requests pay nothing for what is off.

    Without a process of its own the loop shares the interpreter with its client.  On an only processor it shares that,
    too, and would take what it waits for.  There -1 means 0.
    """
    if microseconds < 0:
        microseconds = BUSY_POLL_US if own_process and processor_count() > 1 else 0
    return BusyPoll(microseconds, call_soon, now_ns) if microseconds else None
