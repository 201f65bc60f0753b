"""What goes wrong in a run, and when: deaths, power failures, restarts, broken and slow connections, clocks, disks.

Owns: the choice of the next fault and the way back to a running broker.  Every fault is undone after a while, and none
comes in a calm time, so that whatever is stuck then is stuck because of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.cluster.store.metadata_store import StoreError
from pybroker.storage.results import StorageError
from tests.simulation.scheduler import START_MS, ProcessDied

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

# Less than an hour, or batches that producers send again would be refused as those of the future.
JUMP_MS_MAX = 1_200_000
# name -> weight
FAULTS = {
    "kill": 3,
    "kill in a system call": 3,
    "power failure": 3,
    "clean restart": 2,
    "broken connection": 12,
    "slow network": 3,
    "slow threads": 3,
    "clock jump": 2,
    "full disk": 2,
    "cold pages": 2,
    "log dir move": 6,
}


class Faults:
    """One run's faults."""

    def __init__(self, simulation: Simulation, enabled: frozenset[str]) -> None:
        self._simulation = simulation
        self._random = simulation.new_random()
        self.counts: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._kinds = [name for name in FAULTS if name in enabled]
        if not simulation.fsync_before_ack and "power failure" in self._kinds:
            self._kinds.remove("power failure")  # what is not synced may be lost then, acknowledged or not
        self._mean_ms = self._random.choice((300, 1_000, 3_000))
        self._stopping = False

    def begin(self) -> None:
        """Schedule the first one."""
        if self._kinds:
            self._next()

    def _next(self) -> None:
        delay_us = int(self._random.expovariate(1 / self._mean_ms) * 1000)
        self._simulation.scheduler.after(delay_us, None, self._strike)

    def _strike(self) -> None:
        if self._simulation.calm:
            return
        kind = self._random.choices(self._kinds, [FAULTS[name] for name in self._kinds])[0]
        actions: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "kill in a system call": self._kill_in_call,
            "power failure": self._power_failure,
            "clean restart": self._clean_restart,
            "broken connection": self._simulation.network.break_one,
            "slow network": self._slow_network,
            "slow threads": self._slow_threads,
            "clock jump": self._clock_jump,
            "full disk": self._full_disk,
            "cold pages": self._cold_pages,
            "log dir move": self._move_replica,
        }
        steps = self._simulation.scheduler.steps
        if actions[kind]():
            self.counts[kind] += 1
            if steps == self._simulation.scheduler.steps:
                self._simulation.trace("FAULT", kind)
        self._next()

    # --- deaths and restarts -----------------------------------------------------------------------------------------

    def _kill(self) -> bool:
        if self._simulation.process.server is None:
            return False
        self.died("killed", power_failed=False)
        return True

    def _kill_in_call(self) -> bool:
        if self._simulation.process.server is None or self._simulation.disk.dies_after is not None:
            return False
        self._simulation.disk.dies_after = self._random.randint(1, 40)
        return True

    def _power_failure(self) -> bool:
        if self._simulation.process.server is None:
            return False
        self.died("power failure", power_failed=True)
        return True

    def died(self, how: str, power_failed: bool) -> None:
        """The broker's process has ended; start another in a while."""
        simulation = self._simulation
        self._stopping = False
        simulation.process.die()
        simulation.disk.reboot()
        detail = simulation.disk.lose_power() if power_failed else ""
        simulation.trace("BROKER", f"{how}; {detail}" if detail else how)
        simulation.model.process_ended(simulation.scheduler.now_us)
        simulation.power_failed |= power_failed
        self._start_later()

    def _start_later(self) -> None:
        self._simulation.scheduler.after(self._random.randrange(1_000, 800_000), None, self.start)

    def start(self) -> None:
        """Start the broker, which may die again while it recovers."""
        simulation = self._simulation
        if not simulation.calm and self._random.random() < 0.15 and "kill in a system call" in self._kinds:
            simulation.disk.dies_after = self._random.randint(1, 60)
        try:
            simulation.process.start()
            self._finish_swaps()
        except ProcessDied:
            power_failed = "power failure" in self._kinds and self._random.random() < 0.3
            self.died("died while it started", power_failed)
            return
        except (OSError, StorageError, StoreError) as error:
            if simulation.disk.room is None:
                raise
            self.died(f"could not start: {type(error).__name__}", power_failed=False)
            return
        lost = simulation.observer.restarted(simulation.power_failed, self.cuts())
        simulation.power_failed = False
        simulation.trace("BROKER", f"life {simulation.process.lives} begins; lost: {lost or 'nothing'}")

    def _finish_swaps(self) -> None:
        """Where a compaction was interrupted only a recovery can tell which files count: let it happen now."""
        process = self._simulation.process
        server = process.server
        assert server is not None
        assert server._logs is not None
        for state in server._logs._states:
            if any(state.directory.path.glob("*/*.swap")):
                with process.scheduler.within(process.life):
                    state.finish_recovery()

    def cuts(self) -> dict[tuple[str, int], int]:
        """Where the broker is about to cut logs: what a compacted one lost looks to the model like what was cleaned."""
        server = self._simulation.process.server
        assert server is not None
        assert server._logs is not None
        if not self._simulation.fsync_before_ack:
            return {}
        holes = [(key, hole) for state in server._logs._states for key, hole in state.holes.items()]
        return {key: hole.offset for key, hole in holes if hole.is_certain}

    def _clean_restart(self) -> bool:
        process = self._simulation.process
        if process.server is None or process.stopping:
            return False
        self._simulation.scheduler.after(0, process.life, self._stop)
        return True

    def _stop(self) -> None:
        process = self._simulation.process
        if process.server is not None and not process.stopping:
            self._simulation.trace("BROKER", "stops")
            process.stop(self._stopped)

    def _stopped(self) -> None:
        simulation = self._simulation
        simulation.trace("BROKER", "has stopped")
        simulation.model.process_ended(simulation.scheduler.now_us)
        simulation.disk.reboot()
        self._start_later()

    # --- moves -------------------------------------------------------------------------------------------------------

    def _move_replica(self) -> bool:
        """Move some partition to some log dir, and often die meanwhile."""
        simulation, process = self._simulation, self._simulation.process
        if process.server is None or process.stopping or not simulation.model.logs:
            return False
        topic, partition = self._random.choice(sorted(simulation.model.logs))
        path = self._random.choice(process.log_dirs)
        may_die = "kill in a system call" in self._kinds and simulation.disk.dies_after is None
        if may_die and self._random.random() < 0.3:
            simulation.disk.dies_after = self._random.randint(1, 150)
        simulation.scheduler.after(0, process.life, self._begin_move, topic, partition, str(path))
        return True

    def _begin_move(self, topic: str, partition: int, path: str) -> None:
        server = self._simulation.process.server
        if server is not None and server._replicas is not None and not self._simulation.process.stopping:
            error_code = server._replicas.move_replica(topic, partition, path)
            self._simulation.trace("BROKER", f"moves {topic}-{partition} to {path.rpartition('/')[2]}: {error_code!r}")

    # --- what passes -------------------------------------------------------------------------------------------------

    def _for_a_while(self, end: Callable[[], None], low_ms: int = 300, high_ms: int = 4_000) -> None:
        self._simulation.scheduler.after(self._random.randrange(low_ms, high_ms) * 1000, None, end)

    def _slow_network(self) -> bool:
        network = self._simulation.network

        def end() -> None:
            network.slow = False

        network.slow = True
        self._for_a_while(end)
        return True

    def _slow_threads(self) -> bool:
        process = self._simulation.process

        def end() -> None:
            process.slow_threads = False

        process.slow_threads = True
        self._for_a_while(end)
        return True

    def _clock_jump(self) -> bool:
        jump_ms = self._random.choice((-JUMP_MS_MAX, -60_000, -1_000, 0, 1_000, 60_000, JUMP_MS_MAX))
        self._simulation.scheduler.wall_offset_ms = START_MS + jump_ms
        return True

    def _full_disk(self) -> bool:
        disk = self._simulation.disk

        def end() -> None:
            disk.room = None

        disk.room = self._random.choice((0, 50, 500, 5_000))
        self._for_a_while(end, 100, 2_000)
        return True

    def _cold_pages(self) -> bool:
        disk = self._simulation.disk

        def end() -> None:
            disk.cold_share = 0.0

        disk.cold_share = self._random.choice((0.1, 0.8))
        self._for_a_while(end)
        return True

    def end(self) -> None:
        """A calm time begins."""
        simulation = self._simulation
        # Time-outs go by the wall's clock: what was begun in the future must not wait for it.
        simulation.scheduler.wall_offset_ms = START_MS + JUMP_MS_MAX
        simulation.network.slow = simulation.process.slow_threads = False
        simulation.disk.room = simulation.disk.dies_after = None
        simulation.disk.cold_share = 0.0
        self._bring_log_dirs_back()

    def _bring_log_dirs_back(self) -> None:
        """A log dir that found no room while the broker started is offline until the next start."""
        server = self._simulation.process.server
        logs = None if server is None else server._logs
        if logs is not None and any(state.directory.offline for state in logs._states):
            self._clean_restart()
