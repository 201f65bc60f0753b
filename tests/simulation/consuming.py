"""What every simulated consumer does, whatever its group's protocol: fetch, check, process, find and commit positions.

Owns the client's side of Fetch without sessions (read_committed filtering included) and of OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.client import Client
from tests.simulation.model import Batch, batches_of, check

if TYPE_CHECKING:
    from tests.simulation.run import Run

Partition = tuple[str, int]


async def find_coordinator(client: Client, key: str, key_type: int = 0) -> None:
    """Wait until the coordinator's topic is there."""
    while True:
        response = await client.insist(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        if response.coordinators[0].error_code == 0:
            return
        await client.sleep(100)


def committed_records(batches: list[Batch], aborted: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """What a read_committed consumer gives its user: control records and aborted transactions left out.

    ``aborted`` is the reply's list of (producer id, first offset); Kafka's CompletedFetch has the same rule.
    """
    waiting = sorted(aborted, key=lambda entry: entry[1])
    aborting: set[int] = set()
    found = []
    for batch in batches:
        while waiting and waiting[0][1] <= batch.last_offset:
            aborting.add(waiting.pop(0)[0])
        if batch.is_control:
            if batch.aborts:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            found += [(offset, value) for offset, _, value in batch.records()]
    return found


class Consuming:
    """The data side of one consumer; ``positions`` are what it reads next, ``epochs`` those of what it read last.

    Epochs are committed with offsets, so that who goes on from there asks no leader that was one before (KIP-320).
    """

    def __init__(self, simulation: Run, client: Client, group: str, read_committed: bool) -> None:
        self.simulation = simulation
        self.client = client
        self.group = group
        self.read_committed = read_committed
        self.positions: dict[Partition, int] = {}
        self.epochs: dict[Partition, int] = {}

    async def fetch_committed(
        self, partitions: list[Partition], member_id: str | None = None, epoch: int = -1
    ) -> dict[Partition, int] | int:
        """The committed offsets, -1 for none; or the error code of the group."""
        model, wanted = (
            self.simulation.model,
            [OffsetFetchRequestTopics(name=t, partition_indexes=[p]) for t, p in partitions],
        )
        asked = OffsetFetchRequestGroup(group_id=self.group, member_id=member_id, member_epoch=epoch, topics=wanted)
        registers = {part: model.committed(self.group, *part) for part in partitions}
        known = {part: (register.impossible_now, register.must_be_there) for part, register in registers.items()}
        version = 9 if member_id is not None else 8
        response = await self.client.ask(OffsetFetchRequest(groups=[asked], require_stable=True), version)
        group = response.groups[0]
        if group.error_code:
            return int(group.error_code)
        found: dict[Partition, int] = {}
        now_us = self.simulation.scheduler.now_us
        is_current = self.simulation.is_current(self.client, self.group)
        for topic in group.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    return int(answer.error_code)
                part = (topic.name, answer.partition_index)
                offset, register = answer.committed_offset, registers[part]
                self.epochs[part] = answer.committed_leader_epoch
                self.client.saw_epoch(part, answer.committed_leader_epoch)
                if is_current:
                    register.fetched(answer.metadata or "", offset, *known[part])
                    if offset >= 0:
                        register.acknowledge(answer.metadata, now_us)
                found[part] = offset
        return found

    async def commit(
        self, client: Client, request: OffsetCommitRequest, version: int, refusals: AbstractSet[int]
    ) -> int:
        """Commit the positions by a request that says who commits; the first error code in its answer.

        ``refusals`` are the codes that say that a commit did not happen.
        """
        names = {}
        for (topic, index), offset in self.positions.items():
            register = self.simulation.model.committed(self.group, topic, index)
            names[topic, index] = name = register.send(offset, self.simulation.scheduler.now_us)
            partition = OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=self.epochs.get((topic, index), -1),
                committed_metadata=name,
            )
            request.topics.append(OffsetCommitRequestTopic(name=topic, partitions=[partition]))
        response = await client.ask(request, version)
        code = 0
        for answered in response.topics:
            for answer in answered.partitions:
                part = (answered.name, answer.partition_index)
                register = self.simulation.model.committed(self.group, *part)
                code = code or answer.error_code
                if answer.error_code == 0:
                    register.acknowledge(names[part], self.simulation.scheduler.now_us)
                elif answer.error_code in refusals:
                    register.refuse(names[part])
        return code

    async def poll(self, max_wait_ms: int = 200) -> list[tuple[Partition, int, bytes]]:
        """Fetch once from all positions, which move; the records, checked against what was written.

        Raises ``Disconnected``.
        """
        if not self.positions:
            await self.client.sleep(max_wait_ms)
            return []
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=64 << 10)],
            )
            for (topic, index), offset in self.positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, isolation_level=int(self.read_committed), topics=topics
        )
        response = await self.client.ask(request, 12)
        polled: list[tuple[Partition, int, bytes]] = []
        for topic in response.responses:
            for answer in topic.partitions:
                part = (topic.topic, answer.partition_index)
                if part in self.positions:
                    polled += [(part, offset, value) for offset, value in self.take(part, answer)]
        return polled

    def take(self, part: Partition, answer: Any) -> list[tuple[int, bytes]]:
        position = self.positions[part]
        if answer.error_code:
            known = answer.error_code in self.simulation.retried
            check(known, "a position that was read is in the log", f"{part} at {position}: error {answer.error_code}")
            return []
        log = self.simulation.model.log(*part)
        batches = [batch for batch in batches_of(bytes(answer.records or b"")) if batch.last_offset >= position]
        if not batches:
            return []
        aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or []]
        if self.read_committed:
            records = committed_records(batches, aborted)
        else:
            records = [(o, v) for batch in batches if not batch.is_control for o, _, v in batch.records()]
        end = batches[-1].last_offset + 1
        records = [(offset, value) for offset, value in records if offset >= position]
        log.check_read(records, position, end, self.read_committed)
        self.positions[part] = end
        self.epochs[part] = batches[-1].leader_epoch
        return records


GROUP_IS_ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.REQUEST_TIMED_OUT,
}
