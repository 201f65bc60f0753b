"""What a cluster of brokers that run as child processes has, whoever made them.

Owns: the brokers by number (0, 1, 2), their start side by side, the wait until each of them knows all, and faults for
one of them.  How a broker is configured, started and stopped is its own (``BrokerProcess``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from harness.broker_probe import brokers_known
from harness.broker_process import BrokerProcess
from harness.process_pause import pause, resume
from harness.waiting import wait_until

# JVMs that start side by side on two processors, and their quorum's first election.
START_S = 120.0

B = TypeVar("B", bound=BrokerProcess)


class BrokerCluster(Generic[B]):
    """Brokers below one directory; each keeps its ports and its data over kills and restarts."""

    def __init__(self, brokers: Sequence[B]) -> None:
        self.brokers = list(brokers)
        self._paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """``HOST:PORT`` of the first broker that runs."""
        return next(broker for broker in self.brokers if broker.is_running).bootstrap

    @property
    def bootstraps(self) -> list[str]:
        """``HOST:PORT`` of each broker, by number."""
        return [broker.bootstrap for broker in self.brokers]

    @property
    def pids(self) -> list[int]:
        """Of the brokers that run."""
        return [broker.pid for broker in self.brokers if broker.is_running]

    @property
    def data_directories(self) -> list[Path]:
        return [broker.data_directory for broker in self.brokers]

    def start(self, timeout_s: float = START_S) -> Self:
        """Start what does not run, and wait until every broker knows them all; raises what a start raised."""
        try:
            self._side_by_side(lambda broker: broker.start(timeout_s), lambda broker: not broker.is_running)
            self.wait_until_whole(timeout_s)
        except BaseException:
            self.kill_all()
            raise
        return self

    def wait_until_whole(self, timeout_s: float = START_S) -> None:
        """Wait until every broker names all of them to its clients; raises ``TimeoutError``."""
        wait_until(self.is_whole, f"{len(self.brokers)} brokers that know each other", timeout_s)

    def is_whole(self) -> bool:
        """Whether every broker runs and names all of them."""
        return all(
            broker.is_running and brokers_known(broker.host, broker.port) == len(self.brokers)
            for broker in self.brokers
        )

    def wait_until_known_dead(self, timeout_s: float = START_S) -> None:
        """Wait until every broker that runs names those alone to its clients; raises ``TimeoutError``.

        kafka-python goes to whoever is named, and leaves the socket of a refused connection to the garbage collector.
        """
        running = [broker for broker in self.brokers if broker.is_running]
        wait_until(
            lambda: all(brokers_known(broker.host, broker.port) == len(running) for broker in running),
            f"{len(running)} brokers that know of each other alone",
            timeout_s,
        )

    def kill(self, number: int) -> None:
        """Kill -9 of one broker; does nothing when it is not running."""
        self._paused.discard(number)
        self.brokers[number].kill()

    def stop_one(self, number: int) -> None:
        """A clean stop of one broker; does nothing when it is not running."""
        self.resume(number)
        self.brokers[number].stop()

    def start_one(self, number: int, timeout_s: float = START_S) -> None:
        """Start a broker that was killed or stopped, on its data, and wait until it answers."""
        self.brokers[number].start(timeout_s)

    def pause(self, number: int) -> None:
        """SIGSTOP: the broker's connections stay, and it does nothing."""
        pause(self.brokers[number].pid)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Let a paused broker go on; does nothing when it is not paused."""
        if number in self._paused:
            self._paused.discard(number)
            resume(self.brokers[number].pid)

    def stop(self, timeout_s: float = 60) -> None:
        """Shut all down cleanly, side by side: the last brokers of a quorum end together or not at all."""
        for number in list(self._paused):
            self.resume(number)
        self._side_by_side(lambda broker: broker.stop(timeout_s), lambda broker: broker.is_running)

    def kill_all(self) -> None:
        """Kill -9 of all."""
        for number in range(len(self.brokers)):
            self.kill(number)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill_all()

    def _side_by_side(self, do: Callable[[B], Any], is_due: Callable[[B], bool]) -> None:
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            begun = [threads.submit(do, broker) for broker in self.brokers if is_due(broker)]
        for each in begun:
            each.result()
