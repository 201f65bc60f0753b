"""Simulated transactional producers, of both protocols: transactions over several partitions, with and without offsets.

Kafka counterpart: the Java producer's TransactionManager.  One instance per transactional id at a time; it dies and
starts again now and then, stalls past its transaction's timeout, and has its replies lost.

A consume-transform-produce one reads ``events`` read_committed, writes one output for each input, and commits the
positions with them: at the end of a run each input has exactly one visible output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pybroker_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pybroker_protocol.messages.end_txn import EndTxnRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.client import Disconnected
from tests.simulation.consuming import GROUP_IS_ELSEWHERE, Consuming, Partition, find_coordinator
from tests.simulation.model import check
from tests.simulation.producers import keyed
from tests.storage.batches import batch

if TYPE_CHECKING:
    from tests.simulation.run import Run

TIMEOUT_MS = 4_000
TRANSACTIONAL = 0x10
RECORDS_MAX = 10  # of one batch
GOES_ON_AT = 1_000  # the number of the first record that a producer writes after its transaction has timed out
LOST = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}


class Lost(Exception):
    """The transaction is over, whatever became of it: the producer has to begin anew."""


class TransactionalProducer:
    """Runs ``count`` transactions; with ``inputs``, as many as it takes to transform them all.

    ``keys``: how many keys the records have; 0: they have none.
    """

    def __init__(
        self,
        simulation: Run,
        name: str,
        topic: str,
        partitions: int,
        *,
        second_protocol: bool,
        count: int,
        inputs: list[Partition] | None = None,
        keys: int = 0,
    ) -> None:
        self.simulation = simulation
        self.client = simulation.client(name)
        self.name = self.transactional_id = name
        self.topic = topic
        self.partitions = partitions
        self.second_protocol = second_protocol
        self.count = count
        self.inputs = inputs or []
        self.keys = keys
        self.group = f"{name}-offsets"
        self.random = simulation.new_random()
        self.data = Consuming(simulation, simulation.client(f"{name}/data"), self.group, read_committed=True)
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._transaction = ""
        self._begun_us = 0
        self._begun_wall_ms = 0
        self._late_until_us = 0  # a lost InitProducerId may come until then, and fence its own sender
        self._commits: dict[Partition, str] = {}  # what the offsets of the open transaction are called
        self.made = 0
        self._incarnation = 0

    async def run(self) -> None:
        """The producer's life."""
        await find_coordinator(self.client, self.name, 1)
        if self.inputs:
            await find_coordinator(self.client, self.group)
        await self._begin_anew()
        while not self._is_done():
            self.made += 1
            try:
                await self._run_transaction()
            except Lost:
                self.simulation.trace(self.name, f"{self._transaction} is lost")
                self.simulation.model.transaction_lost(self._transaction)
                await self._begin_anew()
            await self.client.sleep(self.simulation.pause_ms(self.random, (1, 50, 400)))
        self.simulation.trace(self.name, "is done")

    def _is_done(self) -> bool:
        if not self.inputs:
            return self.made >= self.count
        return self.simulation.leaving

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _call(self, request: Any, version: int, codes_of: Callable[[Any], list[int]]) -> Any:
        """The response without an error; tried again while that makes sense.  Raises ``Lost``."""
        while True:
            try:
                response = await self.client.ask(request, version, 5_000)
            except Disconnected:
                await self.client.sleep(100 if self.second_protocol else self.simulation.late_requests_ms)
                continue
            code = next((code for code in codes_of(response) if code), 0)
            if code == 0:
                return response
            if code in self.simulation.retried or code in GROUP_IS_ELSEWHERE:
                await self.client.sleep(self.random.choice((20, 100)))
                continue
            self.simulation.trace(self.name, f"{type(request).__name__}: error {code}")
            check(code in LOST, "a transactional request is served", f"{self.name} {type(request).__name__}: {code}")
            self._check_may_be_lost(code)
            raise Lost

    def _check_may_be_lost(self, code: int) -> None:
        scheduler = self.simulation.scheduler
        age_ms = (scheduler.now_us - self._begun_us) // 1000
        excused = (
            age_ms > TIMEOUT_MS // 2
            or scheduler.wall_offset_ms != self._begun_wall_ms
            or scheduler.now_us < self._late_until_us
            or self.simulation.may_be_fenced()
        )
        check(excused, "a producer in good standing is not fenced", f"{self.name} after {age_ms} ms: error {code}")

    async def _begin_anew(self) -> None:
        """InitProducerId: whatever was open is aborted, or completed if it had been decided."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            try:
                response = await self.client.ask(request, 5 if self.second_protocol else 4, 5_000)
            except Disconnected:
                self._late_until_us = self.simulation.scheduler.now_us + self.simulation.late_requests_ms * 1000
                await self.client.sleep(100)
                continue
            if response.error_code == 0:
                break
            fenced_by_ourselves = (
                response.error_code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
                and self.simulation.scheduler.now_us < self._late_until_us
            )
            known = response.error_code in self.simulation.retried or fenced_by_ourselves
            check(known, "a transactional producer gets an id", f"{self.name}: error {response.error_code}")
            await self.client.sleep(50)
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences = {}
        self.data.positions = {}
        self.simulation.trace(self.name, f"is producer {self._producer[0]} in epoch {self._producer[1]}")

    # --- a transaction -----------------------------------------------------------------------------------------------

    async def _run_transaction(self) -> None:
        scheduler, random = self.simulation.scheduler, self.random
        self._transaction = f"{self.name}:{self.made}"
        self._begun_us, self._begun_wall_ms = scheduler.now_us, scheduler.wall_offset_ms
        self._commits = {}
        polled = await self._poll() if self.inputs else []
        if self.inputs and not polled:
            return
        self.simulation.model.transaction_begins(self._transaction)
        self._begun_us, self._begun_wall_ms = scheduler.now_us, scheduler.wall_offset_ms
        await self._write(polled)
        if self.inputs:
            await self._commit_offsets()
        fate = 1.0 if self.simulation.calm else random.random()
        if fate < 0.05:
            self.simulation.trace(self.name, f"stalls in {self._transaction}")
            await self.client.sleep(TIMEOUT_MS + 8_000)
            if not self.inputs and random.random() < 0.5:
                self.simulation.trace(self.name, f"goes on in {self._transaction}")
                await self._write([], first=GOES_ON_AT)
        elif fate < 0.15 and self.inputs:
            await self._die_in_end()
            return
        elif fate < 0.18:
            self.simulation.trace(self.name, f"dies in {self._transaction}")
            self.client.disconnect()
            self.data.client.disconnect()
            await self.client.sleep(self.simulation.late_requests_ms)
            raise Lost
        await self._end(commit=fate > 0.25)

    async def _poll(self) -> list[tuple[Partition, int, bytes]]:
        """The next inputs, read from the committed positions on."""
        try:
            missing = [part for part in self.inputs if part not in self.data.positions]
            if missing:
                found = await self.data.fetch_committed(missing)
                if isinstance(found, int):
                    known = found in GROUP_IS_ELSEWHERE
                    check(known, "offsets of a transactional group can be fetched", f"{self.name}: error {found}")
                    await self.client.sleep(100)
                    return []
                for part, offset in found.items():
                    self.data.positions[part] = max(offset, 0)
            return await self.data.poll(100)
        except Disconnected:
            await self.client.sleep(100)
            return []

    async def _write(self, polled: list[tuple[Partition, int, bytes]], first: int = 0) -> None:
        """Write what was polled anew, or something of its own, which is numbered from ``first`` on."""
        random = self.random
        if self.inputs:
            outputs = [b"out:%s:%s-%d:%d" % (self.group.encode(), p[0].encode(), p[1], o) for p, o, _ in polled]
            suffix = f"@{self._transaction}".encode()
            plan = [
                (random.randrange(self.partitions), [value + suffix for value in outputs[start : start + RECORDS_MAX]])
                for start in range(0, len(outputs), RECORDS_MAX)
            ]
        else:
            plan = [
                (random.randrange(self.partitions), [b"%s:%d" % (self._transaction.encode(), first + i)])
                for i in range(random.randint(1, 4))
            ]
        if not self.second_protocol:
            indexes = sorted({partition for partition, _ in plan})
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._producer[0],
                v3_and_below_producer_epoch=self._producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=indexes)],
            )
            await self._call(request, 3, _codes_of_added_partitions)
        for partition, values in plan:
            await self._produce(partition, values)

    async def _produce(self, partition: int, values: list[bytes]) -> None:
        sequence = self._sequences.get(partition, 0)
        records = bytes(
            batch(
                keyed(values, self.keys, self.random) if self.keys else values,
                attributes=TRANSACTIONAL,
                timestamp=self.simulation.scheduler.now_ms(),
                producer_id=self._producer[0],
                producer_epoch=self._producer[1],
                sequence=sequence,
            )
        )
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=5_000, topic_data=[data])
        self.simulation.model.transaction_writes(self._transaction, self.topic, partition, values)
        response = await self._call(request, 12 if self.second_protocol else 11, _codes_of_produced)
        self._sequences[partition] = sequence + len(values)
        answer = response.responses[0].partition_responses[0]
        self.simulation.model.acknowledged(self.topic, partition, answer.base_offset, values)

    async def _commit_offsets(self) -> None:
        producer_id, epoch = self._producer
        if not self.second_protocol:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self.group,
            )
            await self._call(added, 3, lambda response: [response.error_code])
        topics = []
        for (topic, index), offset in self.data.positions.items():
            register = self.simulation.model.committed(self.group, topic, index)
            self._commits[topic, index] = name = register.send(offset, self.simulation.scheduler.now_us, settles=False)
            partition = TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=self.data.epochs.get((topic, index), -1),
                committed_metadata=name,
            )
            topics.append(TxnOffsetCommitRequestTopic(name=topic, partitions=[partition]))
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            member_id="",
            topics=topics,
        )
        await self._call(request, 5 if self.second_protocol else 3, _codes_of_committed)

    def _end_request(self, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )

    async def _die_in_end(self) -> None:
        """EndTxn leaves and the process is gone; another takes its work over, under a transactional id of its own.

        It stands ready, and its OffsetFetch has to wait for what becomes of the pending offsets (KIP-447).
        """
        model, ended, request = self.simulation.model, self._transaction, self._end_request(commit=True)
        self._incarnation += 1
        self.transactional_id = f"{self.name}.{self._incarnation}"
        await self._begin_anew()
        self.simulation.trace(self.name, f"dies in the end of {ended}")
        model.transaction_ends(ended, commit=True)
        self.client.send(request, 5 if self.second_protocol else 3)
        self.client.disconnect()
        self.data.client.disconnect()
        model.transaction_lost(ended)

    async def _end(self, commit: bool) -> None:
        request = self._end_request(commit)
        model = self.simulation.model
        model.transaction_ends(self._transaction, commit)
        response = await self._call(request, 5 if self.second_protocol else 3, lambda response: [response.error_code])
        model.transaction_ended(self._transaction, commit)
        self.simulation.trace(self.name, f"{'committed' if commit else 'aborted'} {self._transaction}")
        for part, name in self._commits.items():
            register = model.committed(self.group, *part)
            if commit:
                register.acknowledge(name, self.simulation.scheduler.now_us)
            else:
                register.refuse(name)
        if not commit:
            self.data.positions = {}
        if self.second_protocol:
            self._producer = (response.producer_id, response.producer_epoch)
            self._sequences = {}


def _codes_of_added_partitions(response: Any) -> list[int]:
    return [
        result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
    ]


def _codes_of_produced(response: Any) -> list[int]:
    return [answer.error_code for topic in response.responses for answer in topic.partition_responses]


def _codes_of_committed(response: Any) -> list[int]:
    return [answer.error_code for topic in response.topics for answer in topic.partitions]


class Reader:
    """Reads all partitions of a topic from their start, read_committed or not, again and again; the model checks it."""

    def __init__(self, simulation: Run, name: str, partitions: list[Partition], read_committed: bool) -> None:
        self.simulation = simulation
        self.client = simulation.client(name)
        self.data = Consuming(simulation, self.client, name, read_committed)
        self.partitions = partitions

    async def run(self) -> None:
        """Read until the end of the run."""
        self.data.positions = dict.fromkeys(self.partitions, 0)
        while not self.simulation.leaving:
            try:
                await self.data.poll(500)
            except Disconnected:
                await self.client.sleep(200)
            await self.client.sleep(50)
