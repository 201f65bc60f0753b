"""A leadership that goes to a follower that lags behind, and soon comes back: a fault of several steps.

What others have is cut away in between, while the process of who led at first lives on.  So whatever it still believes
of that time is wrong: faults that strike one by one come to this almost never.

Owns: the steps of one swing.  Owns no choice of when one begins (``cluster_faults``).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.model import REACHED

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import PartitionImage
    from tests.simulation.cluster_simulation import ClusterSimulation

LAG_MS = (100, 1_400)  # how long the first follower is not reached: it is in sync for longer
LED_MS = (100, 3_000)  # how long it leads
LOOK_MS = 20  # whether the former leader is in sync again
CUT_MS = (100, 2_000)  # how long the other follower does not hear of the leader's return


class Swing(NamedTuple):
    """One of them, about one partition."""

    topic: str
    partition: int
    leader: int
    lagging: int
    other: int


Step = Callable[[Swing], None]


class Swings:
    """Those of one run."""

    def __init__(self, simulation: ClusterSimulation, random: Random) -> None:
        self._simulation = simulation
        self._random = random

    def begin(self) -> str | None:
        """Cut a leader off from the follower that would be elected next; None where no partition has enough in sync."""
        swings = [swing for swing in self._possible() if self._may_strike(swing.leader)]
        if not swings:
            return None
        swing = self._random.choice(swings)
        self._cut(swing.leader, swing.lagging, both_ways=False)
        self._after(LAG_MS, self._depose, swing)
        return f"of {swing.topic}-{swing.partition} from broker-{swing.leader} to broker-{swing.lagging}"

    def _possible(self) -> list[Swing]:
        image = self._simulation.newest_image()
        found = []
        for topic in image.topics_by_name.values() if image is not None else ():
            for index, partition in enumerate(topic.partitions):
                others = [each for each in partition.replicas if each in partition.isr and each != partition.leader]
                if partition.leader >= 0 and len(others) > 1:
                    found.append(Swing(topic.name, index, partition.leader, *others[:2]))
        return found

    def _may_strike(self, broker_id: int) -> bool:
        process = self._simulation.processes[broker_id]
        return self._simulation.serves(process) and not process.is_paused

    # --- the steps ---------------------------------------------------------------------------------------------------

    def _depose(self, swing: Swing) -> None:
        """The leader's session ends, though it lives; who lags leads."""
        self._heal(swing.leader, swing.lagging)
        if self._may_strike(swing.leader):
            self._expire(swing.leader)
            self._after(LED_MS, self._wait, swing)

    def _wait(self, swing: Swing) -> None:
        """Until the former leader may be elected again."""
        partition = self._partition(swing)
        if partition is None or partition.leader not in (swing.lagging, -1):
            return
        if swing.leader not in partition.isr:
            self._simulation.scheduler.after(LOOK_MS * 1000, None, self._while_faults_strike, self._wait, swing)
            return
        REACHED["a leadership swings to one that lagged"] += 1
        self._cut(swing.leader, swing.other, both_ways=True)
        self._after(CUT_MS, self._reach_again, swing)
        self._expire(swing.lagging)

    def _reach_again(self, swing: Swing) -> None:
        self._heal(swing.leader, swing.other)

    # --- what they are made of ---------------------------------------------------------------------------------------

    def _partition(self, swing: Swing) -> PartitionImage | None:
        image = self._simulation.newest_image()
        topic = None if image is None else image.topics_by_name.get(swing.topic)
        return None if topic is None or swing.partition >= len(topic.partitions) else topic.partitions[swing.partition]

    def _after(self, range_ms: tuple[int, int], step: Step, swing: Swing) -> None:
        delay_us = self._random.randrange(range_ms[0] * 1000, range_ms[1] * 1000)
        self._simulation.scheduler.after(delay_us, None, self._while_faults_strike, step, swing)

    def _while_faults_strike(self, step: Step, swing: Swing) -> None:
        if not self._simulation.calm:
            step(swing)

    def _expire(self, broker_id: int) -> None:
        self._simulation.ensemble.expire_session_of(self._simulation.processes[broker_id])

    def _hosts(self, one: int, other: int) -> tuple[str, str]:
        processes = self._simulation.processes
        return processes[one].host, processes[other].host

    def _cut(self, one: int, other: int, *, both_ways: bool) -> None:
        here, there = self._hosts(one, other)
        self._simulation.network.cut(here, there)
        if both_ways:
            self._simulation.network.cut(there, here)

    def _heal(self, one: int, other: int) -> None:
        here, there = self._hosts(one, other)
        self._simulation.network.heal(here, there)
        self._simulation.network.heal(there, here)
