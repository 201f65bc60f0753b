"""A topic that comes and goes under one name: who writes to it and reads it, whatever becomes of it meanwhile.

Owns: clients that know a topic by its id (KIP-516), so that what they are told can be held against that very topic and
not against the one before it; and the settings by which its segments are deleted early.  Owns no decision when it comes
or goes (``administrator``).

The model has each topic of that name as a topic of its own (``Model.topic``).  Every record says for which of them it
was written.

Kafka counterpart: Produce and Fetch from version 13 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.client import Disconnected
from tests.simulation.cluster_client import LEADER_IS_ELSEWHERE, ClusterClient
from tests.simulation.model import FLEETING, batches_of, check
from tests.storage.batches import batch

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.cluster_simulation import ClusterSimulation
    from tests.simulation.model import LogModel

EARLIEST = -2
BY_ID = 13
IS_GONE = LEADER_IS_ELSEWHERE | {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
WRITES = IS_GONE | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}


def fleeting_settings(random: Random) -> dict[str, str]:
    """Small segments, which retention often takes away under whoever is behind."""
    settings = {"internal.segment.bytes": "400", "file.delete.delay.ms": random.choice(("0", "1000"))}
    if random.random() < 0.6:
        settings["retention.bytes"] = random.choice(("500", "1500"))
    return settings


class FleetingWriter:
    """Sends each batch once, with acks=all and by the topic's id; what is acknowledged lies in that very topic."""

    def __init__(self, simulation: ClusterSimulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.client = _client(simulation, name)
        self.random = simulation.new_random()
        self._made = 0

    async def run(self) -> None:
        """Write as long as faults strike."""
        while not self.simulation.calm:
            await self.client.sleep(self.random.choice((5, 100, 600)))
            try:
                await self._write()
            except Disconnected:
                continue

    async def _write(self) -> None:
        topic_id, count = self.client.topics.get(FLEETING, (bytes(16), 1))
        index = self.random.randrange(count)
        self._made += 1
        count = self.random.randint(1, 3)
        values = [b"%s:%s:%d:%d" % (topic_id.hex().encode(), self.name.encode(), self._made, i) for i in range(count)]
        records = bytes(batch(values, timestamp=self.simulation.scheduler.now_ms()))
        data = [PartitionProduceData(index=index, records=records)]
        topics = [TopicProduceData(topic_id=topic_id, partition_data=data)]
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=3_000, topic_data=topics)
        response = await self.client.ask_leader((FLEETING, index), request, BY_ID, 4_000)
        (answer,) = response.responses[0].partition_responses
        code = answer.error_code
        if code == 0:
            name = self.simulation.model.topic(FLEETING, topic_id)
            self.simulation.model.acknowledged(name, index, answer.base_offset, values)
        else:
            check(code in WRITES, "a batch without a sequence is taken", f"{FLEETING}-{index}: error {code}")
            self.client.lost_leader((FLEETING, index))


class FleetingReader:
    """Reads every partition of the topic that there is, from where it begins, until the next one is in its place."""

    def __init__(self, simulation: ClusterSimulation, name: str) -> None:
        self.simulation = simulation
        self.client = _client(simulation, name)
        self._topic_id = bytes(16)
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        """Read until the end of the run."""
        while not self.simulation.leaving:
            topic_id, count = self.client.topics.get(FLEETING, (self._topic_id, 1))
            if topic_id != self._topic_id:
                self._topic_id, self._positions = topic_id, {}
            for index in range(count):
                try:
                    await self._read(index)
                except Disconnected:
                    await self.client.sleep(100)
            await self.client.sleep(50)

    def has_read_all(self) -> str:
        """What is missing of the topic that there is; "" for nothing."""
        topic_id, count = self.client.topics.get(FLEETING, (bytes(16), 0))
        for index in range(count):
            log = self.simulation.model.log(self.simulation.model.topic(FLEETING, topic_id), index)
            position = self._positions.get(index, 0) if topic_id == self._topic_id else 0
            if position < log.end_offset:
                return f"a reader is at {position} of {log.end_offset} in {log.name}"
        return ""

    async def _read(self, index: int) -> None:
        part, topic_id = (FLEETING, index), self._topic_id
        position = self._positions.get(index, 0)
        asked = FetchPartition(
            partition=index,
            fetch_offset=position,
            partition_max_bytes=2_000,
            current_leader_epoch=self.client.leader_epoch(*part),
        )
        topics = [FetchTopic(topic_id=topic_id, partitions=[asked])]
        request = FetchRequest(max_wait_ms=50, min_bytes=1, isolation_level=0, topics=topics, session_epoch=-1)
        response = await self.client.ask_leader(part, request, BY_ID, 3_000)
        for topic in response.responses:
            for answer in topic.partitions:
                await self._take(index, topic_id, position, answer)

    async def _take(self, index: int, topic_id: bytes, position: int, answer: Any) -> None:
        model, code = self.simulation.model, answer.error_code
        log = model.log(model.topic(FLEETING, topic_id), index)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            check(
                position < log.start_offset,
                "what is deleted, and nothing else, is out of range",
                f"{log.name} at {position}: nothing was deleted behind {log.start_offset}, and {log.end_offset} is"
                " committed",
            )
            await self._begin_anew(index, log)
        elif code:
            check(code in IS_GONE, "a position that was read is in the log", f"{log.name} at {position}: error {code}")
            self.client.lost_leader((FLEETING, index))
        else:
            batches = [each for each in batches_of(bytes(answer.records or b"")) if each.last_offset >= position]
            if batches:
                records = [(offset, value) for each in batches for offset, _, value in each.records()]
                end = batches[-1].last_offset + 1
                log.check_read([record for record in records if record[0] >= position], position, end, False)
                self._positions[index] = end

    async def _begin_anew(self, index: int, log: LogModel) -> None:
        """Where the log begins now; the answer may be that of the next topic of the name."""
        topics = [
            ListOffsetsTopic(
                name=FLEETING, partitions=[ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)]
            )
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        response = await self.client.ask_leader((FLEETING, index), request, 7, 3_000)
        for topic in response.topics:
            for found in topic.partitions:
                if not found.error_code:
                    self._positions[index] = min(found.offset, log.end_offset)


def _client(simulation: ClusterSimulation, name: str) -> ClusterClient:
    client = simulation.client(name)
    assert isinstance(client, ClusterClient)
    return client
