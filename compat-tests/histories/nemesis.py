"""Faults: the broker is killed or stopped for a while, clients are killed or sent away.

Owns: what a workload needs of whoever strikes, the plan for one broker, which follows from a seed, and what each of its
faults does to a process.  A broker is what ``ApacheKafka`` and ``PybrokerProcess`` have in common.  Those of a cluster
are ``cluster_nemesis``'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from harness import process_pause

from histories.history import BROKER, Journal

RESTART_S = 90.0
PAUSE_S_MAX = 2.5
DOWN_S_MAX = 1.0
CLIENT_FAULT_EVERY_S = 4.0


class Broker(Protocol):
    """A broker that the workload has started and may kill."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def log_path(self) -> Path: ...

    def start(self, timeout_s: float = ...) -> object: ...

    def kill(self) -> None: ...

    def stop(self, timeout_s: float = ...) -> None: ...


class Fault(NamedTuple):
    """When it strikes, in seconds from the start, what it is (kill, pause, ...), and when it is mended after that."""

    at_s: float
    kind: str
    lasts_s: float = 0.0


Mend = Callable[[], None]
KILL_A_CLIENT, SEND_A_CLIENT_AWAY = "kill a client", "send a client away"
CLIENT_KINDS = (KILL_A_CLIENT, SEND_A_CLIENT_AWAY)


class Nemesis(Protocol):
    """Plans faults and strikes; ``CLIENT_KINDS`` of its plan are the workload's own to do."""

    def plan(self, random: Random, seconds: float) -> list[Fault]: ...

    def strike(self, fault: Fault, journal: Journal, random: Random) -> Mend | None:
        """Let it happen and record it; what has to be called once it has lasted, if anything."""

    def check(self) -> None:
        """Raise ``RuntimeError`` when a broker has ended by itself, or does not come back."""

    def come_to_rest(self) -> None:
        """Wait until what was mended is well; raises as ``check``."""


def client_faults(random: Random, seconds: float, every_s: float = CLIENT_FAULT_EVERY_S) -> list[Fault]:
    """A client in trouble every few seconds."""
    kinds = [KILL_A_CLIENT, KILL_A_CLIENT, SEND_A_CLIENT_AWAY]
    number = int(seconds / every_s)
    return [Fault(random.uniform(0.1, 0.9) * seconds, random.choice(kinds)) for _ in range(number)]


def plan(random: Random, seconds: float, kills: int) -> list[Fault]:
    """Kills of the broker spread over the time, half as many pauses, and a client in trouble every few seconds.

    The first and the last tenth of the time are quiet for the broker, so that there is something to lose, and groups
    come to rest.
    """
    faults: list[Fault] = []
    for kind, number in (("kill", kills), ("pause", (kills + 1) // 2)):
        span = 0.8 * seconds / max(number, 1)
        faults += [Fault(0.1 * seconds + span * (turn + random.random()), kind) for turn in range(number)]
    return sorted(faults + client_faults(random, seconds))


class OneBroker:
    """Strikes one broker, or, where that is not ours, clients alone."""

    def __init__(self, broker: Broker | None, kills: int) -> None:
        self._broker = broker
        self._kills = kills if broker is not None else 0

    def plan(self, random: Random, seconds: float) -> list[Fault]:
        return plan(random, seconds, self._kills)

    def strike(self, fault: Fault, journal: Journal, random: Random) -> None:
        assert self._broker is not None
        strike = kill_and_restart if fault.kind == "kill" else pause
        strike(self._broker, journal, random)

    def check(self) -> None:
        """Clients notice soon enough."""

    def come_to_rest(self) -> None:
        """Each fault is over when its ``strike`` returns."""


def kill_and_restart(broker: Broker, journal: Journal, random: Random) -> None:
    journal.record(BROKER, "invoke", "kill")
    broker.kill()
    time.sleep(random.uniform(0, DOWN_S_MAX))
    broker.start(RESTART_S)
    journal.record(BROKER, "ok", "kill")


def pause(broker: Broker, journal: Journal, random: Random) -> None:
    journal.record(BROKER, "invoke", "pause")
    process_pause.pause(broker.pid)
    try:
        time.sleep(random.uniform(0.1, PAUSE_S_MAX))
    finally:
        process_pause.resume(broker.pid)
    journal.record(BROKER, "ok", "pause")
