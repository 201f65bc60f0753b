"""Simulated idempotent producers: batches in sequence, several requests on their way, retried until all is there.

Kafka counterpart: the Java producer's Sender and TransactionManager, as far as one producer id and its sequence numbers
go: up to five batches per partition, and after any failure all unanswered ones again, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.client import Client, Disconnected
from tests.simulation.model import DELETION, check
from tests.storage.batches import Record, batch

if TYPE_CHECKING:
    from tests.simulation.run import Run

IN_FLIGHT_MAX = 5
LARGE_VALUE_BYTES = 140 << 10  # goes through the log's writer thread
DELETIONS = 0.1  # the share of batches that delete their keys
RETRIED = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,  # what Produce says while the transaction coordinator cannot be asked
}


def keyed(values: list[bytes], keys: int, random: Random) -> list[tuple[bytes | None, bytes | None]]:
    """The values, each under a key."""
    return [(b"key-%d" % random.randrange(keys), value) for value in values]


class Pending(NamedTuple):
    """A batch that is not acknowledged yet."""

    topic: str
    partition: int
    sequence: int
    values: list[bytes]
    data: bytes


async def new_producer_id(client: Client) -> tuple[int, int]:
    """A producer id of its own, with its epoch."""
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await client.insist(request, 4)
        if response.error_code == 0:
            return response.producer_id, response.producer_epoch
        check(response.error_code in RETRIED, "an idempotent producer gets an id", f"error {response.error_code}")
        await client.sleep(100)


def _has_failed(answered: asyncio.Future[Any]) -> bool:
    if answered.exception() is not None:
        return True
    return any(part.error_code for topic in answered.result().responses for part in topic.partition_responses)


class IdempotentProducer:
    """Writes ``count`` batches to one topic and ends when all are acknowledged."""

    def __init__(self, simulation: Run, name: str, topic: str, partitions: int, count: int, keys: int = 0) -> None:
        """``keys``: how many keys the records have, some of which delete theirs; 0: they have none."""
        self.simulation = simulation
        self.client = simulation.client(name)
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.count = count
        self.keys = keys
        self.pauses_ms = (1, 20, 500)
        # Where another replica may come to lead between a partition's first batch and its second, the first is alone on
        # its way: no leader can take the second for it.
        self._begins_alone = len(simulation.processes) > 1
        self._begun: dict[int, bool] = {}  # partition -> whether its first batch is acknowledged
        self.random = simulation.new_random()
        self._sequences = [0] * partitions
        self._unanswered: deque[tuple[asyncio.Future[Any], list[Pending]]] = deque()
        self._again: list[Pending] = []
        self._made = 0
        self._producer = (-1, -1)

    async def run(self) -> None:
        """The producer's life."""
        self._producer = await new_producer_id(self.client)
        self.simulation.trace(self.name, f"is producer {self._producer[0]}")
        while self._made < self.count or self._unanswered or self._again:
            while self._made < self.count and len(self._unanswered) < IN_FLIGHT_MAX and not self._again:
                if self._unanswered and (self._one_is_lost or self.random.random() < 0.5):
                    break
                partitions = self._some_partitions()
                if not partitions:
                    break
                self._send([self._new_batch(partition) for partition in partitions])
            if self._unanswered:
                await self._hear()
            if self._again:
                await self._send_again()
            elif self.random.random() < 0.5:
                await self.client.sleep(self.simulation.pause_ms(self.random, self.pauses_ms))
        self.simulation.trace(self.name, "is done")

    @property
    def _one_is_lost(self) -> bool:
        """Whether a connection took a request along, or it was refused: nothing overtakes what is to be sent again."""
        return any(future.done() and _has_failed(future) for future, _ in self._unanswered)

    def _some_partitions(self) -> list[int]:
        partitions = [index for index in range(self.partitions) if self._begun.get(index, True)]
        found = self.random.sample(partitions, self.random.randint(1, min(2, len(partitions)))) if partitions else []
        if self._begins_alone:
            for index in found:
                self._begun.setdefault(index, False)
        return found

    def _new_batch(self, partition: int) -> Pending:
        self._made += 1
        count = self.random.randint(1, 3)
        values = [b"%s:%d:%d:%d" % (self.name.encode(), partition, self._made, i) for i in range(count)]
        if self.simulation.large_batches and not self.keys and self.random.random() < 0.04:
            values = [values[0] + bytes(LARGE_VALUE_BYTES)]
        sequence = self._sequences[partition]
        self._sequences[partition] += len(values)
        records: Sequence[bytes | Record] = keyed(values, self.keys, self.random) if self.keys else values
        if self.keys and self.random.random() < DELETIONS:
            records = [(key, None) for key, _ in keyed(values, self.keys, self.random)]
            values = [DELETION] * len(values)
        data = batch(
            records,
            timestamp=self.simulation.scheduler.now_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            sequence=sequence,
        )
        return Pending(self.topic, partition, sequence, values, bytes(data))

    def _send(self, pending: list[Pending]) -> None:
        """One request with a batch for each of some partitions."""
        topic = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=p.partition, records=p.data) for p in pending]
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[topic])
        self._unanswered.append((self.client.send(request, 9, 5_000), pending))

    async def _hear(self) -> None:
        """Wait for the oldest answer."""
        future, pending = self._unanswered.popleft()
        try:
            response = await future
        except Disconnected:
            self._give_up(pending)
            return
        failed = []
        answers = {answer.index: answer for answer in response.responses[0].partition_responses}
        for sent in pending:
            answer = answers[sent.partition]
            if answer.error_code == 0:
                self.simulation.model.acknowledged(sent.topic, sent.partition, answer.base_offset, sent.values)
                self._begun[sent.partition] = True
            elif answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                late = answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                behind_a_failure = late and any(again.partition == sent.partition for again in self._again)
                check(
                    answer.error_code in self.simulation.retried or behind_a_failure,
                    "a batch in sequence is taken",
                    f"{self.name} sequence {sent.sequence} of {sent.topic}-{sent.partition}: error {answer.error_code}",
                )
                failed.append(sent)
        self._again += failed

    def _give_up(self, pending: list[Pending]) -> None:
        self._again += pending

    async def _send_again(self) -> None:
        """Everything that failed, oldest first, once nothing is on its way any more."""
        while self._unanswered:
            await self._hear()
        await self.client.sleep(self.random.choice((1, 50, 300)))
        again, self._again = self._again, []
        for pending in again:
            self._send([pending])
            if len(self._unanswered) >= IN_FLIGHT_MAX or self.random.random() < 0.3:
                await self._hear()
                if self._again:
                    rest = again[again.index(pending) + 1 :]
                    while self._unanswered:
                        await self._hear()
                    self._again += rest
                    return


class CarelessProducer:
    """Sends each batch once with acks=1, from no producer id: what becomes of it is nobody's promise.

    Only that it is shown to nobody before it is committed, and then stays, is for the observer to see.
    """

    def __init__(self, simulation: Run, name: str, topic: str, partitions: int, count: int) -> None:
        self.simulation = simulation
        self.client = simulation.client(name)
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.count = count
        self.random = simulation.new_random()

    async def run(self) -> None:
        """The producer's life: bursts, of which what is cut away is written by no one again."""
        number = 0
        while number < self.count:
            burst = min(self.random.choice((1, 1, 4, 12)), self.count - number)
            answers = [self._send(number + i) for i in range(burst)]
            number += burst
            for answer in answers:
                with suppress(Disconnected):
                    await answer
            await self.client.sleep(self.simulation.pause_ms(self.random, (1, 50, 400, 3_000)))

    def _send(self, number: int) -> Any:
        values = [b"%s:%d:%d" % (self.name.encode(), number, i) for i in range(self.random.randint(1, 3))]
        records = bytes(batch(values, timestamp=self.simulation.scheduler.now_ms()))
        data = PartitionProduceData(index=self.random.randrange(self.partitions), records=records)
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5_000, topic_data=[topic])
        return self.client.send(request, 9, 5_000)
