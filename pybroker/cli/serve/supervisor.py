"""The process beside the brokers of one machine: starts them, starts the dead again, and stops all.

Owns: the brokers' processes, and the signals of its own process. It kills a broker that was stopped while it writes to
the metadata store, because such a broker keeps all others from writing as long as it lives. Owns no broker, and not
where a broker's data lies: ``workers`` and ``cluster`` say that by the command.

Invariants:
- When it ends, however it does, so do the brokers.
- A broker that never served is not started again, its failure ends all.
- The others are started again only where that is wanted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pybroker.cli.serve.hidden_arguments import in_environment
from pybroker.cli.serve.processes import ends_with_parent, is_locked_by_another, is_stopped, start_time

log = logging.getLogger("pybroker.supervisor")

READY_LINE: Final = re.compile(r"pybroker ready on (\S+)\s*")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_GOOD_LIFE_S = 30.0  # who has lived for so long starts anew without a pause
_STOP_TIMEOUT_S = 120.0  # a clean stop may take its time: leaders move first, then files are synced
_SAME_SIGNAL_S = 1.0  # some who stop a process signal it and its group: that is one wish, not two
_ORPHAN_TIMEOUT_S = 20.0  # for brokers of a supervisor that was killed: they stop by themselves
_LOCK_LOOK_S = 0.1
_SQLITE: Final = "sqlite://"


class Member:
    """One broker's process.

    ``log_path`` is where its standard error goes: None is the supervisor's own.  ``data_dirs`` are those it locks.
    ``unseen`` are arguments of ``pybroker serve`` that may be secrets.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path | None = None,
        data_dirs: Sequence[Path] = (),
        unseen: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.command = command
        self.environment = in_environment(unseen)
        self.log_path = log_path
        self.data_dirs = data_dirs
        self.address = ""  # as of its ready line
        self.serves = False
        self.process: Process | None = None  # while it runs
        self.began: int | None = None  # start time
        self.exit_code: int | None = None  # of its last life
        self.wanted = asyncio.Event()  # it is to be started again
        self._pause_s = _FIRST_PAUSE_S
        self._since = 0.0

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return None if self.process is None else self.process.pid

    @property
    def is_preceded(self) -> bool:
        """Whether another process, which may still stop, has its data."""
        from pybroker.public import LOCK_FILE

        return any(is_locked_by_another(directory / LOCK_FILE) for directory in self.data_dirs)

    @property
    def end(self) -> str:
        """How its last life ended."""
        code = self.exit_code
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return "was not started" if code is None else f"ended with exit code {code}"

    async def live(self, on_change: Callable[[], None]) -> None:
        """Start it; returns when it has ended."""
        self._since = time.monotonic()
        self.wanted.clear()
        self.process = process = await self._begin()
        self.began = start_time(process.pid)
        on_change()
        assert process.stdout is not None
        async for line in process.stdout:
            ready = READY_LINE.fullmatch(line.decode(errors="replace"))
            if ready is not None:
                self.address, self.serves = ready[1], True
                on_change()
        self.exit_code = await process.wait()
        self.process, self.serves = None, False
        on_change()

    async def _begin(self) -> Process:
        # A session of its own: Ctrl-C at the terminal is for the supervisor.
        begin = partial(
            asyncio.create_subprocess_exec,
            *self.command,
            stdout=PIPE,
            env={**os.environ, **self.environment},
            start_new_session=True,
            preexec_fn=ends_with_parent(),
        )
        if self.log_path is None:
            return await begin()
        with open(self.log_path, "ab") as lines:
            return await begin(stderr=lines)

    def next_pause_s(self) -> float:
        """How long to wait before it is started again: longer and longer while it does not live for long."""
        if time.monotonic() - self._since > _GOOD_LIFE_S:
            self._pause_s = _FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs.

        By ``os.kill``: of one that has just ended ``Process.send_signal`` may take the exit code, for which another
        part waits (CPython's issue 87744).
        """
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class Supervisor:
    """``metadata_url`` is that of the store which the brokers share."""

    def __init__(
        self,
        members: Sequence[Member],
        metadata_url: str,
        session_timeout_ms: int,
        *,
        restarts: bool,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.members = members
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self.failed: Member | None = None  # whose start ended all
        self._database = metadata_url[len(_SQLITE) :] if metadata_url.startswith(_SQLITE) else None
        self._timeout_s = session_timeout_ms / 1000
        self._restarts = restarts
        self._on_change = on_change
        self._all_serve = asyncio.Event()
        self._is_urgent = asyncio.Event()  # nobody is to stop cleanly any more
        self._first_stop_at: float | None = None

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Start all and keep them until SIGTERM or SIGINT, the second of which kills; the exit code.

        ``on_ready()`` is called once all serve.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._hear_signal)
        lives = [asyncio.ensure_future(self._keep(member)) for member in self.members]
        watch = asyncio.ensure_future(self._watch_writers())
        stop = asyncio.ensure_future(self.stopping.wait())
        ready = asyncio.ensure_future(self._all_serve.wait())
        try:
            await asyncio.wait((ready, stop), return_when=asyncio.FIRST_COMPLETED)
            if not self.stopping.is_set():
                on_ready()
            await stop
        finally:
            for task in (watch, ready, stop):
                task.cancel()
            self.stopping.set()
            await self._stop_all(lives)
        return self.exit_code

    def _hear_signal(self) -> None:
        now = time.monotonic()
        if self._first_stop_at is None:
            self._first_stop_at = now
            self.stopping.set()
        elif now - self._first_stop_at >= _SAME_SIGNAL_S:
            self._is_urgent.set()

    async def _keep(self, member: Member) -> None:
        has_served = False
        await self._until_free(member)
        while not self.stopping.is_set():
            try:
                await member.live(self._note)
            except OSError as error:
                log.error("%s cannot be started: %s", member.name, error)
            has_served = has_served or bool(member.address)
            if self.stopping.is_set():
                return
            if not has_served:
                log.error("%s %s before it served", member.name, member.end)
                self.exit_code, self.failed = 1, member
                self.stopping.set()
            elif self._restarts:
                pause_s = member.next_pause_s()
                log.warning("%s %s; it starts again in %.1f s", member.name, member.end, pause_s)
                await self._until(self.stopping, pause_s)
            else:
                log.warning("%s %s", member.name, member.end)
                await self._until_wanted(member)

    async def _until_free(self, member: Member) -> None:
        """Wait for the broker before it, which may still stop; where that lasts, the start says what is the matter."""
        give_up_at, is_logged = time.monotonic() + _ORPHAN_TIMEOUT_S, False
        while member.is_preceded:
            if self.stopping.is_set() or time.monotonic() > give_up_at:
                return
            if not is_logged:
                log.warning("%s waits: another broker has its data still", member.name)
                is_logged = True
            await self._until(self.stopping, _LOCK_LOOK_S)

    def _note(self) -> None:
        for member in self.members:
            if self.stopping.is_set():
                member.signal(signal.SIGTERM)  # it was being started
        if all(member.serves for member in self.members):
            self._all_serve.set()
        self._on_change()

    async def _until_wanted(self, member: Member) -> None:
        either = [asyncio.ensure_future(event.wait()) for event in (member.wanted, self.stopping)]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for task in either:
            task.cancel()

    @staticmethod
    async def _until(event: asyncio.Event, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), timeout_s)

    async def _stop_all(self, lives: Sequence[asyncio.Future[None]]) -> None:
        for member in self.members:
            member.signal(signal.SIGTERM)
            member.signal(signal.SIGCONT)  # one that is stopped heeds nothing else
        ended = asyncio.ensure_future(asyncio.wait(lives))
        urgent = asyncio.ensure_future(self._is_urgent.wait())
        await asyncio.wait((ended, urgent), timeout=_STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        why = "before it had stopped" if self._is_urgent.is_set() else f"not stopped after {_STOP_TIMEOUT_S:.0f} s"
        urgent.cancel()
        for member in self.members:
            if member.pid is not None and not ended.done():
                log.error("%s (process %d) was killed: %s", member.name, member.pid, why)
                member.signal(signal.SIGKILL)
        await ended

    async def _watch_writers(self) -> None:
        """Kill a broker that was stopped in the middle of a write for longer than a session lasts."""
        since: dict[int, float] = {}
        while True:
            await asyncio.sleep(self._timeout_s / 4)
            writer = self._stopped_writer()
            now = time.monotonic()
            since = {} if writer is None or writer.pid is None else {writer.pid: since.get(writer.pid, now)}
            if writer is not None and writer.pid is not None and now - since[writer.pid] >= self._timeout_s:
                log.error("%s (process %d) was stopped while it writes metadata: killed", writer.name, writer.pid)
                writer.signal(signal.SIGKILL)

    def _stopped_writer(self) -> Member | None:
        stopped = {member.pid: member for member in self.members if member.pid is not None and is_stopped(member.pid)}
        if self._database is None or not stopped:
            return None
        from pybroker.public import is_locked, read_writer

        writer = read_writer(self._database)
        member = None if writer is None else stopped.get(writer.pid)
        return member if member is not None and is_locked(self._database) else None
