"""What a client gets that is over its quota, and what others beside it notice.

Run it with ``.venv/bin/python -m bench.quota_share``.

Owns: one broker as a process, a producer and a consumer that take what they can get and are held to quotas, and one
other producer, whose latency is measured alone and beside them.  Prints the shares of the quotas over the last minute,
and both p99.  A window of Kafka's quotas lets a burst through when it ends: begin and end of the minute matter.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from harness.batches import batch
from harness.pybroker_process import PybrokerProcess
from harness.wire import Client

from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

QUOTA = 1 << 20
BATCH_BYTES = 16 << 10
WARM_UP_S, MEASURED_S, ALONE_S = 24.0, 60.0, 20.0
TOPIC = "t"
PAUSE_S = 0.002


def produce_request(size: int) -> ProduceRequest:
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch(bytes(range(256)) * (size // 256)))]
    )
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[data])


class Taker(threading.Thread):
    """Takes all that it gets, and notes when it got how much."""

    def __init__(self, address: tuple[str, int], produces: bool) -> None:
        super().__init__(daemon=True)
        self.got: list[tuple[float, int]] = []
        self._client = Client(address, timeout_s=120, client_id="greedy")
        self._produces = produces
        self.ends = time.monotonic() + WARM_UP_S + MEASURED_S

    def run(self) -> None:
        request = produce_request(BATCH_BYTES)
        frame_bytes = len(self._client.frame(request, 9)) - 4
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=BATCH_BYTES)
        fetch = FetchRequest(
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])], max_wait_ms=100, min_bytes=1, isolation_level=0
        )
        while time.monotonic() < self.ends:
            if self._produces:
                self._client.ask(request, 9)
                size = frame_bytes
            else:
                reply = self._client.ask(fetch, 12)
                size = sum(len(each.records) for topic in reply.responses for each in topic.partitions)
            self.got.append((time.monotonic(), size))

    def share(self) -> float:
        """Of the quota, over the last minute."""
        begins = self.ends - MEASURED_S
        return sum(size for at, size in self.got if begins <= at < self.ends) / (QUOTA * MEASURED_S)


def p99_ms(address: tuple[str, int], seconds: float) -> float:
    """Of small produces, one at a time, with pauses."""
    took = []
    request = produce_request(256)
    with Client(address, client_id="other") as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            begun = time.perf_counter()
            client.ask(request, 9)
            took.append(time.perf_counter() - begun)
            time.sleep(PAUSE_S)
    took.sort()
    return took[len(took) * 99 // 100] * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, PybrokerProcess(Path(directory)) as broker:
        address = broker.host, broker.port
        with Client(address, client_id="admin") as admin:
            admin.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name=TOPIC)]), 9)
            time.sleep(1)
            admin.ask(produce_request(BATCH_BYTES), 9)
            alone = p99_ms(address, ALONE_S)
            operations = [
                OpData(key=key, value=float(QUOTA), remove=False)
                for key in ("producer_byte_rate", "consumer_byte_rate")
            ]
            entity = [AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name="greedy")]
            entry = AlterClientQuotasRequestEntryData(entity=entity, ops=operations)
            told = admin.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert told.entries[0].error_code == 0, told
        takers = [Taker(address, produces) for produces in (True, False)]
        for taker in takers:
            taker.start()
        time.sleep(WARM_UP_S)
        beside = p99_ms(address, MEASURED_S - 2)
        for taker in takers:
            taker.join()
        print(f"produced {takers[0].share():.3f} of the quota, fetched {takers[1].share():.3f}")
        print(f"p99 of another client: {alone:.2f} ms alone, {beside:.2f} ms beside them")


if __name__ == "__main__":
    main()
