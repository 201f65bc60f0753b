"""This broker's heartbeats: the active controller hears from it, and it hears from the active controller.

Owns: when the next heartbeat goes.  Does not own the way (``controller_channel``), nor what a controller makes of the
heartbeats (``broker_contacts``).

Invariants:
- One heartbeat at a time, so that the next one says that the last was answered.
- A heartbeat that is not answered for half a session breaks its connection, before the controller gives this broker up.
  After that requests come over a new connection, which is made only where both directions are whole.

Counterpart in Kafka: ``BrokerLifecycleManager``, which sends them every ``broker.heartbeat.interval.ms``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.env import Cancellable, Env

# Until a broker sends its heartbeat again where the controller did not take the last one.
HEARTBEAT_RETRY_MS = 500

# Of a session: how many heartbeats it has at least, whatever the interval is, and what part of it one may take.
_PER_SESSION: Final = 4
_ANSWER_SHARE: Final = 2


class Heartbeats:
    """The sender.  ``is_registered()``: a broker that is not registered has no session to keep up."""

    def __init__(
        self,
        env: Env,
        channel: ControllerChannel,
        is_registered: Callable[[], bool],
        interval_ms: int,
        session_ms: int,
    ) -> None:
        self._env = env
        self._channel = channel
        self._is_registered = is_registered
        self._interval_ms = max(min(interval_ms, session_ms // _PER_SESSION), 1)
        self._timeout_ms = max(session_ms // _ANSWER_SHARE, 1)
        self._timer: Cancellable | None = None
        self._closed = False

    def start(self) -> None:
        """Send them from now on."""
        self._beat()

    def close(self) -> None:
        """Send no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        if self._is_registered():
            self._channel.beat(self._on_answer, timeout_ms=self._timeout_ms)
        else:
            self._beat_later(self._interval_ms)

    def _on_answer(self, error_code: int) -> None:
        self._beat_later(min(self._interval_ms, HEARTBEAT_RETRY_MS) if error_code else self._interval_ms)

    def _beat_later(self, delay_ms: int) -> None:
        if not self._closed:
            self._timer = self._env.timers.call_later(delay_ms, self._beat)
