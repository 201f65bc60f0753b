"""The broker's process: a real ``BrokerServer`` whose outside world is the simulation's.

Owns: one life of a broker after another (start, clean stop, death), its ``Env``, its worker threads as events, and
the listeners.  Owns no fault (``faults``) and no rule.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pybroker import server as server_module
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env
from pybroker.net import long_requests as long_requests_module
from pybroker.net import turns as turns_module
from pybroker.net.jobs import Job
from pybroker.server import BrokerServer
from tests.simulation.disk import Disk
from tests.simulation.network import Network
from tests.simulation.scheduler import Event, Life, ProcessDied, Scheduler

if TYPE_CHECKING:
    from pathlib import Path

Done = Callable[[Any, BaseException | None], None]
JOB_US = (20, 4_000)
SLOW_JOB_US = (100_000, 3_000_000)
PORTION_ENDS_NS = 0  # at the first place to stop at


class SimulatedTimers:
    """``env.Timers`` of one life."""

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Event:
        return self._scheduler.after(self._scheduler.timer_delay_us(delay_ms), self._life, callback, *args)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Event:
        return self._scheduler.soon(self._life, callback, *args)


class SimulatedExecutor:
    """A worker thread: its job runs at one moment, its completion reaches the loop at a later one."""

    def __init__(self, process: Process, name: str, life: Life) -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._life = life
        self._name = name
        self._jobs: deque[Job] = deque()
        self._finished: deque[Job] = deque()
        self._closed = False

    def submit(self, work: Callable[[], Any], done: Done) -> Job:
        assert not self._closed, f"executor {self._name} is closed"
        job = Job(work, done)
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._begin()
        return job

    def close(self) -> None:
        self._closed = True
        while self._jobs:
            self._run_one()
        self._deliver_all()

    def _begin(self) -> None:
        self._scheduler.after(self._process.job_us(), self._life, self._work)

    def _work(self) -> None:
        if self._jobs:
            self._run_one()
            self._scheduler.after(self._process.random.randrange(500), self._life, self._deliver_all)
        if self._jobs:
            self._begin()

    def _run_one(self) -> None:
        """A portion of the first job, which goes behind the others if there is more of it."""
        job = self._jobs.popleft()
        if not job.go_on(PORTION_ENDS_NS, self._closed):
            self._jobs.append(job)
        elif isinstance(job.error, ProcessDied):
            raise job.error
        else:
            self._finished.append(job)

    def _deliver_all(self) -> None:
        while self._finished:
            self._finished.popleft().complete()


class _ListeningServer:
    """What ``create_server`` gives: the part of ``asyncio.Server`` that the broker uses."""

    def __init__(self, process: Process, factory: Callable[[], Any]) -> None:
        self._process = process
        self._factory = factory
        self.sockets = [SimpleNamespace(getsockname=lambda: ("10.0.0.254", 9092), setsockopt=lambda *_: None)]

    async def start_serving(self) -> None:
        self._process.listening(self._factory)

    def close(self) -> None:
        self._process.network.accept = None


class Process:
    """The broker of a run, life after life."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        disk: Disk,
        data_dir: Path,
        settings: dict[str, str],
        random: Random,
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.disk = disk
        self.random = random
        self.settings = settings
        self.slow_threads = False
        self.server: BrokerServer | None = None
        self.stopping = False
        self.lives = 0
        self.life: Life | None = None
        self.failed = False  # no log dir is left
        self._data_dir = data_dir
        scheduler.create_server = self._create_server  # type: ignore[assignment]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the simulation in the place of clock, loop and system calls."""
        asyncio._set_running_loop(self.scheduler)
        try:
            with ExitStack() as stack:
                stack.enter_context(self.disk.installed())
                stack.enter_context(patch.object(server_module, "loop_env", self._env))
                for module in (turns_module, long_requests_module):
                    stack.enter_context(patch.object(module, "monotonic_ns", self.scheduler.monotonic_ns))
                yield
        finally:
            asyncio._set_running_loop(None)

    def job_us(self) -> int:
        low, high = SLOW_JOB_US if self.slow_threads and self.random.random() < 0.3 else JOB_US
        return self.random.randrange(low, high)

    def _env(self) -> Env:
        scheduler, life = self.scheduler, self.life
        assert life is not None

        def call_threadsafe(callback: Callable[..., Any], *args: Any) -> None:
            scheduler.soon(life, callback, *args)

        return Env(
            clock=scheduler,
            timers=SimulatedTimers(scheduler, life),
            executor=lambda name, niceness: SimulatedExecutor(self, name, life),
            call_threadsafe=call_threadsafe,
            random=Random(self.random.getrandbits(64)),
        )

    async def _create_server(self, factory: Callable[[], Any], *_: Any, **__: Any) -> Any:
        return _ListeningServer(self, factory)

    def listening(self, factory: Callable[[], Any]) -> None:
        """Connections are accepted from now on."""
        self.network.accept = factory
        self.network.life = self.life

    # --- lives -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life; the start blocks, as in reality, and may end in a death."""
        self.lives += 1
        self.life = Life(f"broker-{self.lives}")
        self.stopping = False
        config = BrokerConfig.load(
            listen=["PLAINTEXT://10.0.0.254:9092"],
            data_dir=str(self._data_dir),
            settings=list(self.settings.items()),
        )
        self.server = BrokerServer(config, on_failure=self._on_failure)
        start = self.server.start()
        try:
            start.send(None)
        except StopIteration:
            return
        raise AssertionError("the start of a broker waits for nothing")

    def _on_failure(self) -> None:
        self.failed = True

    def stop(self, stopped: Callable[[], None]) -> None:
        """End a life cleanly; ``stopped`` runs when it has ended."""
        assert self.server is not None
        self.stopping = True
        life = self.life
        task = self.scheduler.create_task(self.server.stop())

        def ended(task: asyncio.Task[None]) -> None:
            if self.life is life and not task.cancelled() and task.exception() is None:
                self._forget()
                stopped()

        task.add_done_callback(ended)

    def die(self) -> None:
        """The process is gone, in the middle of whatever it did."""
        server = self.server
        self._forget()
        if server is not None:
            _close_descriptors(server)

    def _forget(self) -> None:
        if self.life is not None:
            self.scheduler.drop(self.life)
        self.network.server_died()
        self.server = None
        self.stopping = False


def _close_descriptors(server: Any) -> None:
    """What the kernel does for a process that has died."""
    logs = server._logs
    if logs is not None:
        logs._closed = True
        for log in logs.logs():
            with suppress(OSError):
                log.close_files()
        for state in logs._states:
            state.directory.unlock()
    if server._controller is not None and server._controller._store._connection is not None:
        server._controller._store._connection.close()
