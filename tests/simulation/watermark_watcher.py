"""A client that asks where logs end, again and again: what it sees never goes back.

Kafka counterpart: ``KafkaConsumer.endOffsets``; KIP-207 and KIP-320 are what makes the promise hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.client import Disconnected
from tests.simulation.cluster_client import LEADER_IS_ELSEWHERE
from tests.simulation.consuming import Partition
from tests.simulation.model import check

if TYPE_CHECKING:
    from tests.simulation.run import Run

LATEST = -1


class WatermarkWatcher:
    """One question at a time, for all partitions."""

    def __init__(self, simulation: Run, name: str, partitions: list[Partition]) -> None:
        self.simulation = simulation
        self.name = name
        self.client = simulation.client(name)
        self.partitions = partitions
        self.seen: dict[Partition, int] = {}

    async def run(self) -> None:
        """Ask until the end of the run."""
        while not self.simulation.leaving:
            try:
                await self._ask()
            except Disconnected:
                await self.client.sleep(100)
            await self.client.sleep(50)

    async def _ask(self) -> None:
        topics = [
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
            for topic, index in self.partitions
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        response = await self.client.ask(request, 7, 3_000)
        for topic in response.topics:
            for answer in topic.partitions:
                self._hear((topic.name, answer.partition_index), answer.error_code, answer.offset)

    def _hear(self, part: Partition, error_code: int, offset: int) -> None:
        if error_code:
            known = error_code in LEADER_IS_ELSEWHERE
            check(known, "a client can ask where a log ends", f"{part[0]}-{part[1]}: error {error_code}")
            return
        before = self.seen.get(part, 0)
        check(
            offset >= before,
            "the high watermark never goes back in what a client sees",
            f"{part[0]}-{part[1]}: from {before} to {offset}",
        )
        self.seen[part] = offset
