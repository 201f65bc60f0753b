"""A raw client for tests against a broker: message objects over one connection, and the requests they send most."""

from __future__ import annotations

from typing import Any

from harness.wire import Client

from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pybroker_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


class WireClient(Client):
    """A connection that also makes topics, produces and fetches."""

    def create_topic(self, name: str) -> None:
        """Make a topic with the broker's defaults; it is there when this returns."""
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
        (result,) = self.ask(CreateTopicsRequest(topics=[topic], validate_only=False), 5).topics
        assert result.error_code == 0, result

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, version: int = 9, acks: int = -1
    ) -> PartitionProduceResponse:
        """Produce one batch; the partition's answer."""
        response: ProduceResponse = self.ask(produce_request(topic, records, partition, acks), version)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **options: Any) -> FetchResponse:
        """Fetch one partition without a session."""
        response: FetchResponse = self.ask(fetch_request(topic, offset, partition, **options), version)
        return response


def produce_request(topic: str, records: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A request with one batch for one partition."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_request(
    topic: str, offset: int, partition: int = 0, *, partition_max_bytes: int = 1 << 20, **options: Any
) -> FetchRequest:
    """A request for one partition; ``options`` are the request's own fields."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    fields = {"max_wait_ms": 0, "min_bytes": 1, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], **fields)
