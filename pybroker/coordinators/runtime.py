"""The partitions of one coordinator that this broker leads.

Owns: which partitions of the internal topic are led here, which of them are still loading, and who may ask them.
Owns no rule of any group (the shards have those) and no order of operations (``coordinator_context``).

Partitions are loaded one after another, each in slices of about two milliseconds of the loop's time; until its turn is
over a partition answers COORDINATOR_LOAD_IN_PROGRESS.  A partition that cannot be read to its end has no context: it
answers NOT_COORDINATOR, holds up no other, and is tried again after a pause that grows.

What takes long behind requests (a group's regular expressions, its assignment, a listing) has one slice of each turn of
the loop. That is so whatever the number of groups and of listings (``round_robin_work``).

Operations for all shards reach a loading one once it is loaded; if that load fails they are lost, as in Kafka.

Counterpart in Kafka: ``CoordinatorRuntime``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from pybroker.coordinators.coordinator_context import CoordinatorContext, CoordinatorOperation
from pybroker.coordinators.coordinator_ports import PartitionReader, PartitionWriter
from pybroker.coordinators.coordinator_shard import CoordinatorShard
from pybroker.coordinators.gather import Gather
from pybroker.coordinators.loader import Loader
from pybroker.coordinators.result import Waiter
from pybroker.coordinators.round_robin_work import RoundRobinWork
from pybroker.env import Cancellable, Env
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol.errors import ErrorCode

# A slice of listing groups or transactions, partition after partition of the coordinator's topic, holds the loop for
# about this long, and one partition.
LISTING_SLICE_MS = 2

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
# A partition that could not be loaded is tried again after this, and after twice as long each further time: a log dir
# may come back at once, but what is damaged stays so, and is read in vain.
LOAD_RETRY_MS = 1_000
LOAD_RETRY_MAX_MS = 60_000
LISTING = "listing"  # the kind of work that it is among those that wait for a turn


class _Failure(NamedTuple):
    """A partition that could not be loaded: when it is tried again, and after how long a pause."""

    timer: Cancellable
    delay_ms: int


class CoordinatorRuntime(Generic[S]):
    """The partitions of one coordinator that this broker leads.

    ``new_state()`` makes the empty shard of a partition; ``write_timeout_ms`` is how long a response may wait for the
    commit of what was written before it.
    """

    def __init__(
        self,
        env: Env,
        topic: str,
        writer: PartitionWriter,
        reader: PartitionReader,
        new_state: Callable[[int], S],
        write_timeout_ms: int,
    ) -> None:
        self._env = env
        self._round_robin_work = RoundRobinWork(env.timers)
        self._limited_log = RateLimitedLog(logger, env.timers)
        self._topic = topic
        self._writer = writer
        self._reader = reader
        self._new_state = new_state
        self._write_timeout_ms = write_timeout_ms
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._failures: dict[int, _Failure] = {}  # of partitions that are led, but not loaded since
        self._to_load: deque[CoordinatorContext[S]] = deque()
        self._loading: CoordinatorContext[S] | None = None

    def on_leadership(self, gained: Iterable[int], lost: Iterable[int]) -> None:
        """Start to load the partitions that this broker leads now, drop those that it does not lead any more."""
        for partition in sorted(lost):
            context = self._contexts.pop(partition, None)
            if context is not None:
                context.close()
            failure = self._failures.pop(partition, None)
            if failure is not None:
                failure.timer.cancel()
        if self._loading is not None and self._loading.closed:
            self._loading = None
        for partition in sorted(gained):
            if partition not in self._contexts and partition not in self._failures:
                self._begin(partition)
        self._load_next()

    def _begin(self, partition: int) -> None:
        """Make the partition's context, and queue it to be loaded."""
        log_range = self._reader.log_range(self._topic, partition)
        if log_range is None:
            logger.error("cannot load %s-%d: its log is not to be had", self._topic, partition)
            self._try_again_later(partition)
            return
        start_offset, end_offset = log_range
        context = self._contexts[partition] = CoordinatorContext(
            self._env,
            self._round_robin_work,
            self._limited_log,
            self._writer,
            self._topic,
            partition,
            self._new_state(partition),
            self._write_timeout_ms,
        )
        if start_offset == end_offset:
            # Most partitions of a young cluster: nothing to load, so no request waits.
            self._activate(context, end_offset)
            return
        context.loader = Loader(
            self._env, self._reader, self._topic, partition, context.state, start_offset, end_offset
        )
        self._to_load.append(context)

    def _load_next(self) -> None:
        """Begin with the next partition when none is being loaded."""
        if self._loading is not None:
            return
        while self._to_load:
            context = self._to_load.popleft()
            if not context.closed and context.loader is not None:
                self._loading = context
                context.loader.start(partial(self._loaded, context), partial(self._load_failed, context))
                return

    def _loaded(self, context: CoordinatorContext[S]) -> None:
        self._loading = None
        if not context.closed:
            assert context.loader is not None
            self._activate(context, context.loader.end_offset)
        self._load_next()

    def _activate(self, context: CoordinatorContext[S], log_end_offset: int) -> None:
        self._failures.pop(context.partition, None)
        context.activate(log_end_offset)

    def _load_failed(self, context: CoordinatorContext[S]) -> None:
        self._loading = None
        del self._contexts[context.partition]
        context.close()
        self._try_again_later(context.partition)
        self._load_next()

    def _try_again_later(self, partition: int) -> None:
        before = self._failures.get(partition)
        delay_ms = LOAD_RETRY_MS if before is None else min(2 * before.delay_ms, LOAD_RETRY_MAX_MS)
        timer = self._env.timers.call_later(delay_ms, self._try_again, partition)
        self._failures[partition] = _Failure(timer, delay_ms)

    def _try_again(self, partition: int) -> None:
        self._begin(partition)
        self._load_next()

    # --- asking ---------------------------------------------------------------------------------------------------

    def submit(self, partition: int, operation: CoordinatorOperation[S], waiter: Waiter) -> None:
        """Run the operation on the partition's context, or answer why that cannot be done here and now."""
        context = self._contexts.get(partition)
        if context is None:
            waiter.done(waiter.error(ErrorCode.NOT_COORDINATOR))
        elif context.loader is not None:
            waiter.done(waiter.error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            context.submit(operation, waiter)

    def list_all(self, operation: CoordinatorOperation[S], done: Callable[[list[Any] | int], None]) -> None:
        """Run an operation that gives back a list on all shards; ``done`` gets them as one, or an error of a partition.

        There may be very many elements: shards are asked over several turns of the loop.  As in Kafka, what a partition
        holds that could not be loaded is not listed.
        """

        def collected(parts: list[list[Any] | int]) -> None:
            found: list[Any] = []
            for part in parts:
                if part == ErrorCode.NOT_COORDINATOR:
                    continue  # lost since it was asked: what it has is listed elsewhere
                if isinstance(part, int):
                    done(part)
                    return
                found += part
            done(found)

        partitions = deque(enumerate(self.partitions))
        gather = Gather(len(partitions), collected)

        def ask_some() -> None:
            end_ms = self._env.clock.monotonic_ms() + LISTING_SLICE_MS
            while partitions:
                position, partition = partitions.popleft()
                self.submit(partition, operation, Waiter(gather.slot(position), int))
                if self._env.clock.monotonic_ms() >= end_ms and partitions:
                    self._round_robin_work.add(LISTING, ask_some)
                    return

        ask_some()

    def submit_to_all(self, operation: CoordinatorOperation[S]) -> None:
        """Run the operation on every context, for no request; on one that is loading once it is loaded."""
        for context in list(self._contexts.values()):
            context.submit(operation, None)

    @property
    def partitions(self) -> list[int]:
        """The partitions that this broker leads and that have not failed to load, loading ones included."""
        return sorted(self._contexts)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a partition moved."""
        context = self._contexts.get(partition)
        if context is not None:
            context.on_high_watermark(high_watermark)

    def close(self) -> None:
        """Drop all partitions; everybody who waits is answered."""
        self.on_leadership((), {*self._contexts, *self._failures})
        self._limited_log.close()
