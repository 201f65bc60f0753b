"""A client that takes all that its quota gives, as a process of its own: the job comes in on stdin as JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from harness.batches import batch
from harness.wire import Client

from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CLIENT_ID = "greedy"
BATCH_BYTES = 16 << 10
PRODUCE_VERSION, FETCH_VERSION = 9, 12


@dataclass(frozen=True, slots=True)
class Job:
    """What is taken, from which broker, for how long; what comes in the last ``measured_s`` counts."""

    host: str
    port: int
    topic: str
    produces: bool
    warm_up_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many bytes a quota counted: of a produce request its frame, of a fetch its records."""

    taken_bytes: int


def take(job: Job) -> Outcome:
    """One request after another."""
    request = produce_request(job.topic, BATCH_BYTES)
    fetch = _fetch_request(job.topic)
    taken_bytes = 0
    begins = time.monotonic() + job.warm_up_s
    ends = begins + job.measured_s
    with Client((job.host, job.port), timeout_s=120, client_id=CLIENT_ID) as client:
        frame_bytes = len(client.frame(request, PRODUCE_VERSION)) - 4
        while True:
            if job.produces:
                client.ask(request, PRODUCE_VERSION)
                size = frame_bytes
            else:
                reply = client.ask(fetch, FETCH_VERSION)
                size = sum(len(each.records or b"") for found in reply.responses for each in found.partitions)
            now = time.monotonic()
            if now >= ends:
                return Outcome(taken_bytes)
            if now >= begins:
                taken_bytes += size


def produce_request(topic_name: str, size: int) -> ProduceRequest:
    """One batch of one record."""
    records = batch(bytes(range(256)) * (size // 256))
    data = TopicProduceData(name=topic_name, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[data])


def _fetch_request(topic_name: str) -> FetchRequest:
    """The topic's first records, again and again."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=BATCH_BYTES)
    return FetchRequest(
        topics=[FetchTopic(topic=topic_name, partitions=[wanted])], max_wait_ms=100, min_bytes=1, isolation_level=0
    )


if __name__ == "__main__":
    json.dump(asdict(take(Job(**json.load(sys.stdin)))), sys.stdout)
