"""Faults: the broker is killed or stopped for a while, clients are killed or sent away.

Owns: the plan, which follows from a seed, and what each fault does to a process.  A broker is what ``ApacheKafka`` and
``PybrokerProcess`` have in common.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

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
    """When it strikes, in seconds from the start, and what it is: kill, pause, kill a client, send a client away."""

    at_s: float
    kind: str


def plan(random: Random, seconds: float, kills: int) -> list[Fault]:
    """Kills of the broker spread over the time, half as many pauses, and a client in trouble every few seconds.

    The first and the last tenth of the time are quiet for the broker, so that there is something to lose, and groups
    come to rest.
    """
    faults: list[Fault] = []
    for kind, number in (("kill", kills), ("pause", (kills + 1) // 2)):
        span = 0.8 * seconds / max(number, 1)
        faults += [Fault(0.1 * seconds + span * (turn + random.random()), kind) for turn in range(number)]
    number = int(seconds / CLIENT_FAULT_EVERY_S)
    kinds = ["kill a client", "kill a client", "send a client away"]
    faults += [Fault(random.uniform(0.1, 0.9) * seconds, random.choice(kinds)) for _ in range(number)]
    return sorted(faults)


def kill_and_restart(broker: Broker, journal: Journal, random: Random) -> None:
    journal.record(BROKER, "invoke", "kill")
    broker.kill()
    time.sleep(random.uniform(0, DOWN_S_MAX))
    broker.start(RESTART_S)
    journal.record(BROKER, "ok", "kill")


def pause(broker: Broker, journal: Journal, random: Random) -> None:
    journal.record(BROKER, "invoke", "pause")
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(random.uniform(0.1, PAUSE_S_MAX))
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    journal.record(BROKER, "ok", "pause")
