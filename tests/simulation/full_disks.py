"""The rule of liveness for full disks: partitions go on where other replicas have room.

Owns one look after another at brokers whose disk has refused a write: within a bound they lead no partition, and are in
sync with none, whose other replicas have room.  The disk says itself when it refused, not its broker.  It is looked at
only where nothing else has disturbed the cluster for as long as the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.model import Violation

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage
    from tests.simulation.cluster_simulation import ClusterSimulation
    from tests.simulation.processes import Process

GOES_ON = "a partition goes on where a disk is full and other replicas have room"
# A follower that was away may have to catch up before it leads: the leader looks at it from time to time.
BOUND_US = 5_000_000
LOOK_US = 250_000


class FullDisks:
    """The looks of one run."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self._quiet_since_us = 0
        self._last_state: object = None
        self.looks = 0  # at a partition that had to go on

    def begin(self) -> None:
        """Look from now on."""
        self._simulation.scheduler.after(LOOK_US, None, self._look)

    def _look(self) -> None:
        simulation = self._simulation
        now_us, processes = simulation.scheduler.now_us, simulation.processes
        is_whole = all(simulation.serves(process) and not process.is_paused for process in processes)
        state = [(process.lives, process.disk.stays_full, process.disk.refuses) for process in processes]
        if not is_whole or simulation.faults.disturbs or state != self._last_state:
            self._quiet_since_us, self._last_state = now_us, state
        image = simulation.newest_image()
        if image is not None and not simulation.calm and now_us - self._quiet_since_us > BOUND_US:
            for process in processes:
                if process.disk.refuses and len(process.log_dirs) == 1:
                    self._check(process, image)
        self.begin()

    def _check(self, process: Process, image: ClusterImage) -> None:
        processes = self._simulation.processes
        broker_id = processes.index(process)
        for topic in image.topics_by_name.values():
            for index, partition in enumerate(topic.partitions):
                is_here = broker_id in partition.replicas
                others = [other for other in partition.replicas if not processes[other].disk.stays_full]
                if not is_here or not others or partition.adding_replicas or partition.removing_replicas:
                    continue
                self.looks += 1
                if partition.leader == broker_id or broker_id in partition.isr:
                    detail = f"leader {partition.leader}, ISR {partition.isr}; {others} have room, {broker_id} has none"
                    raise Violation(GOES_ON, f"{topic.name}-{index}: {detail}")
