"""The shards of one coordinator on this broker.

Owns: which partitions of the internal topic are led here, which of them are still loading, and who may ask them.
Owns no rule of any group (the states have those) and no order of operations (``shard.py``).

Partitions are loaded one after another, each in slices of about two milliseconds of the loop's time; until its turn
is over a shard answers COORDINATOR_LOAD_IN_PROGRESS.

Counterpart in Kafka: ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from pybroker.coordinators.loader import Loader
from pybroker.coordinators.ports import PartitionReader, PartitionWriter
from pybroker.coordinators.result import Waiter
from pybroker.coordinators.shard import Operation, Shard
from pybroker.coordinators.state import CoordinatorState
from pybroker.env import Env
from pybroker_protocol.errors import ErrorCode

S = TypeVar("S", bound=CoordinatorState)


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator on this broker.

    ``new_state()`` makes the empty state of a shard; ``write_timeout_ms`` is how long a response may wait for the
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
        self._topic = topic
        self._writer = writer
        self._reader = reader
        self._new_state = new_state
        self._write_timeout_ms = write_timeout_ms
        self._shards: dict[int, Shard[S]] = {}
        self._to_load: deque[Shard[S]] = deque()
        self._loading: Shard[S] | None = None

    def on_leadership(self, gained: Iterable[int], lost: Iterable[int]) -> None:
        """Start to load the partitions that this broker leads now, drop those that it does not lead any more."""
        for partition in sorted(lost):
            shard = self._shards.pop(partition, None)
            if shard is not None:
                shard.close()
        if self._loading is not None and self._loading.closed:
            self._loading = None
        for partition in sorted(gained):
            if partition not in self._shards:
                self._shards[partition] = self._new_shard(partition)
        self._load_next()

    def _new_shard(self, partition: int) -> Shard[S]:
        shard = Shard(
            self._env, self._writer, self._topic, partition, self._new_state(partition), self._write_timeout_ms
        )
        start_offset, end_offset = self._reader.log_range(self._topic, partition)
        if start_offset == end_offset:
            # Most partitions of a young cluster: nothing to load, so nobody is told to wait.
            shard.activate(end_offset)
            return shard
        shard.loader = Loader(self._env, self._reader, self._topic, partition, shard.state, start_offset, end_offset)
        self._to_load.append(shard)
        return shard

    def _load_next(self) -> None:
        """Begin with the next partition when none is being loaded."""
        if self._loading is not None:
            return
        while self._to_load:
            shard = self._to_load.popleft()
            if not shard.closed and shard.loader is not None:
                self._loading = shard
                shard.loader.start(partial(self._loaded, shard))
                return

    def _loaded(self, shard: Shard[S]) -> None:
        self._loading = None
        if not shard.closed:
            assert shard.loader is not None
            shard.activate(shard.loader.end_offset)
        self._load_next()

    # --- asking ---------------------------------------------------------------------------------------------------

    def submit(self, partition: int, operation: Operation[S], waiter: Waiter) -> None:
        """Run the operation on the partition's shard, or answer why that cannot be done here and now."""
        shard = self._shards.get(partition)
        if shard is None:
            waiter.done(waiter.error(ErrorCode.NOT_COORDINATOR))
        elif shard.loader is not None:
            waiter.done(waiter.error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            shard.submit(operation, waiter)

    def submit_to_all(self, operation: Operation[S]) -> None:
        """Run the operation on every active shard, with nobody waiting."""
        for shard in list(self._shards.values()):
            if shard.loader is None:
                shard.submit(operation, None)

    @property
    def partitions(self) -> list[int]:
        """The partitions that this broker leads, loading ones included."""
        return sorted(self._shards)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a partition moved."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.on_high_watermark(high_watermark)

    def close(self) -> None:
        """Drop all shards; everybody who waits is answered."""
        self.on_leadership((), tuple(self._shards))
