"""The guard against a stall of this broker: clients wait until it knows what it has missed.

A process may have been stopped, or without a processor, for longer than others wait for it. It wakes up with an image
in which it leads what others lead by now. A client that asks in that moment, and gives no leader epoch, hears that
offsets are out of range which it has read from the next leader.

Owns: noticing that by the monotonic clock, asking the store how far it is, and the end of the doubt once this broker's
image is as far.  Does not own the requests that wait (``RequestGate``, by ``net/request_gate``), nor what a new image
changes.

Invariants: one question at a time; no client waits for longer than ``SUSPICION_HOLD_MS``, whatever the store does; a
broker that runs is asked for nothing but a clock every ``LIVENESS_INTERVAL_MS``.

Counterpart in Kafka: none; a broker there serves by its old image until it hears of the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pybroker.cluster.store import store_codec
from pybroker.cluster_limits import LIVENESS_INTERVAL_MS, SUSPICION_HOLD_MS

if TYPE_CHECKING:
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.cluster.store.metadata_store import MetadataStore, Snapshot, StoreError
    from pybroker.env import Cancellable, Env

log = logging.getLogger(__name__)


class RequestGate(Protocol):
    """Where clients' requests come in.

    ``on_shut()`` is called when one comes after the time for which it was open: it waits then, and all that follow.
    """

    on_shut: Callable[[], None]

    def open_for(self, duration_ms: int) -> None:
        """Let them in for so long, those that wait first."""
        ...

    def shut(self) -> None:
        """Let no request in."""
        ...

    def leave_open(self) -> None:
        """Let them in for good."""
        ...


class StallGuard:
    """``bound_ms``: after so long others may take this broker for dead."""

    def __init__(
        self, env: Env, store: MetadataStore, follower: MetadataFollower, gate: RequestGate, bound_ms: int
    ) -> None:
        self._env = env
        self._store = store
        self._follower = follower
        self._gate = gate
        self._bound_ms = bound_ms
        self._awake_ms = env.clock.monotonic_ms()
        self._stall = 0  # a number for each
        self._is_stalled = False
        self._timers: dict[str, Cancellable] = {}
        gate.on_shut = self._begin
        self._tick()

    def close(self) -> None:
        """Doubt no more."""
        for timer in self._timers.values():
            timer.cancel()
        self._stall += 1
        self._gate.leave_open()

    def _tick(self) -> None:
        self._timers["tick"] = self._env.timers.call_later(LIVENESS_INTERVAL_MS, self._tick)
        now_ms = self._env.clock.monotonic_ms()
        stalled_ms, self._awake_ms = now_ms - self._awake_ms, now_ms
        if stalled_ms > self._bound_ms:
            self._begin()
        elif not self._is_stalled:
            self._gate.open_for(self._bound_ms)

    def _begin(self) -> None:
        self._gate.shut()
        if self._is_stalled:
            return
        log.warning("this broker stood still; clients wait until it knows what it has missed")
        self._is_stalled = True
        self._stall += 1
        stall = self._stall
        self._timers["end"] = self._env.timers.call_later(SUSPICION_HOLD_MS, self._end, stall)
        self._store.read(store_codec.CONTROLLER, lambda snapshot, error: self._on_read(stall, snapshot, error))

    def _on_read(self, stall: int, snapshot: Snapshot | None, error: StoreError | None) -> None:
        if snapshot is not None and stall == self._stall:  # else the session is over perhaps, and the time decides
            self._follower.when_at(snapshot.revision, lambda: self._end(stall))

    def _end(self, stall: int) -> None:
        if stall == self._stall and self._is_stalled:
            self._is_stalled = False
            self._timers["end"].cancel()
            self._awake_ms = self._env.clock.monotonic_ms()
            self._gate.open_for(self._bound_ms)
