"""Processes: real ``BrokerServer``s whose outside world is the simulation's, one or several under one seed.

Owns: one life of a broker after another (start, clean stop, death, SIGSTOP and SIGCONT), its ``Env``, its worker
threads as events, and what stands in the place of module globals, which all of them share: whose clock and disk is
asked goes by whose event runs.  Owns no fault (``faults``) and no rule.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from harness.virtual_world import Done, VirtualExecutor

from pybroker import server as server_module
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env
from pybroker.net.thread_job import Job
from pybroker.security.scram import ScramMechanism
from pybroker.server import BrokerServer
from pybroker_protocol.uuids import uuid_text
from tests.simulation import disk
from tests.simulation.disk import Disk
from tests.simulation.network import Network
from tests.simulation.scheduler import Event, Life, ProcessDied, Scheduler

if TYPE_CHECKING:
    from pathlib import Path

JOB_US = (20, 4_000)
SLOW_JOB_US = (100_000, 3_000_000)
PORT = 9092


class SimulatedTimers:
    """``env.Timers`` of one life."""

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> Event:
        return self._scheduler.after(self._scheduler.timer_delay_us(delay_ms), self._life, callback, *args)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Event:
        return self._scheduler.soon(self._life, callback, *args)


class SimulatedExecutor(VirtualExecutor):
    """A worker thread: its job runs at one moment, its completion reaches the loop at a later one."""

    def __init__(self, process: Process, name: str, life: Life) -> None:
        super().__init__(name, process.scheduler)
        self._process = process
        self._life = life

    def submit(self, work: Callable[[], Any], done: Done) -> Job:
        job = super().submit(work, done)
        if len(self.jobs) == 1:
            self._begin()
        return job

    def work(self) -> None:
        super().work()
        died = self.finished[-1].error if self.finished else None
        if isinstance(died, ProcessDied):
            self.finished.pop()
            raise died

    def close(self) -> None:
        self.closed = True
        while self.jobs:
            self.work()
        self.deliver()

    def _begin(self) -> None:
        self._process.scheduler.after(self._process.job_us(), self._life, self._work)

    def _work(self) -> None:
        if self.jobs:
            self.work()
            self._process.scheduler.after(self._process.random.randrange(500), self._life, self.deliver)
        if self.jobs:
            self._begin()


class ProcessClock:
    """``env.Clock`` of one process: the wall's may be wrong, the monotonic one has an origin of its own."""

    def __init__(self, process: Process) -> None:
        self._scheduler = process.scheduler
        self._process = process

    def now_ms(self) -> int:
        return self._scheduler.now_ms() + self._process.clock_offset_ms

    def monotonic_ms(self) -> int:
        return self._scheduler.now_us // 1000 + self._process.monotonic_origin_ms

    def monotonic_ns(self) -> int:
        return self._scheduler.now_us * 1000 + self._process.monotonic_origin_ms * 1_000_000


class World:
    """What all processes of a run share: one scheduler, one network, and this Python's module globals."""

    def __init__(self, seed: int, write_trace: Callable[[str], None] | None = None) -> None:
        self.scheduler = Scheduler(seed, write_trace)  # type: ignore[abstract]  # as much of a loop as is used
        self.random = self.scheduler.random
        self.network = Network(self.scheduler, self.new_random())
        self.processes: list[Process] = []

    def new_random(self) -> Random:
        """A source of chance of its own, so that one part's draws do not move another's."""
        return Random(self.random.getrandbits(64))

    def broker(
        self,
        host: str,
        data_dir: Path,
        settings: Mapping[str, str],
        name: str = "broker",
        log_dirs: Sequence[Path] = (),
    ) -> Process:
        """A machine with a disk and a broker, which does not run yet; ``log_dirs``, if any, lie in ``data_dir``."""
        process = Process(self, name, host, Disk(data_dir, self.new_random()), log_dirs or (data_dir,), settings)
        self.processes.append(process)
        return process

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the simulation in the place of clock, loop and system calls, and take it away again with all it holds."""
        asyncio._set_running_loop(self.scheduler)
        try:
            with ExitStack() as stack:
                stack.enter_context(disk.installed(self._disk_in_use))
                stack.enter_context(patch.object(server_module, "loop_env", self._env))
                stack.enter_context(patch.object(ScramMechanism, "salted", _salted_quickly))
                stack.callback(self._end)
                yield
        finally:
            asyncio._set_running_loop(None)

    def _end(self) -> None:
        self.scheduler.abandon_tasks()
        for process in self.processes:
            process.die()
            process.disk.close()

    def _disk_in_use(self) -> Disk | None:
        life = self.scheduler.life
        return life.process.disk if life is not None and life.process is not None else None

    def _env(self) -> Env:
        life = self.scheduler.life
        assert life is not None
        assert life.process is not None, "only a broker has an Env"
        return life.process.env(life)

    def step(self) -> tuple[bool, Sequence[Process]]:
        """Run the next event: whether there was one, and which processes have died in it, in a system call."""
        try:
            return self.scheduler.step(), ()
        except ProcessDied:
            return True, [process for process in self.processes if process.disk.has_died_in_call]

    def raise_failure(self) -> None:
        """Raise what a callback or a task did not catch, if there is something."""
        failure, self.scheduler.failure = self.scheduler.failure, None
        if failure is not None:
            raise failure


class Process:
    """One broker of a run, life after life, on a machine of its own."""

    def __init__(
        self, world: World, name: str, host: str, disk: Disk, log_dirs: Sequence[Path], settings: Mapping[str, str]
    ) -> None:
        self.name = name
        self.host = host
        self.scheduler = world.scheduler
        self.network = world.network
        self.disk = disk
        self.log_dirs = log_dirs
        self.random = world.new_random()
        self.settings = settings
        self.slow_threads = False
        self.clock_offset_ms = 0
        self.monotonic_origin_ms = 0
        self.server: BrokerServer | None = None
        self.stopping = False
        self.lives = 0
        self.life: Life | None = None
        self.failed = False  # no log dir is left

    def has_log_dir(self, directory_id: bytes) -> bool:
        """Whether that log dir is on the machine's disk, whether it works or not, and was not on one before."""
        known = [path / "meta.properties" for path in self.log_dirs]
        return any(path.exists() and uuid_text(directory_id) in path.read_text() for path in known)

    def job_us(self) -> int:
        low, high = SLOW_JOB_US if self.slow_threads and self.random.random() < 0.3 else JOB_US
        return self.random.randrange(low, high)

    def env(self, life: Life) -> Env:
        """The outside world of one life."""
        scheduler = self.scheduler

        def call_threadsafe(callback: Callable[..., Any], *args: Any) -> None:
            scheduler.soon(life, callback, *args)

        return Env(
            clock=ProcessClock(self),
            timers=SimulatedTimers(scheduler, life),
            executor=lambda name, niceness: SimulatedExecutor(self, name, life),
            call_threadsafe=call_threadsafe,
            random=Random(self.random.getrandbits(64)),
        )

    # --- lives -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life of a broker that is alone; the start blocks, as in reality, and may end in a death."""
        start = self._new_life().start()
        with self.scheduler.within(self.life):
            try:
                start.send(None)
            except StopIteration:
                return
        raise AssertionError("the start of a broker that is alone waits for nothing")

    def begin(self, ended: Callable[[BaseException | None], None]) -> None:
        """Begin a life of a cluster's broker, whose start waits for others.

        ``ended(None)`` runs when it serves, ``ended(error)`` when it cannot; where it dies meanwhile neither does.
        """
        server = self._new_life()
        life = self.life

        def settled(task: asyncio.Task[None]) -> None:
            if self.life is life and not task.cancelled() and not isinstance(task.exception(), ProcessDied):
                ended(task.exception())

        with self.scheduler.within(life):
            self.scheduler.in_background(server.start()).add_done_callback(settled)

    def _new_life(self) -> BrokerServer:
        self.lives += 1
        self.life = Life(f"{self.name}-{self.lives}", self)
        self.stopping = False
        self.network.powered(self.host)
        listen = [f"PLAINTEXT://{self.host}:{PORT}"]
        log_dirs = ",".join(map(str, self.log_dirs))
        config = BrokerConfig.load(listen=listen, data_dir=log_dirs, settings=list(self.settings.items()))
        self.server = BrokerServer(config, on_failure=self._on_failure)
        return self.server

    def _on_failure(self) -> None:
        self.failed = True

    def stop(self, stopped: Callable[[], None]) -> None:
        """End a life cleanly; ``stopped`` runs when it has ended.  To be called from an event of the life."""
        assert self.server is not None
        self.stopping = True
        life = self.life
        task = self.scheduler.create_task(self.server.stop())

        def ended(task: asyncio.Task[None]) -> None:
            if self.life is life and not task.cancelled() and task.exception() is None:
                self._forget()
                stopped()

        task.add_done_callback(ended)

    def die(self, *, with_machine: bool = False) -> None:
        """The process is gone, in the middle of whatever it did; ``with_machine``: nobody is told until it is back."""
        server = self.server
        self._forget(silently=with_machine)
        if server is not None:
            _close_descriptors(server)

    def pause(self) -> None:
        """Stop the process (SIGSTOP), until ``resume``; its machine and its clocks go on."""
        assert self.life is not None
        self.scheduler.pause(self.life)

    def resume(self) -> None:
        """Let the stopped process go on."""
        assert self.life is not None
        self.scheduler.resume(self.life)

    @property
    def is_paused(self) -> bool:
        return self.life is not None and not self.life.ended and self.life.paused_us is not None

    def _forget(self, *, silently: bool = False) -> None:
        if self.life is not None:
            self.scheduler.drop(self.life)
            self.network.process_ended(self.life, silently=silently)
        self.server = None
        self.stopping = False


def _salted_quickly(mechanism: ScramMechanism, secret: bytes, salt: bytes, iterations: int) -> bytes:
    """A key that takes no time to derive: that it takes some protects secrets, and changes nothing of what is said."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, secret, salt + iterations.to_bytes(4, "big"), 1)


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
    # A broker that is alone has its store's file open; that of a cluster is elsewhere.
    connection = getattr(getattr(server._membership, "_store", None), "_connection", None)
    if connection is not None:
        connection.close()
