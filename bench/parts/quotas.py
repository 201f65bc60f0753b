"""What a producer and a consumer get that are held to quotas, and what another client beside them notices.

Shares are of the last minute, after the burst that a quota lets through to a client that was quiet.  Windows of Kafka's
quotas let another one through when they end: the minute may begin and end within one.
"""

from __future__ import annotations

import threading
import time

from harness.batches import batch
from harness.wire import Client

from bench.contestants import PYBROKER, Contestant, topic
from bench.context import Context
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

QUOTA = 1 << 20
BATCH_BYTES = 16 << 10
WARM_UP_S, MEASURED_S, ALONE_S = 24.0, 60.0, 20.0
OTHERS_PAUSE_S = 0.002
PRODUCE_VERSION, FETCH_VERSION = 9, 12


def run(context: Context) -> None:
    """pybroker alone, in one round of two minutes: what is judged are shares of its own quotas."""
    with context.running_one(PYBROKER) as broker:
        _measure(context, broker)


def _measure(context: Context, broker: Contestant) -> None:
    address = broker.host, broker.port
    with topic(broker, 1) as topic_name:
        with Client(address, client_id="admin") as admin:
            admin.ask(_produce(topic_name, BATCH_BYTES), PRODUCE_VERSION)
            _set_quotas(admin)
        alone_ms = _p99_ms(address, topic_name, ALONE_S)
        takers = [_Taker(address, topic_name, produces) for produces in (True, False)]
        for taker in takers:
            taker.start()
        time.sleep(WARM_UP_S)
        beside_ms = _p99_ms(address, topic_name, MEASURED_S - 2)
        for taker in takers:
            taker.join()
    for what, taker in zip(("produced", "fetched"), takers, strict=True):
        context.add(f"{what}, of the quota", "%", PYBROKER, 100 * taker.share())
    context.add("p99 of another client, alone", "ms", PYBROKER, alone_ms)
    context.add("p99 of another client, beside them", "ms", PYBROKER, beside_ms)
    context.add("p99 of another client, beside them by alone", "×", PYBROKER, beside_ms / alone_ms)


class _Taker(threading.Thread):
    """Takes all that it gets, and notes when it got how much."""

    def __init__(self, address: tuple[str, int], topic_name: str, produces: bool) -> None:
        super().__init__(daemon=True)
        self._got: list[tuple[float, int]] = []
        self._address, self._topic, self._produces = address, topic_name, produces
        self._ends = time.monotonic() + WARM_UP_S + MEASURED_S

    def run(self) -> None:
        """One request after another; the quota counts a produce request's frame, and a fetch's records."""
        request = _produce(self._topic, BATCH_BYTES)
        fetch = _fetch(self._topic)
        with Client(self._address, timeout_s=120, client_id="greedy") as client:
            frame_bytes = len(client.frame(request, PRODUCE_VERSION)) - 4
            while time.monotonic() < self._ends:
                if self._produces:
                    client.ask(request, PRODUCE_VERSION)
                    size = frame_bytes
                else:
                    reply = client.ask(fetch, FETCH_VERSION)
                    size = sum(len(each.records or b"") for found in reply.responses for each in found.partitions)
                self._got.append((time.monotonic(), size))

    def share(self) -> float:
        """Of the quota, over the last minute."""
        begins = self._ends - MEASURED_S
        return sum(size for at, size in self._got if begins <= at < self._ends) / (QUOTA * MEASURED_S)


def _set_quotas(admin: Client) -> None:
    operations = [
        OpData(key=key, value=float(QUOTA), remove=False) for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    entity = [AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name="greedy")]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=operations)
    told = admin.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    if told.entries[0].error_code:
        raise RuntimeError(f"the quotas were not taken: {told}")


def _produce(topic_name: str, size: int) -> ProduceRequest:
    records = batch(bytes(range(256)) * (size // 256))
    data = TopicProduceData(name=topic_name, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[data])


def _fetch(topic_name: str) -> FetchRequest:
    """The topic's first records, again and again."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=BATCH_BYTES)
    return FetchRequest(
        topics=[FetchTopic(topic=topic_name, partitions=[wanted])], max_wait_ms=100, min_bytes=1, isolation_level=0
    )


def _p99_ms(address: tuple[str, int], topic_name: str, seconds: float) -> float:
    """Of small produces, one at a time, with pauses."""
    took = []
    request = _produce(topic_name, 256)
    with Client(address, client_id="other") as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            begun = time.perf_counter()
            client.ask(request, PRODUCE_VERSION)
            took.append(time.perf_counter() - begun)
            time.sleep(OTHERS_PAUSE_S)
    took.sort()
    return took[len(took) * 99 // 100] * 1000
