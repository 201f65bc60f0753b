"""A simulated administrator of a topic that comes and goes: made, grown, emptied from its start, deleted, made anew.

Owns: what is asked for, and which answers may come.  What becomes of the topic's records is for its clients
(``fleeting``) and for the observer to see.

Kafka counterpart: ``kafka-topics`` and ``kafka-delete-records``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.simulation.administrator import ANY_CHANGE, TIMEOUT_MS, Administrator
from tests.simulation.cluster_client import LEADER_IS_ELSEWHERE
from tests.simulation.fleeting import fleeting_settings
from tests.simulation.model import FLEETING, check

if TYPE_CHECKING:
    from tests.simulation.cluster_simulation import ClusterSimulation

PARTITIONS_MAX = 4
TO_HIGH_WATERMARK = -1
CREATION = ANY_CHANGE | {
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers are registered
}
GROWTH = ANY_CHANGE | {ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR}
DELETION = ANY_CHANGE | {ErrorCode.UNKNOWN_TOPIC_ID}
RECORDS = LEADER_IS_ELSEWHERE | {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT}


class TopicAdministrator(Administrator):
    """See the module's docstring."""

    def __init__(self, simulation: ClusterSimulation, name: str) -> None:
        super().__init__(simulation, name, {FLEETING: 1})
        self._actions = [
            (4, self._make),
            (2, self._delete),
            (3, self._grow),
            (4, self._delete_records),
            (2, self._reassign),
            (1, self._take_back),
            (1, self._elect),
        ]

    def _some_partitions(self) -> tuple[str, list[int]]:
        _, count = self.client.topics.get(FLEETING, (b"", 1))
        return FLEETING, sorted(self.random.sample(range(count), self.random.randint(1, count)))

    async def _make(self) -> None:
        settings = fleeting_settings(self.random)
        topic = CreatableTopic(
            name=FLEETING,
            num_partitions=self.random.randint(1, 2),
            replication_factor=self.simulation.replication_factor if self.random.random() < 0.8 else 1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        await self._change(request, 7, CREATION, f"makes {FLEETING} with {settings}")

    async def _delete(self) -> None:
        topic_id, _ = self.client.topics.get(FLEETING, (bytes(16), 0))
        by_id = any(topic_id) and self.random.random() < 0.5
        state = DeleteTopicState(name=None if by_id else FLEETING, topic_id=topic_id if by_id else bytes(16))
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        await self._change(request, 6, DELETION, f"deletes {FLEETING}{' by its id' if by_id else ''}")
        if self.random.random() < 0.7:
            await self._make()

    async def _grow(self) -> None:
        count = self.random.randint(2, PARTITIONS_MAX)
        topic = CreatePartitionsTopic(name=FLEETING, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        await self._change(request, 3, GROWTH, f"gives {FLEETING} {count} partitions")

    async def _delete_records(self) -> None:
        topic_id, count = self.client.topics.get(FLEETING, (bytes(16), 1))
        index = self.random.randrange(count)
        end = self.simulation.model.log(self.simulation.model.topic(FLEETING, topic_id), index).end_offset
        offset = TO_HIGH_WATERMARK if self.random.random() < 0.3 else self.random.randint(0, end)
        wanted = DeleteRecordsTopic(
            name=FLEETING, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        self.simulation.trace(self.name, f"deletes the records of {FLEETING}-{index} up to {offset}")
        response = await self.client.ask_leader((FLEETING, index), request, 2, TIMEOUT_MS + 2_000)
        (answer,) = response.topics[0].partitions
        what = f"{FLEETING}-{index} up to {offset}: error {answer.error_code}, low watermark {answer.low_watermark}"
        if answer.error_code in LEADER_IS_ELSEWHERE:
            self.client.lost_leader((FLEETING, index))
        if answer.error_code:
            check(answer.error_code in RECORDS, "an administrator's request is answered as it may be", what)
        else:
            check(answer.low_watermark >= offset, "records are deleted up to where it was asked", what)
