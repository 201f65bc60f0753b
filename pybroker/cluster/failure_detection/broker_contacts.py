"""Which brokers the active controller reaches, and which reach it: by the heartbeats that it has answered.

Owns: when each broker's heartbeat, or registration, came last, and for whom that is longer ago than the session.  Does
not own what follows from it (``controller_election``), nor the heartbeats themselves (``heartbeats``).

A broker sends a heartbeat only after its last one was answered, so that one that comes says that the answer to the one
before arrived: both directions count.

Invariants:
- A broker has a whole session from when this controller became the active one, and from its registration.
- A stall of this broker's own is no other broker's silence.
- Only a broker that has said in its live key that it sends heartbeats is judged, since one of an older version sends
  none.

Counterpart in Kafka: ``BrokerHeartbeatTracker`` of ``BrokerHeartbeatManager``, and ``broker.session.timeout.ms``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env

# How often the active controller looks whether a broker's session is over.
CONTACTS_LOOK_MS = 250


class BrokerContacts:
    """When each broker was heard last.  ``look()`` is called every ``CONTACTS_LOOK_MS`` once a session may be over."""

    def __init__(self, env: Env, session_ms: int) -> None:
        self.look: Callable[[], None] = lambda: None
        self._env = env
        self._session_ms = session_ms
        self._begin_ms = self._awake_ms = env.clock.monotonic_ms()
        self._at_ms: dict[int, int] = {}
        self._timer: Cancellable | None = None

    def on_activity(self, is_active: bool) -> None:
        """The controller of this broker decides from now on, or does so no longer."""
        self.close()
        if is_active:
            self._at_ms.clear()
            self._begin_ms = self._awake_ms = self._env.clock.monotonic_ms()
            self._timer = self._env.timers.call_later(CONTACTS_LOOK_MS, self._tick)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, broker_id: int) -> None:
        """A heartbeat of a registered broker has come, or its registration."""
        self._at_ms[broker_id] = self._env.clock.monotonic_ms()

    def silent_ms(self, broker_id: int) -> int:
        """How long ago the broker was heard last, or this controller began."""
        return self._awake_ms - self._at_ms.get(broker_id, self._begin_ms)

    def is_over(self, broker_id: int) -> bool:
        """Whether the broker's session with this controller is over."""
        return self.silent_ms(broker_id) >= self._session_ms

    def is_in_touch(self, broker_id: int) -> bool:
        """Whether the broker was heard within half a session.

        A controller that loses all brokers at once sees their sessions end one after another: a broker that was heard
        longer ago may be the next of them.
        """
        return 2 * self.silent_ms(broker_id) < self._session_ms

    def _tick(self) -> None:
        self._timer = self._env.timers.call_later(CONTACTS_LOOK_MS, self._tick)
        now_ms = self._env.clock.monotonic_ms()
        stalled_ms = now_ms - self._awake_ms - CONTACTS_LOOK_MS
        self._awake_ms = now_ms
        if stalled_ms > CONTACTS_LOOK_MS:
            self._begin_ms = min(now_ms, self._begin_ms + stalled_ms)
            self._at_ms = {each: min(now_ms, at_ms + stalled_ms) for each, at_ms in self._at_ms.items()}
        if now_ms - self._begin_ms >= self._session_ms:
            self.look()
