"""What goes wrong in a cluster's run, and when: brokers, machines, ways between them, the metadata store.

Owns: the choice of the next fault, and the way back from each.  Every fault is undone after a while, and none comes in
a calm time, so that whatever is stuck then is stuck because of the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from pybroker.cluster.store.metadata_store import StoreError
from pybroker.storage.results import StorageError
from tests.simulation.model import REACHED
from tests.simulation.network import CLIENTS
from tests.simulation.store import HOST as STORE_HOST
from tests.simulation.swings import Swings

if TYPE_CHECKING:
    from tests.simulation.cluster_simulation import ClusterSimulation
    from tests.simulation.processes import Process

JUMP_MS_MAX = 1_200_000
# name -> weight
FAULTS = {
    "kill": 3,
    "kill in a system call": 3,
    "power failure": 3,
    "clean restart": 2,
    "pause": 3,
    "long pause": 2,
    "partition": 3,
    "one-way partition": 3,
    "isolation": 3,
    "clog": 2,
    "broken connection": 6,
    "slow network": 2,
    "slow threads": 2,
    "clock jump": 1,
    "full disk": 1,
    "failed log dir": 2,
    "store away": 1,
    "store cut off": 2,
    "slow store": 2,
    "silent store": 2,
    "late news": 2,
    "session lost": 1,
    "store forgets": 1,
    "wiped disk": 1,
    "old request": 3,
}
# Those that strike only where they are asked for, and in a swarm.
RARE_FAULTS = {"disk that stays full": 2, "swing of a leadership": 3}
_WEIGHTS = FAULTS | RARE_FAULTS
# Some seeds have a few kinds of faults only: all of them at once dilute each other (swarm testing).
SWARM_SHARE = 0.3
SWARM = (3, 6)
# What strikes at a moment that is aimed at: just after an election, or between a request of brokers and its answer.
AIMED = (
    "kill",
    "kill in a system call",
    "power failure",
    "pause",
    "long pause",
    "clean restart",
    "broken connection",
    "session lost",
    "partition",
    "one-way partition",
)
AIM_US = 20_000


def between(one: str, other: str) -> list[tuple[str, str]]:
    """The ways of two hosts to each other."""
    return [(one, other), (other, one)]


def drawn_kinds(random: Random, enabled: frozenset[str]) -> list[str]:
    """The kinds of a run: those that are enabled, or, where that is all of them, in some runs a swarm of a few."""
    if enabled == frozenset(FAULTS) and random.random() < SWARM_SHARE:
        return random.sample(list(_WEIGHTS), random.randint(*SWARM))
    return [name for name in _WEIGHTS if name in enabled]


class ClusterFaults:
    """One run's faults."""

    def __init__(self, simulation: ClusterSimulation, enabled: frozenset[str], aim_share: float | None) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._network = simulation.network
        self._ensemble = simulation.ensemble
        self._random = simulation.new_random()
        self.counts: dict[str, int] = dict.fromkeys(_WEIGHTS, 0)
        self._kinds = drawn_kinds(self._random, enabled)
        self._aimed = [name for name in AIMED if name in self._kinds]
        drawn = self._random.choice((0.0, 0.0, 0.1, 0.3))
        self._aim_share = drawn if aim_share is None else aim_share
        # Of requests between brokers, just behind which an older one about the same comes once more.
        self.overtaken_share = self._random.choice((0.0, 0.1, 0.5)) if "old request" in self._kinds else 0.0
        self._mean_ms = self._random.choice((500, 1_500, 4_000))
        self._swings = Swings(simulation, self._random)
        self._undo: dict[int, Callable[[], None]] = {}
        self._full: set[int] = set()  # those of ``_undo`` that empty a disk
        self._undo_count = 0
        self._furthest_clock_ms = 0  # how far in the future any broker's clock was

    @property
    def _may_lose_data(self) -> bool:
        """Whether what is acknowledged may be lost with the power: only then it counts how many machines hold it."""
        return not self._simulation.fsync_before_ack

    @property
    def _processes(self) -> list[Process]:
        return self._simulation.processes

    def begin(self) -> None:
        """Schedule the first one."""
        if self._kinds:
            self._simulation.trace("FAULTS", ", ".join(self._kinds))
            self._next()

    def elected(self, leader: int, former: int) -> None:
        """A partition has another leader by the store."""
        brokers = [each for each in (leader, former) if each >= 0]
        if not self._simulation.calm and self._aimed and self._random.random() < self._aim_share / 4:
            self._aim("an election", self._processes[self._random.choice(brokers)])

    def request_sent(self, sender: Process, receiver: Process, about: Sequence[Process]) -> None:
        """A broker asks another one for what changes something for good; ``about`` are those whose state it tells."""
        joining = [broker for broker in about if broker is not sender]
        share = self._aim_share / (2 if joining else 8)  # a broker joins more seldom than a leader has a change to tell
        if self._simulation.calm or not self._aimed or self._random.random() >= share:
            return
        if self._random.random() < 0.3:
            self._aim("a request", self._random.choice((sender, receiver)))
        else:
            self._hold(sender, receiver, self._random.choice(joining or [sender]))

    def _hold(self, sender: Process, receiver: Process, about: Process) -> None:
        """What a request tells of a broker is over before it arrives; that broker may not reach who told it, either."""
        self.cut_for_a_while([(sender.host, receiver.host)], "", (6_000,))
        if about is not sender and self._random.random() < 0.7:
            self.cut_for_a_while(between(sender.host, about.host), "", (15_000,))
        REACHED["what a request that is held tells of a broker is over"] += about is not sender
        self._aim("a request that is held", about)

    def _aim(self, event: str, process: Process) -> None:
        kind = self._random.choice(self._aimed)
        self._scheduler.after(self._random.randrange(AIM_US), None, self._strike_after, event, kind, process)

    def _strike_after(self, event: str, kind: str, process: Process) -> None:
        if not self._simulation.calm:
            REACHED[f"a fault just after {event}"] += 1
            self._do(kind, process)

    def _next(self) -> None:
        delay_us = int(self._random.expovariate(1 / self._mean_ms) * 1000)
        self._scheduler.after(delay_us, None, self._strike)

    def _strike(self) -> None:
        if self._simulation.calm:
            return
        kind = self._random.choices(self._kinds, [_WEIGHTS[name] for name in self._kinds])[0]
        self._do(kind, self._random.choice(self._processes))
        self._next()

    def _do(self, kind: str, process: Process) -> None:
        """Have a fault befall a process, or what it is about, if that can be now."""
        actions: dict[str, Callable[[], str | None]] = {
            "kill": lambda: self._kill(process),
            "kill in a system call": lambda: self._kill_in_call(process),
            "power failure": lambda: self._power_failure(process),
            "wiped disk": lambda: self._wipe_disk(process),
            "clean restart": lambda: self._clean_restart(process),
            "pause": lambda: self._pause(process, 20, 1_500),
            "long pause": lambda: self._pause(process, 4_000, 12_000),
            "partition": lambda: self._partition(process, both_ways=True),
            "one-way partition": lambda: self._partition(process, both_ways=False),
            "isolation": lambda: self._isolate(process),
            "clog": self._clog,
            "broken connection": lambda: "" if self._network.break_one() else None,
            "slow network": lambda: self._for_a_while(lambda on: setattr(self._network, "slow", on)),
            "slow threads": lambda: self._for_a_while(lambda on: setattr(process, "slow_threads", on), process.name),
            "clock jump": lambda: self._clock_jump(process),
            "full disk": lambda: self._full_disk(process),
            "disk that stays full": lambda: self._fill_disk(process),
            "failed log dir": lambda: self._fail_log_dir(process),
            "store away": lambda: self._for_a_while(lambda on: setattr(self._ensemble, "is_away", on), "", 100, 9_000),
            "store cut off": lambda: self.cut_for_a_while(between(process.host, STORE_HOST), process.name),
            "slow store": lambda: self._for_a_while(lambda on: setattr(self._ensemble, "is_slow", on)),
            "silent store": lambda: self._for_a_while(
                lambda on: setattr(self._ensemble, "silent_share", 0.3 if on else 0.0)
            ),
            "late news": lambda: self._keep_uninformed(process),
            "session lost": lambda: self._lose_session(process),
            "store forgets": self._forget_history,
            "old request": self._simulation.peer_requests.send_one_again,
            "swing of a leadership": self._swings.begin,
        }
        told = actions[kind]()
        if told is not None:
            self.counts[kind] += 1
            self._simulation.trace("FAULT", f"{kind} {told}".rstrip())

    # --- deaths and restarts -----------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """The cluster begins: in any order, and nearly at once."""
        for process in self._random.sample(self._processes, len(self._processes)):
            self._start_later(process, 0, 200)

    def died(self, process: Process, how: str, *, power_failed: bool) -> None:
        """A broker's process has ended; start another in a while."""
        note_loss = self._simulation.observer.power_fails(process) if power_failed and self._may_lose_data else None
        process.die(with_machine=power_failed)
        process.disk.reboot()
        detail = process.disk.lose_power() if power_failed else ""
        if note_loss is not None:
            note_loss()
        self._simulation.trace(process.name, f"{how}; {detail}" if detail else how)
        self._simulation.model.coordinator_moved()
        self._start_later(process)

    def _start_later(self, process: Process, low_ms: int = 1, high_ms: int = 3_000) -> None:
        # Most come back soon, some only after their session has ended.
        delay_ms = self._random.randrange(low_ms, high_ms)
        if low_ms and self._random.random() < 0.2 and not self._simulation.calm:
            delay_ms += 8_000
        self._scheduler.after(delay_ms * 1000, None, self._start, process)

    def _start(self, process: Process) -> None:
        if not self._simulation.calm and self._random.random() < 0.1 and "kill in a system call" in self._kinds:
            process.disk.dies_after = self._random.randint(1, 60)

        def ended(error: BaseException | None) -> None:
            if error is None:
                self._simulation.trace(process.name, "serves")
            elif isinstance(error, (OSError, StorageError, StoreError)):
                # Of the life that could not start: whoever runs now must not be in it any more.
                self._scheduler.after(0, None, self._could_not_start, process, process.lives, error)
            else:
                self._scheduler.failure = self._scheduler.failure or error

        process.begin(ended)
        self._simulation.trace(process.name, f"life {process.lives} begins")

    def _could_not_start(self, process: Process, lives: int, error: BaseException) -> None:
        if process.lives == lives and process.server is not None:
            self.died(process, f"could not start: {type(error).__name__}: {error}", power_failed=False)

    def _lives(self, process: Process) -> bool:
        return process.server is not None and not process.is_paused

    def _kill(self, process: Process) -> str | None:
        if process.server is None:
            return None
        self.died(process, "killed", power_failed=False)
        return process.name

    def _kill_in_call(self, process: Process) -> str | None:
        if process.server is None or process.disk.dies_after is not None:
            return None
        process.disk.dies_after = self._random.randint(1, 40)
        return process.name

    def _power_failure(self, process: Process) -> str | None:
        if process.server is None:
            return None
        if self._may_lose_data and not self._simulation.observer.may_lose_power(process):
            return None
        self.died(process, "power failure", power_failed=True)
        return process.name

    def _wipe_disk(self, process: Process) -> str | None:
        """A machine gets an empty disk, whether its broker ran or was stopped: it has every replica to fetch anew."""
        observer = self._simulation.observer
        if process.disk.broken or not observer.may_lose_power(process):
            return None
        if process.server is not None:
            self.died(process, "killed", power_failed=False)
        note_loss = observer.power_fails(process)
        process.disk.wipe()
        note_loss()
        return process.name

    def _clean_restart(self, process: Process) -> str | None:
        if not self._lives(process) or process.stopping or not self._simulation.serves(process):
            return None
        self._scheduler.after(0, process.life, self.stop, process)
        return process.name

    def stop(self, process: Process) -> None:
        """Stop a broker cleanly, and start it again in a while; to be called from an event of its life."""
        if process.server is not None and not process.stopping:
            process.stop(lambda: self._stopped(process))

    def _stopped(self, process: Process) -> None:
        self._simulation.trace(process.name, "has stopped")
        self._simulation.model.coordinator_moved()
        process.disk.reboot()
        self._start_later(process)

    def _pause(self, process: Process, low_ms: int, high_ms: int) -> str | None:
        if not self._lives(process):
            return None
        life = process.life

        def go_on() -> None:
            if process.life is life and process.is_paused:
                process.resume()
                self._simulation.trace(process.name, "goes on")

        process.pause()
        return f"{process.name} for {self._later(go_on, low_ms, high_ms)} ms"

    # --- ways --------------------------------------------------------------------------------------------------------

    def _partition(self, process: Process, *, both_ways: bool) -> str | None:
        others = [other for other in self._processes if other is not process]
        if not others:
            return None
        other = self._random.choice(others)
        ways = between(process.host, other.host)
        return self.cut_for_a_while(ways if both_ways else ways[:1], f"{process.name} and {other.name}")

    def _isolate(self, process: Process) -> str:
        """A broker loses the others, and perhaps the store and the clients."""
        ways = []
        hosts = [other.host for other in self._processes if other is not process]
        hosts += [STORE_HOST] * (self._random.random() < 0.5) + [CLIENTS] * (self._random.random() < 0.5)
        directions = self._random.choice((slice(0, 2), slice(0, 1), slice(1, 2)))
        for host in hosts:
            ways += between(process.host, host)[directions]
        return self.cut_for_a_while(ways, process.name)

    def _clog(self) -> str:
        """Some brokers are cut off one after another, and come back in another order (FoundationDB's swizzle)."""
        clogged = self._random.sample(self._processes, self._random.randint(1, len(self._processes)))
        for process in clogged:
            ways = [
                way for other in self._processes if other is not process for way in between(process.host, other.host)
            ]
            delay_us = self._random.randrange(500_000)
            self._scheduler.after(delay_us, None, self._clog_one, ways)
        return ", ".join(process.name for process in clogged)

    def _clog_one(self, ways: list[tuple[str, str]]) -> None:
        if not self._simulation.calm:
            self.cut_for_a_while(ways, "")

    def cut_for_a_while(
        self, ways: list[tuple[str, str]], who: str, longest_ms: tuple[int, ...] = (1_000, 5_000, 15_000)
    ) -> str:
        """Nothing goes these ways until a while has passed; in words."""
        for way in ways:
            self._network.cut(*way)

        def heal() -> None:
            for way in ways:
                self._network.heal(*way)

        high_ms = self._random.choice(longest_ms)
        return f"{who} for {self._later(heal, 100, high_ms)} ms"

    # --- what passes -------------------------------------------------------------------------------------------------

    def _later(self, undo: Callable[[], None], low_ms: int, high_ms: int) -> int:
        """Undo a fault after a while, or when the calm time begins; says when."""
        self._undo_count += 1
        number, delay_ms = self._undo_count, self._random.randrange(low_ms, high_ms)
        self._undo[number] = undo
        self._scheduler.after(delay_ms * 1000, None, self._undo_one, number)
        return delay_ms

    def _undo_one(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            undo()

    def _for_a_while(
        self, switch: Callable[[bool], None], who: str = "", low_ms: int = 300, high_ms: int = 4_000
    ) -> str:
        switch(True)
        return f"{who} for {self._later(lambda: switch(False), low_ms, high_ms)} ms".lstrip()

    def _clock_jump(self, process: Process) -> str:
        process.clock_offset_ms = self._random.choice((-JUMP_MS_MAX, -60_000, -1_000, 0, 1_000, 60_000, JUMP_MS_MAX))
        self._furthest_clock_ms = max(self._furthest_clock_ms, process.clock_offset_ms)
        return f"{process.name} to {process.clock_offset_ms} ms"

    def _full_disk(self, process: Process) -> str:
        process.disk.room = self._random.choice((0, 50, 500, 5_000))

        def end() -> None:
            process.disk.room = None

        return f"{process.name} for {self._later(end, 100, 2_000)} ms"

    def _fill_disk(self, process: Process) -> str | None:
        """A disk is full for so long that its broker cannot be waited for."""
        # One at a time, as a rule: the others have to go on.
        full = sum(other.disk.stays_full for other in self._processes)
        if process.disk.stays_full or self._random.random() < min(full, 1) * 0.9:
            return None
        process.disk.fill(self._random.choice((0, 500, 5_000)))
        told = f"{process.name} for {self._later(process.disk.empty, 10_000, 40_000)} ms"
        self._full.add(self._undo_count)
        return told

    @property
    def disturbs(self) -> bool:
        """Whether a fault strikes now that passes, other than a full disk."""
        return any(number not in self._full for number in self._undo)

    def _fail_log_dir(self, process: Process) -> str | None:
        """The second log dir of a machine fails for a while, for good until the broker is started again then."""
        if len(process.log_dirs) < 2 or process.disk.broken:
            return None
        directory = process.disk.broken = str(process.log_dirs[1])

        def mend() -> None:
            process.disk.broken = ""
            if process.server is not None:
                self.died(process, "stopped for its log dir", power_failed=False)

        return f"{directory.rpartition('/')[2]} of {process.name} for {self._later(mend, 500, 10_000)} ms"

    def _lose_session(self, process: Process) -> str | None:
        return process.name if self._ensemble.expire_session_of(process) else None

    def _keep_uninformed(self, process: Process) -> str | None:
        """A broker hears of no change for a while, as at a server of ZooKeeper's that lags behind the others."""
        uninformed = self._ensemble.uninformed
        if process.host in uninformed:
            return None
        uninformed.add(process.host)
        return f"to {process.name} for {self._later(lambda: uninformed.discard(process.host), 1_000, 10_000)} ms"

    def _forget_history(self) -> str:
        self._ensemble.forget_history()
        return ""

    def end(self) -> None:
        """A calm time begins."""
        undo, self._undo = self._undo, {}
        for action in undo.values():
            action()
        self._network.heal_all()
        for process in self._processes:
            process.disk.dies_after = None
            process.disk.empty()
            # Transactions time out by the wall's clock: one that began in the future must not wait for it.
            process.clock_offset_ms = self._furthest_clock_ms
