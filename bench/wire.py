"""Requests for the benchmark: prepared frames for the generators, and a small blocking client for the rest.

Owns: the versions that are measured.  Prepared frames are sent as they are, again and again, with one correlation id:
replies leave in request order, so nobody has to tell them apart.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from harness import sockets, wire
from harness.broker_probe import host_and_port
from harness.wire import read_reply, reply_frame, request_frame

from pybroker_protocol.messages import request_class
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from pybroker_protocol.messages.delete_topics import DeleteTopicState
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from pybroker_protocol.messages.metadata import MetadataRequestTopic
from pybroker_protocol.messages.offset_commit import OffsetCommitResponse
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pybroker_protocol.record_codec import NewRecord, build_batch
from pybroker_protocol.schema import Buffer

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 9, 10, 11, 12, 14
ADD_PARTITIONS_TO_TXN, INCREMENTAL_ALTER_CONFIGS, CONSUMER_GROUP_HEARTBEAT = 24, 44, 68

# The versions that librdkafka 2.x and Kafka 3.x clients speak; topics by name, so that a frame needs no topic id.
VERSIONS: Mapping[int, int] = {
    PRODUCE: 11,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    API_VERSIONS: 3,
    OFFSET_COMMIT: 9,
    OFFSET_FETCH: 9,
    FIND_COORDINATOR: 4,
    JOIN_GROUP: 9,
    HEARTBEAT: 4,
    SYNC_GROUP: 5,
    CREATE_TOPICS: 7,
    DELETE_TOPICS: 6,
    INCREMENTAL_ALTER_CONFIGS: 1,
    CONSUMER_GROUP_HEARTBEAT: 1,
}
CLIENT_ID = "bench"
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ACKS_ALL = -1
# How a broker answers for a partition that is still coming up: unknown topic, no leader yet, not the leader yet, and
# a leader that does not know yet how far the last one was.
COMING_UP = {3, 5, 6, 78}
# And how a coordinator answers that is still coming up: loading, not available, not here.
COORDINATOR_COMING_UP = {14, 15, 16}
TOPIC_READY_S = 60


def frame(api_key: int, message: Any) -> bytes:
    """A whole request frame, its length first."""
    return request_frame(message, VERSIONS[api_key], client_id=CLIENT_ID)


def reply_to(api_key: int, message: Any) -> bytes:
    """A whole reply frame to a request of ``frame``, its length first."""
    return reply_frame(api_key, message, VERSIONS[api_key])


def decode_reply(api_key: int, reply: Buffer) -> Any:
    """The message in a reply frame without its length."""
    return read_reply(api_key, VERSIONS[api_key], reply)


def record_batch(records: int, record_bytes: int) -> bytes:
    """A batch of records of now, with values of ``record_bytes``."""
    value = bytes((index * 131 + 7) % 251 for index in range(record_bytes))
    return build_batch([NewRecord(None, value)] * records, timestamp_ms=int(time.time() * 1000))


def produce_frame(topic: str, batches: Mapping[int, bytes]) -> bytes:
    """A Produce request with acks=all: one batch for each partition."""
    partitions = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    data = [TopicProduceData(name=topic, partition_data=partitions)]
    return frame(PRODUCE, ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout_ms=30_000, topic_data=data))


def check_produce_reply(reply: Buffer) -> None:
    """Raise ``RuntimeError`` when any partition of a Produce reply carries an error."""
    response: ProduceResponse = decode_reply(PRODUCE, reply)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise RuntimeError(f"produce to {topic.name}-{partition.index}: error {partition.error_code}")


def check_commit_reply(reply: Buffer) -> None:
    """Raise ``RuntimeError`` unless all of a commit was taken."""
    response: OffsetCommitResponse = decode_reply(OFFSET_COMMIT, reply)
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise RuntimeError(f"commit of {topic.name}-{partition.partition_index}: error {partition.error_code}")


def fetch_frame(topic: str, offsets: Mapping[int, int], *, bytes_max: int, wait_ms: int = 500) -> bytes:
    """A Fetch request without a session, for up to ``bytes_max`` in all and of each partition."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=0,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
    return frame(FETCH, request)


def connect(bootstrap: str, timeout_s: float | None = None) -> socket.socket:
    """A connection to ``HOST:PORT``."""
    return sockets.connect(host_and_port(bootstrap), timeout_s)


def exchange(connection: socket.socket, request: bytes) -> bytearray:
    """Send a frame and return the reply without its length, blocking."""
    connection.sendall(request)
    return sockets.receive_frame(connection)


class PartitionState(NamedTuple):
    """Where a partition's leader is (``HOST:PORT``), and how many are in sync."""

    leader: str
    in_sync: int


class Client(wire.Client):
    """One blocking connection, for set-up and tear-down."""

    def __init__(self, bootstrap: str, timeout_s: float = 120) -> None:
        super().__init__(host_and_port(bootstrap), timeout_s, CLIENT_ID)

    def call(self, api_key: int, **fields: Any) -> Any:
        """Send a request of the given fields and return the decoded reply; ``EOFError`` when there is none."""
        reply = self.ask(request_class(api_key)(**fields), VERSIONS[api_key])
        if reply is None:
            raise EOFError("the broker closed the connection")
        return reply

    def produce(self, topic: str, batches: Mapping[int, bytes]) -> None:
        """Produce one batch to each partition; raises ``RuntimeError`` on any error."""
        check_produce_reply(exchange(self._socket, produce_frame(topic, batches)))

    def produce_errors(self, topic: str, batches: Mapping[int, bytes]) -> set[int]:
        """Produce one batch to each partition; the error codes of all of them, 0 for what was taken."""
        response: ProduceResponse = decode_reply(PRODUCE, exchange(self._socket, produce_frame(topic, batches)))
        return {partition.error_code for answer in response.responses for partition in answer.partition_responses}

    def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int) -> bytes:
        """What a partition has from an offset on, up to a megabyte; b"" where nothing came within ``wait_ms``."""
        payload = exchange(self._socket, fetch_frame(topic, {partition: offset}, bytes_max=10**6, wait_ms=wait_ms))
        [answer] = decode_reply(FETCH, payload).responses[0].partitions
        if answer.error_code and answer.error_code not in COMING_UP:
            raise RuntimeError(f"fetch of {topic}-{partition} at {offset}: error {answer.error_code}")
        return bytes(answer.records or b"")

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic of a broker that is alone and wait until every partition has a leader."""
        self.begin_topic(name, partitions, 1, configs)
        self.await_leaders(name, range(partitions))

    def begin_topic(self, name: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, whose partitions may not be there yet."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=settings
        )
        [result] = self.call(CREATE_TOPICS, topics=[topic], timeout_ms=60_000).topics
        if result.error_code:
            raise RuntimeError(f"create {name}: error {result.error_code} {result.error_message}")

    def await_leaders(self, name: str, partitions: Collection[int]) -> None:
        """Wait until these partitions of a topic answer, which the broker leads."""
        deadline_s = time.monotonic() + TOPIC_READY_S
        while errors := {answer.error_code for answer in self._list_offsets(name, partitions)} - {0}:
            if errors - COMING_UP or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} does not come up: errors {sorted(errors)}")
            time.sleep(0.05)

    def states(self, name: str) -> list[PartitionState]:
        """The partitions of a topic that the broker knows and that have leaders, in order."""
        reply = self.call(METADATA, topics=[MetadataRequestTopic(topic_id=bytes(16), name=name)])
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in reply.brokers}
        found = sorted(reply.topics[0].partitions, key=lambda partition: int(partition.partition_index))
        return [
            PartitionState(brokers[partition.leader_id], len(partition.isr_nodes))
            for partition in found
            if partition.leader_id in brokers
        ]

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        [result] = self.call(
            DELETE_TOPICS, topics=[DeleteTopicState(name=name, topic_id=bytes(16))], timeout_ms=60_000
        ).responses
        if result.error_code:
            raise RuntimeError(f"delete {name}: error {result.error_code}")

    def serves(self, api_key: int) -> bool:
        """Whether the broker announces the API."""
        reply = self.call(API_VERSIONS, client_software_name="bench", client_software_version="1")
        return api_key in {api.api_key for api in reply.api_keys}

    def broker_count(self) -> int:
        """How many brokers the cluster has."""
        return len(self.call(METADATA, topics=[]).brokers)

    def find_coordinator(self, group_id: str) -> str:
        """The ``HOST:PORT`` of the group's coordinator, once there is one."""
        deadline_s = time.monotonic() + TOPIC_READY_S
        while True:
            [found] = self.call(FIND_COORDINATOR, key_type=0, coordinator_keys=[group_id]).coordinators
            if not found.error_code:
                return f"{found.host}:{found.port}"
            if found.error_code not in COORDINATOR_COMING_UP or time.monotonic() > deadline_s:
                raise RuntimeError(f"the coordinator of {group_id}: error {found.error_code}")
            time.sleep(0.05)

    def await_coordinator(self, group_id: str) -> None:
        """Wait until the group's coordinator is found and serves."""
        deadline_s = time.monotonic() + TOPIC_READY_S
        while not self.coordinator_serves(group_id):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the coordinator of {group_id} does not come up")
            time.sleep(0.05)

    def coordinator_serves(self, group_id: str) -> bool:
        """Whether the group's coordinator is here and has loaded what there is of it."""
        [found] = self.call(FIND_COORDINATOR, key_type=0, coordinator_keys=[group_id]).coordinators
        error = found.error_code
        if not error:
            asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
            error = self.call(OFFSET_FETCH, groups=[asked], require_stable=False).groups[0].error_code
        if error and error not in COORDINATOR_COMING_UP:
            raise RuntimeError(f"the coordinator of {group_id}: error {error}")
        return not error

    def committed_offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """All offsets of a group by topic and partition."""
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        [group] = self.call(OFFSET_FETCH, groups=[asked], require_stable=False).groups
        if group.error_code:
            raise RuntimeError(f"offsets of {group_id}: error {group.error_code}")
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
        }

    def end_offsets(
        self, name: str, partitions: Iterable[int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[int, int]:
        """The offset up to which each partition can be read."""
        answers = self._list_offsets(name, partitions, isolation_level)
        return {answer.partition_index: answer.offset for answer in answers}

    def _list_offsets(self, name: str, partitions: Iterable[int], isolation_level: int = READ_UNCOMMITTED) -> list[Any]:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in partitions]
        topics = [ListOffsetsTopic(name=name, partitions=asked)]
        [answer] = self.call(LIST_OFFSETS, replica_id=-1, isolation_level=isolation_level, topics=topics).topics
        return list(answer.partitions)
