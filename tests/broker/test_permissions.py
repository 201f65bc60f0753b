"""Which permission each request asks for, and what who has it not is told: Kafka's KafkaApis and ControllerApis.

The group's and the transaction's handlers are asked in ``tests/coordinators``, configs in ``tests/config``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until

from pybroker.handlers.authorizer import AuthorizableRequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pybroker_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pybroker_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pybroker_protocol.messages.describe_quorum import DescribeQuorumRequest
from pybroker_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest
from pybroker_protocol.messages.update_features import UpdateFeaturesRequest
from pybroker_protocol.uuids import ZERO_UUID
from tests.authorizers import AnyOfType
from tests.broker.wire_client import WireClient, fetch_request

TOPIC_FAILED, CLUSTER_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SEEN, HIDDEN, MISSING = "seen", "hidden", "missing"
Permission = tuple[int, int, str]


class Denying(AnyOfType):
    """Lets everybody do everything but what is ``denied``."""

    def __init__(self) -> None:
        self.denied: set[Permission] = set()

    def allows(
        self,
        ctx: AuthorizableRequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """See ``Authorizer``."""
        assert ctx.principal == "User:ANONYMOUS"
        return (operation, resource_type, name) not in self.denied

    def deny(self, operation: int, *topics: str) -> None:
        self.denied |= {(operation, Resource.TOPIC, topic) for topic in topics}

    def deny_cluster(self, operation: int) -> None:
        self.denied.add((operation, Resource.CLUSTER, CLUSTER_NAME))


@pytest.fixture(scope="module")
def topics(pybroker: Broker) -> dict[str, bytes]:
    """The ids of two topics with a record each."""
    with WireClient((pybroker.host, pybroker.port)) as client:
        for topic in (SEEN, HIDDEN):
            client.create_topic(topic)
            client.produce(topic, batch(b"a"))
    by_name = pybroker._running().services.metadata.image.topics_by_name
    return {topic: by_name[topic].topic_id for topic in (SEEN, HIDDEN)}


@pytest.fixture
def authorizer(pybroker: Broker, topics: dict[str, bytes]) -> Iterator[Denying]:
    """Who may do what at the module's broker."""
    services = pybroker._running().services
    services.authorizer = denying = Denying()
    yield denying
    services.authorizer = None


def list_offsets(*topics: str) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    wanted = [ListOffsetsTopic(name=topic, partitions=[asked]) for topic in topics]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=wanted, timeout_ms=1000)


def end_of_epoch(*topics: str) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked]) for topic in topics]
    )


def delete_records(*topics: str) -> DeleteRecordsRequest:
    asked = DeleteRecordsPartition(partition_index=0, offset=0)
    wanted = [DeleteRecordsTopic(name=topic, partitions=[asked]) for topic in topics]
    return DeleteRecordsRequest(topics=wanted, timeout_ms=1000)


def fetch(*topics: str) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        topics=[FetchTopic(topic=topic, partitions=[asked]) for topic in topics],
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=0,
    )


def produce(*topics: str) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(b"a"))
    wanted = [TopicProduceData(name=topic, partition_data=[data]) for topic in topics]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=wanted)


def codes_of_partitions(reply: Any) -> dict[str, int]:
    """By topic, whatever the response calls it and its partitions."""
    found = {}
    for topic in reply.responses if hasattr(reply, "responses") else reply.topics:
        name = topic.topic if hasattr(topic, "topic") else topic.name
        partitions = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
        (found[name],) = (partition.error_code for partition in partitions)
    return found


@pytest.mark.parametrize(
    ("request_of", "version", "operation"),
    [
        (list_offsets, 7, AclOperation.DESCRIBE),
        (delete_records, 2, AclOperation.DELETE),
        (fetch, 12, AclOperation.READ),
        (produce, 9, AclOperation.WRITE),
    ],
)
def test_topic_without_permission_is_refused_and_the_others_are_served(
    wire: WireClient, authorizer: Denying, request_of: Callable[..., Any], version: int, operation: int
) -> None:
    authorizer.deny(operation, HIDDEN, MISSING)
    codes = codes_of_partitions(wire.ask(request_of(SEEN, HIDDEN, MISSING), version))
    assert codes == {SEEN: 0, HIDDEN: TOPIC_FAILED, MISSING: TOPIC_FAILED}


def test_ends_of_epochs_are_for_those_who_may_describe_or_act_in_the_cluster(
    wire: WireClient, authorizer: Denying
) -> None:
    authorizer.deny(AclOperation.DESCRIBE, HIDDEN)
    assert codes_of_partitions(wire.ask(end_of_epoch(SEEN, HIDDEN), 4)) == {SEEN: 0, HIDDEN: 0}
    authorizer.deny_cluster(AclOperation.CLUSTER_ACTION)
    assert codes_of_partitions(wire.ask(end_of_epoch(SEEN, HIDDEN), 4)) == {SEEN: 0, HIDDEN: TOPIC_FAILED}


def test_produce_and_fetch_by_id_ask_for_the_name(
    wire: WireClient, authorizer: Denying, topics: dict[str, bytes]
) -> None:
    authorizer.deny(AclOperation.WRITE, HIDDEN)
    authorizer.deny(AclOperation.READ, HIDDEN)
    data = PartitionProduceData(index=0, records=batch(b"a"))
    by_id = [TopicProduceData(topic_id=topic_id, partition_data=[data]) for topic_id in (topics[HIDDEN], b"\7" * 16)]
    reply = wire.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=by_id), 13)
    codes = [topic.partition_responses[0].error_code for topic in reply.responses]
    assert codes == [TOPIC_FAILED, ErrorCode.UNKNOWN_TOPIC_ID]
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    wanted = [FetchTopic(topic_id=topic_id, partitions=[asked]) for topic_id in (topics[HIDDEN], b"\7" * 16)]
    reply = wire.ask(FetchRequest(topics=wanted, max_wait_ms=0, min_bytes=1, isolation_level=0), 13)
    codes = [topic.partitions[0].error_code for topic in reply.responses]
    assert codes == [TOPIC_FAILED, ErrorCode.UNKNOWN_TOPIC_ID]
    assert [topic.partitions[0].aborted_transactions for topic in reply.responses] == [[], []]


def test_refused_batch_is_not_written(wire: WireClient, authorizer: Denying) -> None:
    end = wire.produce(SEEN, batch(b"a")).base_offset + 1
    authorizer.deny(AclOperation.WRITE, SEEN)
    for _ in range(3):  # the like of which was served before, also by a fast path
        assert wire.produce(SEEN, batch(b"a")).error_code == TOPIC_FAILED
    authorizer.denied.clear()
    assert wire.produce(SEEN, batch(b"a")).base_offset == end


def test_permission_is_asked_anew_at_each_fetch_of_a_session(wire: WireClient, authorizer: Denying) -> None:
    begun = wire.ask(fetch_request(SEEN, 0, session_id=0, session_epoch=0), 12)
    assert (begun.error_code, begun.session_id > 0) == (0, True)
    authorizer.deny(AclOperation.READ, SEEN)
    more: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": 0, "session_id": begun.session_id}
    reply = wire.ask(FetchRequest(topics=[], session_epoch=1, **more), 12)
    assert codes_of_partitions(reply) == {SEEN: TOPIC_FAILED}
    assert not reply.responses[0].partitions[0].records
    authorizer.denied.clear()
    reply = wire.ask(FetchRequest(topics=[], session_epoch=2, **more), 12)
    assert codes_of_partitions(reply) == {SEEN: 0}
    assert reply.responses[0].partitions[0].records


def test_log_dirs_and_features_are_the_clusters(wire: WireClient, authorizer: Denying) -> None:
    authorizer.deny_cluster(AclOperation.DESCRIBE)
    authorizer.deny_cluster(AclOperation.ALTER)
    dirs = wire.ask(DescribeLogDirsRequest(topics=None), 4)
    assert (dirs.error_code, dirs.results) == (CLUSTER_FAILED, [])
    wanted = AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name=SEEN, partitions=[0, 9])])
    moved = wire.ask(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    assert [(each.topic_name, [one.error_code for one in each.partitions]) for each in moved.results] == [
        (SEEN, [CLUSTER_FAILED, CLUSTER_FAILED])
    ]
    features = wire.ask(UpdateFeaturesRequest(feature_updates=[], validate_only=False), 1)
    assert (features.error_code, features.results) == (CLUSTER_FAILED, [])


def test_quotas_of_clients_are_the_clusters(wire: WireClient, authorizer: Denying) -> None:
    authorizer.deny_cluster(AclOperation.ALTER_CONFIGS)
    authorizer.deny_cluster(AclOperation.DESCRIBE_CONFIGS)
    entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None)]
    quota = AlterClientQuotasRequestEntryData(
        entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)]
    )
    altered = wire.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1)
    assert [(entry.error_code, entry.entity[0].entity_name) for entry in altered.entries] == [(CLUSTER_FAILED, None)]
    described = wire.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    assert (described.error_code, described.entries) == (CLUSTER_FAILED, None)
    authorizer.denied.clear()
    assert wire.ask(DescribeClientQuotasRequest(components=[], strict=False), 1).entries == []


def test_brokers_and_where_partitions_lie_are_the_clusters(wire: WireClient, authorizer: Denying) -> None:
    authorizer.deny_cluster(AclOperation.ALTER)
    partition = ReassignablePartition(partition_index=0, replicas=[1])
    moved = [ReassignableTopic(name=SEEN, partitions=[partition])]
    reply = wire.ask(AlterPartitionReassignmentsRequest(timeout_ms=1_000, topics=moved), 1)
    assert reply.error_code == CLUSTER_FAILED
    assert [(each.name, each.partitions[0].error_code) for each in reply.responses] == [(SEEN, CLUSTER_FAILED)]
    everything = ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=None)
    assert wire.ask(everything, 0).error_code == 0
    assert wire.ask(UnregisterBrokerRequest(broker_id=99), 0).error_code == CLUSTER_FAILED
    quorum = DescribeQuorumRequest(topics=[])
    assert wire.ask(quorum, 2).error_code == 0
    authorizer.denied.clear()
    authorizer.deny_cluster(AclOperation.DESCRIBE)
    assert wire.ask(everything, 0).error_code == CLUSTER_FAILED
    assert wire.ask(quorum, 2).error_code == CLUSTER_FAILED
    named = [ListPartitionReassignmentsTopics(name=SEEN, partition_indexes=[0])]
    reply = wire.ask(ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=named), 0)
    assert (reply.error_code, [topic.name for topic in reply.topics]) == (CLUSTER_FAILED, [SEEN])
    assert wire.ask(UnregisterBrokerRequest(broker_id=99), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_topics_are_created_by_who_may_in_the_cluster_or_that_topic(wire: WireClient, authorizer: Denying) -> None:
    def create(*names: str) -> dict[str, Any]:
        wanted = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        reply = wire.ask(CreateTopicsRequest(topics=wanted, validate_only=True), 7)
        return {result.name: result for result in reply.topics}

    authorizer.deny(AclOperation.CREATE, "new")
    assert create("new")["new"].error_code == 0
    authorizer.deny_cluster(AclOperation.CREATE)
    results = create("new", "other", "twice", "twice")
    assert {name: result.error_code for name, result in results.items()} == {
        "new": TOPIC_FAILED,
        "other": 0,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert results["new"].error_message == "Authorization failed."
    authorizer.deny(AclOperation.DESCRIBE_CONFIGS, "other")
    result = create("other")["other"]
    told = (result.error_code, result.topic_config_error_code, result.num_partitions, result.replication_factor)
    assert told == (0, TOPIC_FAILED, -1, -1)
    assert result.configs == []


def test_partitions_are_added_by_who_may_alter_the_topic(wire: WireClient, authorizer: Denying) -> None:
    authorizer.deny(AclOperation.ALTER, HIDDEN, "twice")
    wanted = [CreatePartitionsTopic(name=name, count=99, assignments=None) for name in (SEEN, HIDDEN, "twice", "twice")]
    reply = wire.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=1000, validate_only=True), 3)
    codes = {result.name: result.error_code for result in reply.results}
    assert codes == {SEEN: 0, HIDDEN: TOPIC_FAILED, "twice": ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("may_describe", [True, False])
def test_who_may_not_delete_a_topic_learns_of_it_what_it_may_describe(
    wire: WireClient, authorizer: Denying, topics: dict[str, bytes], may_describe: bool
) -> None:
    authorizer.deny_cluster(AclOperation.DELETE)
    authorizer.deny(AclOperation.DELETE, HIDDEN, MISSING)
    if not may_describe:
        authorizer.deny(AclOperation.DESCRIBE, HIDDEN, MISSING)
    states = [
        DeleteTopicState(name=HIDDEN, topic_id=ZERO_UUID),
        DeleteTopicState(name=MISSING, topic_id=ZERO_UUID),
        DeleteTopicState(name=None, topic_id=b"\7" * 16),
    ]
    reply = wire.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
    assert {(result.name, result.topic_id): result.error_code for result in reply.responses} == {
        (HIDDEN, ZERO_UUID): TOPIC_FAILED,
        (MISSING, ZERO_UUID): UNKNOWN if may_describe else TOPIC_FAILED,
        (None, b"\7" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    by_id = [DeleteTopicState(name=None, topic_id=topics[HIDDEN])]
    (result,) = wire.ask(DeleteTopicsRequest(topics=by_id, timeout_ms=1000), 6).responses
    assert (result.name, result.error_code) == (HIDDEN if may_describe else None, TOPIC_FAILED)
    assert wire.produce(HIDDEN, batch(b"still there")).error_code == 0


def metadata(*topics: MetadataRequestTopic, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=list(topics) or None, allow_auto_topic_creation=create, include_topic_authorized_operations=False
    )


def test_topic_that_may_not_be_described_is_absent_from_all_and_refused_by_name_and_id(
    wire: WireClient, authorizer: Denying, topics: dict[str, bytes]
) -> None:
    authorizer.deny(AclOperation.DESCRIBE, HIDDEN, MISSING)
    seen = {topic.name for topic in wire.ask(metadata(), 12).topics}
    assert SEEN in seen
    assert HIDDEN not in seen
    named = [MetadataRequestTopic(name=name) for name in (SEEN, HIDDEN, MISSING)]
    found = {topic.name: (topic.error_code, topic.topic_id) for topic in wire.ask(metadata(*named), 12).topics}
    refused = (TOPIC_FAILED, ZERO_UUID)
    assert found == {SEEN: (0, topics[SEEN]), HIDDEN: refused, MISSING: refused}
    ids = [MetadataRequestTopic(name=None, topic_id=topics[name]) for name in (SEEN, HIDDEN)]
    by_id = {topic.topic_id: (topic.name, topic.error_code) for topic in wire.ask(metadata(*ids), 12).topics}
    assert by_id == {topics[SEEN]: (SEEN, 0), topics[HIDDEN]: (None, TOPIC_FAILED)}


def test_missing_topic_is_created_by_who_may_in_the_cluster_or_that_topic(
    pybroker: Broker, wire: WireClient, authorizer: Denying
) -> None:
    authorizer.deny_cluster(AclOperation.CREATE)
    authorizer.deny(AclOperation.CREATE, "not-for-you")
    named = [MetadataRequestTopic(name=name) for name in ("not-for-you", "for-you")]
    found = {topic.name: topic.error_code for topic in wire.ask(metadata(*named, create=True), 12).topics}
    assert found == {"not-for-you": TOPIC_FAILED, "for-you": UNKNOWN}
    by_name = pybroker._running().services.metadata
    wait_until(lambda: "for-you" in by_name.image.topics_by_name, "who may has its topic")
    assert "not-for-you" not in by_name.image.topics_by_name


def test_cluster_operations_are_told_to_who_may_describe_the_cluster(wire: WireClient, authorizer: Denying) -> None:
    request = metadata(MetadataRequestTopic(name=SEEN))
    request.include_cluster_authorized_operations = True
    assert wire.ask(request, 10).cluster_authorized_operations > 0
    authorizer.deny_cluster(AclOperation.DESCRIBE)
    assert wire.ask(request, 10).cluster_authorized_operations == 0


def test_described_partitions_leave_out_what_may_not_be_seen(wire: WireClient, authorizer: Denying) -> None:
    def describe(*names: str) -> dict[str, int]:
        wanted = [TopicRequest(name=name) for name in names]
        reply = wire.ask(DescribeTopicPartitionsRequest(topics=wanted, cursor=None), 0)
        return {topic.name: topic.error_code for topic in reply.topics}

    authorizer.deny(AclOperation.DESCRIBE, HIDDEN)
    everything = describe()
    assert everything[SEEN] == 0
    assert HIDDEN not in everything
    assert describe(SEEN, HIDDEN) == {SEEN: 0, HIDDEN: TOPIC_FAILED}
