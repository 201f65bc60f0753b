"""Leadership goes back to preferred replicas by itself, some time after those are back.

Owns: when the active controller looks for leaders that are not the preferred ones.  Owns no election (``decisions``).

Invariants:
- There is a timer only while this broker's controller is active.
- One look is under way at a time.
- Where many partitions are to change they do so by portions, one right after the other.

Counterpart in Kafka: ``QuorumController.maybeBalancePartitionLeaders`` and its periodic task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env

# Preferred leaders that are elected in one transaction where leadership goes back to them (Kafka's
# maxElectionsPerImbalance).
BALANCING_ELECTIONS_MAX = 1_000

log = logging.getLogger(__name__)


class LeaderBalancing:
    """Begins when the controller becomes active."""

    def __init__(self, env: Env, config: BrokerConfig, controller: Controller) -> None:
        self._env = env
        self._controller = controller
        self._pause_ms = config.get_int("leader.imbalance.check.interval.seconds") * 1_000
        self._timer: Cancellable | None = None
        if config.get_bool("auto.leader.rebalance.enable"):
            controller.activity_listeners.append(self._on_activity)

    def close(self) -> None:
        """No look any more."""
        self._on_activity(False)

    def _on_activity(self, is_active: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_active:
            self._timer = self._env.timers.call_later(self._pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        self._controller.balance_leaders(BALANCING_ELECTIONS_MAX, self._on_balanced)

    def _on_balanced(self, count: int) -> None:
        if count:
            log.info("preferred replicas lead %d partitions again", count)
        if self._timer is not None or not self._controller.is_active:
            return  # another time of being active has begun, or none
        pause_ms = self._pause_ms if count < BALANCING_ELECTIONS_MAX else 0
        self._timer = self._env.timers.call_later(pause_ms, self._look)
