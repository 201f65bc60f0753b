"""What every run has: a world, a model, phases, clients that work in it, and an outcome.

Owns: the frame of a run from the temporary directory to the verdict, what clients share (the model, what was processed,
whether the calm time has come), and the checks at the end of a run that go by the model alone.  Owns no scenario
(``simulation``, ``cluster_simulation``).

Phases: the active one (clients work, faults strike), the calm one (faults have ended and everybody comes to rest:
producers are acknowledged, groups have read everything, transactions have ended), the end (members leave, nothing is
parked, every broker stops cleanly and finds everything again).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pybroker_protocol.errors import ErrorCode
from tests.simulation.client import Client, Disconnected
from tests.simulation.consuming import Consuming
from tests.simulation.model import CHECKED, REACHED, Model, Violation, check
from tests.simulation.processes import Process, World
from tests.simulation.producers import RETRIED

CALM_MS_MAX = 180_000  # of virtual time: everything has to come to rest within
STEPS_MAX = 400_000
TOPIC = "events"
OUTPUTS = "outputs"
PARTITIONS = 3
# What a request may have left behind is gone by then: the first protocol cannot tell it from the next transaction's.
LATE_REQUESTS_MS = 5_000


class Outcome(NamedTuple):
    """How a run ended."""

    seed: int
    steps: int
    virtual_ms: int
    trace_hash: str
    faults: dict[str, int]
    lives: int
    batches: int
    violation: Violation | None
    checked: dict[str, int]  # how often each invariant was
    reached: dict[str, int]  # how often each rare state was


class _Complaints(logging.Handler):
    """Exceptions that the broker caught and logged: none is expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and self.first is None:
            self.first = f"{record.getMessage()}: {record.exc_info[1]!r}"


class Run:
    """See the module's docstring.  A kind of run says what ``_run`` and ``_fault_counts`` are."""

    def __init__(
        self,
        seed: int,
        active_ms: int,
        write_trace: Callable[[str], None] | None = None,
        steps_max: int = STEPS_MAX,
        world: World | None = None,
    ) -> None:
        """``world``: that of another run, in which this one is a part; else it has one of its own."""
        self.seed = seed
        self.world = World(seed, write_trace) if world is None else world
        self.processes: list[Process] = []  # the brokers, by their ids
        self.scheduler, self.network = self.world.scheduler, self.world.network
        self.random = self.world.random
        self.model = Model()
        self.calm = False  # faults have ended
        self.leaving = False  # members leave
        self.large_batches = False
        self.retried: AbstractSet[int] = RETRIED  # the errors that a client tries again after
        self.late_requests_ms = LATE_REQUESTS_MS
        self.topic_ids: dict[str, bytes] = {}
        self.read_committed: dict[str, bool] = {}  # by group
        self.processed: dict[str, dict[tuple[tuple[str, int], bytes], str]] = {}
        self._active_ms = active_ms
        self._steps_max = steps_max
        self._root = Path(tempfile.mkdtemp(prefix="pybroker-sim-", dir=_memory_dir()))
        self._complaints = _Complaints()
        self._finished = False

    def new_random(self) -> Random:
        """A source of chance of its own, so that one part's draws do not move another's."""
        return self.world.new_random()

    def pause_ms(self, random: Random, pauses_ms: Sequence[int]) -> int:
        """How long a client rests, one of ``pauses_ms``; in the calm time, when all is to be finished, the shortest."""
        drawn = random.choice(pauses_ms)
        return min(pauses_ms) if self.calm else drawn

    def trace(self, who: str, what: str) -> None:
        """One line of the trace."""
        self.scheduler.trace(who, what)

    def client(self, name: str) -> Client:
        """A client's way to the brokers of this run."""
        return Client(name, self.network)

    def may_be_fenced(self) -> bool:
        """Whether a transaction may be lost for no fault of its producer's."""
        return False

    def is_current(self, client: Client, group: str) -> bool:
        """Whether who answered a client for a group is its coordinator, and not one that was."""
        return True

    def knows_members(self, client: Client, group: str) -> bool:
        """Whether what a client has just been told of a group's members can be judged by ``members_of``."""
        return not client.server_has_died

    def members_of(self, group: str) -> set[str]:
        """The members that the coordinator counts to a KIP-848 group."""
        return self._members_at(self.processes, group)

    @staticmethod
    def _members_at(processes: list[Process], group: str) -> set[str]:
        for process in processes:
            services = process.server and process.server.services
            coordinator: Any = services and getattr(services, "groups", None)
            for shard in coordinator._runtime._contexts.values() if coordinator else ():
                found = shard.state.groups.get(group)
                if found is not None:
                    return set(found.members)
        return set()

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        gc_was_enabled = gc.isenabled()
        gc.disable()  # whether a map is still referred to must not hang on the collector's mood
        violation = None
        CHECKED.clear()
        REACHED.clear()
        try:
            with self._installed():
                try:
                    self._run()
                except Violation as found:
                    violation = found
                except Exception as error:
                    violation = Violation("nothing fails unexpectedly", "".join(traceback.format_exception(error)))
                finally:
                    if violation is not None:
                        self.trace("VIOLATION", str(violation))
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
            if gc_was_enabled:
                gc.enable()
        return Outcome(
            self.seed,
            self.scheduler.steps,
            self.scheduler.now_us // 1000,
            self.scheduler.trace_hash,
            self._fault_counts(),
            sum(process.lives for process in self.world.processes),
            sum(len(log.batches) for log in self.model.logs.values()),
            violation,
            dict(CHECKED),
            dict(REACHED),
        )

    def _replaced(self) -> AbstractContextManager[object]:
        """What else is put in place of the real thing during the run."""
        return nullcontext()

    def _run(self) -> None:
        raise NotImplementedError

    def _fault_counts(self) -> dict[str, int]:
        raise NotImplementedError

    def _check_step(self) -> None:
        """What holds after every event of any run."""
        scheduler = self.scheduler
        if scheduler.failure is not None:
            self.world.raise_failure()
        if self._complaints.first is not None:
            raise Violation("the broker meets no unexpected error", self._complaints.first)
        if scheduler.steps >= self._steps_max:
            raise Violation("everything comes to rest", f"{scheduler.steps} events were not enough")

    @contextmanager
    def _installed(self) -> Iterator[None]:
        logger = logging.getLogger("pybroker")
        before = (logger.level, logger.propagate)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        logger.addHandler(self._complaints)
        try:
            with self.world.installed(), self._replaced():
                yield
        finally:
            logger.removeHandler(self._complaints)
            # Not by assignment: what the loggers below remember of the level would stay.
            logger.setLevel(before[0])
            logger.propagate = before[1]

    # --- coming to rest ----------------------------------------------------------------------------------------------

    async def _within(self, tasks: list[asyncio.Task[Any]], what: str) -> None:
        """Wait for the tasks; it must not take longer than a calm time may."""
        deadline_us = self.scheduler.now_us + CALM_MS_MAX * 1000
        admin = self.client("watch")
        while not all(task.done() for task in tasks):
            check(self.scheduler.now_us < deadline_us, "everything comes to rest", f"not in time: {what}")
            await admin.sleep(100)

    async def _caught_up(self, admin: Client, group: str) -> None:
        """Wait until the group's committed offsets are behind all that it may read."""
        deadline_us = self.scheduler.now_us + CALM_MS_MAX * 1000
        data = Consuming(self, admin, group, read_committed=False)
        partitions = [(TOPIC, index) for index in range(PARTITIONS)]
        while True:
            try:
                found = await data.fetch_committed(partitions)
            except Disconnected:
                found = int(ErrorCode.NETWORK_EXCEPTION)
            careful = self.read_committed.get(group, True)
            ends = {part: self.model.log(*part).readable_end(careful) for part in partitions}
            if not isinstance(found, int) and all(max(found.get(part, 0), 0) >= ends[part] for part in partitions):
                return
            check(
                self.scheduler.now_us < deadline_us,
                "everything comes to rest",
                f"{group} has not read everything: {found} of {ends}",
            )
            await admin.sleep(500)

    async def _at_rest(self, admin: Client, topic: str | None = None) -> None:
        """Wait until no transaction is open any more, in a topic or in all: those of the dead end by their timeout."""
        deadline_us = self.scheduler.now_us + CALM_MS_MAX * 1000
        logs = self.model.logs
        while hanging := [
            log.name for (name, _), log in logs.items() if log.open_transactions and topic in (None, name)
        ]:
            check(self.scheduler.now_us < deadline_us, "no transaction hangs", f"open in {hanging}")
            await admin.sleep(500)

    def _check_processed(self) -> None:
        """Every record was read by every group at least once, those of aborted transactions by no careful one."""
        for group, processed in self.processed.items():
            careful = self.read_committed[group]
            for (topic, index), log in self.model.logs.items():
                if topic != TOPIC:
                    continue
                for value, offset in log.offset_of.items():
                    visible = log.is_visible(offset) or not careful
                    check(
                        visible == (((topic, index), value) in processed),
                        "a group reads every record at least once, and no aborted one",
                        f"{group}: {value[:40]!r} at offset {offset} of {log.name}, visible: {visible}",
                    )

    def _check_transformed(self, group: str) -> None:
        """Every visible input has exactly one visible output."""
        visible: dict[bytes, int] = {}
        for (topic, _), log in self.model.logs.items():
            if topic == OUTPUTS:
                for value, offset in log.offset_of.items():
                    if value.startswith(b"out:%s:" % group.encode()) and log.is_visible(offset):
                        origin = value.partition(b"@")[0]
                        visible[origin] = visible.get(origin, 0) + 1
        for (topic, index), log in self.model.logs.items():
            if topic == TOPIC:
                for offset in log.values:
                    origin = b"out:%s:%s-%d:%d" % (group.encode(), topic.encode(), index, offset)
                    check(
                        visible.get(origin, 0) == int(log.is_visible(offset)),
                        "each input is transformed exactly once",
                        f"{group}: {visible.get(origin, 0)} outputs of offset {offset} of {log.name}",
                    )


def _memory_dir() -> str | None:
    """A directory in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
