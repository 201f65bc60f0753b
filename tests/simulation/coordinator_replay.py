"""What a coordinator's partition says, read off from its files, and what the coordinator knows.

Owns: the comparison, as a coordinator has loaded a partition and at rest.  The records are read by the tests' own
reader and taken in by an empty shard, so that what is looked for is what was not read, or read and forgotten: the rules
of what a record means are the shard's own, and are tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker.coordinators.runtime import CoordinatorRuntime
from tests.simulation.model import REACHED, Batch, check, read_directory

if TYPE_CHECKING:
    from tests.simulation.processes import Process

COORDINATORS = "a coordinator knows what its partition says"
NO_PRODUCER = -1


@contextmanager
def watching(process: Callable[[], Process]) -> Iterator[None]:
    """Compare each partition that a coordinator of the running process, ``process()``, has just loaded.

    It has to have what its log had when it began to load: nothing else is written until it serves.
    """
    begin, activate = CoordinatorRuntime._begin, CoordinatorRuntime._activate
    ends: dict[tuple[Any, int], int] = {}

    def begins(self: Any, partition: int) -> None:
        log = _log(process(), self._topic, partition)
        ends[self, partition] = 0 if log is None else log.log_end_offset
        begin(self, partition)

    def activates(self: Any, context: Any, log_end_offset: int) -> None:
        end_offset = ends.pop((self, context.partition))
        log = _log(process(), self._topic, context.partition)
        REACHED["a coordinator has loaded what is not committed"] += log is not None and log.high_watermark < end_offset
        check_shard(process(), self, context, end_offset)
        activate(self, context, log_end_offset)

    with patch.object(CoordinatorRuntime, "_begin", begins), patch.object(CoordinatorRuntime, "_activate", activates):
        yield


def check_at_rest(process: Process) -> None:
    """Compare all that the coordinators of a broker have loaded, where nothing is being written."""
    services: Any = process.server and process.server.services
    for name in ("groups", "transactions"):
        coordinator = getattr(services, name, None)
        runtime: Any = coordinator and coordinator._runtime
        for partition, context in list(runtime._contexts.items()) if runtime else ():
            log = _log(process, runtime._topic, partition)
            if context.loader is None and log is not None and context.written_end == log.log_end_offset:
                check_shard(process, runtime, context, log.log_end_offset)


def check_shard(process: Process, runtime: Any, context: Any, end_offset: int) -> None:
    """Compare one shard with its partition's records below ``end_offset``."""
    log = _log(process, runtime._topic, context.partition)
    if log is None or end_offset == 0:
        return
    expected = runtime._new_state(context.partition)
    for batch in read_directory(log.path):
        if batch.base_offset < end_offset:
            _replay(expected, batch)
    moving = _moving_groups(context.state)
    known, said = _content(context.state, moving), _content(expected, moving)
    wrong = [key for key in {**known, **said} if known.get(key) != said.get(key)]
    where = f"{runtime._topic}-{context.partition} on {process.name}"
    check(
        not wrong,
        COORDINATORS,
        f"{where}, up to {end_offset}: {[(key, known.get(key), said.get(key)) for key in wrong[:3]]}",
    )


def _log(process: Process, topic: str, partition: int) -> Any:
    server: Any = process.server
    there = server._logs._logs.get((topic, partition))
    return None if there is None else there.opened


def _replay(state: Any, batch: Batch) -> None:
    if batch.is_control:
        for _, key, _ in batch.records():
            state.replay_end_transaction(batch.producer_id, key[2:4] == b"\0\1")
        return
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
    for offset, key, value in batch.records():
        state.replay(key, value or None, offset, producer_id, 0)


def _moving_groups(state: Any) -> set[str]:
    """Classic groups between two generations: what they have then is in no record."""
    groups = state.groups.items() if isinstance(state, GroupCoordinatorShard) else ()
    return {
        group_id
        for group_id, group in groups
        if isinstance(group, ClassicGroup) and group.state not in (ClassicState.STABLE, ClassicState.EMPTY)
    }


def _content(state: Any, moving: AbstractSet[str]) -> dict[Any, Any]:
    """What the log keeps of a shard's state."""
    if not isinstance(state, GroupCoordinatorShard):
        return {key: txn._replace(last_producer_epoch=-1) for key, txn in state.transactions.items()}
    offsets = state.offsets
    content: dict[Any, Any] = {
        ("offsets", group_id, topic): dict(kept.values)
        for group_id, topics in offsets._by_group.items()
        for topic, kept in topics.items()
    }
    content["pending"] = {key: pending for key, pending in offsets._pending.items() if pending}
    for group_id, group in state.groups.items():
        if isinstance(group, ConsumerGroup):
            content["group", group_id] = group.group_epoch, group.assignment_epoch, group.members, group.target
        elif isinstance(group, ClassicGroup) and group.generation_id and group_id not in moving:
            assigned = {member_id: bytes(member.assignment) for member_id, member in group.members.items()}
            content["group", group_id] = group.generation_id, assigned
    return content
