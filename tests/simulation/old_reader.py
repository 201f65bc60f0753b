"""A reader that knows no leader epochs: it believes whatever broker it asks, and asks one after another.

Kafka counterpart: clients from before KIP-320, and aiokafka.
"""

from __future__ import annotations

from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.client import Disconnected
from tests.simulation.cluster_client import ClusterClient
from tests.simulation.processes import PORT
from tests.simulation.transactions import Reader

TIMEOUT_MS = 4_000


class OldReader(Reader):
    """Reads all partitions of one topic, each time from whom some broker names as their leader."""

    async def run(self) -> None:
        """Read until the end of the run."""
        self.data.positions = dict.fromkeys(self.partitions, 0)
        random = self.simulation.new_random()
        while not self.simulation.leaving:
            process = random.choice(self.simulation.processes)
            try:
                await self._read_by((process.host, PORT))
            except Disconnected:
                await self.client.sleep(50)
            await self.client.sleep(20)

    async def _read_by(self, address: tuple[str, int]) -> None:
        client, topic = self.client, self.partitions[0][0]
        assert isinstance(client, ClusterClient)
        asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name=topic)])
        told = await client.ask_broker(address, asked, 12, TIMEOUT_MS)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in told.brokers}
        for found in told.topics[0].partitions:
            part = topic, found.partition_index
            if found.leader_id not in brokers:
                continue
            wanted = FetchPartition(
                partition=part[1], fetch_offset=self.data.positions[part], partition_max_bytes=64 << 10
            )
            topics = [FetchTopic(topic=topic, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=0, topics=topics)
            fetched = await client.ask_broker(brokers[found.leader_id], request, 12, TIMEOUT_MS)
            for answer in fetched.responses[0].partitions:
                self.data.take(part, answer)
