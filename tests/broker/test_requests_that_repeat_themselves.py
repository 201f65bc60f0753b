"""A partition that a request names twice, and a topic of which it names none, are answered as Kafka answers them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from harness.batches import batch

from pybroker import limits
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pybroker_protocol.messages.produce import ProduceRequest, TopicProduceData
from pybroker_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.wire_client import WireClient

LATEST = -1


@pytest.fixture
def client(pybroker: Broker) -> Iterator[WireClient]:
    with WireClient((pybroker.host, pybroker.port)) as connected:
        yield connected


@pytest.fixture
def topic(pybroker: Broker, client: WireClient) -> str:
    """A topic of two partitions; five records lie in the first."""
    name = f"repeated-{uuid4().hex[:8]}"
    pybroker.create_topic(name, partitions=2)
    client.produce(name, batch(*[b"v"] * 5))
    return name


def latest_of(topic: str, *partitions: int) -> ListOffsetsTopic:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in partitions]
    return ListOffsetsTopic(name=topic, partitions=asked)


@pytest.mark.parametrize("in_one_topic", [True, False])
def test_an_offset_that_is_asked_for_twice_is_refused_once(client: WireClient, topic: str, in_one_topic: bool) -> None:
    twice = [latest_of(topic, 0, 0)] if in_one_topic else [latest_of(topic, 0), latest_of(topic, 0)]
    response = client.ask(ListOffsetsRequest(replica_id=-1, topics=[*twice, latest_of(topic, 1)]), 7)
    (found,) = response.topics
    codes = {each.partition_index: each.error_code for each in found.partitions}
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}
    assert len(found.partitions) == len(codes)


def records_before(topic: str, *offsets: int) -> DeleteRecordsTopic:
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
    return DeleteRecordsTopic(name=topic, partitions=asked)


@pytest.mark.parametrize("in_one_topic", [True, False])
def test_the_last_of_two_offsets_to_delete_to_counts(client: WireClient, topic: str, in_one_topic: bool) -> None:
    twice = [records_before(topic, 4, 2)] if in_one_topic else [records_before(topic, 4), records_before(topic, 2)]
    response = client.ask(DeleteRecordsRequest(topics=twice, timeout_ms=10_000), 2)
    (found,) = response.topics
    assert [(each.error_code, each.low_watermark) for each in found.partitions] == [(ErrorCode.NONE, 2)]


def test_a_topic_without_partitions_is_not_answered_for(client: WireClient, topic: str) -> None:
    offsets = client.ask(ListOffsetsRequest(replica_id=-1, topics=[latest_of(topic)]), 7)
    trimmed = client.ask(DeleteRecordsRequest(topics=[records_before(topic)], timeout_ms=10_000), 2)
    data = [TopicProduceData(name=topic, partition_data=[])]
    produced = client.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=data), 9)
    assert (offsets.topics, trimmed.topics, produced.responses) == ([], [], [])


def test_a_feature_that_is_updated_twice_is_answered_for_twice(client: WireClient) -> None:
    update = FeatureUpdateKey(feature="group.version", max_version_level=1)
    response = client.ask(UpdateFeaturesRequest(feature_updates=[update, update], validate_only=True), 1)
    assert [(each.feature, each.error_code) for each in response.results] == [("group.version", ErrorCode.NONE)] * 2


def test_offsets_of_a_topic_that_is_fetched_in_portions_stand_in_one_place(
    pybroker: Broker, client: WireClient, topic: str
) -> None:
    topic_id = pybroker._running().services.metadata.image.topics_by_name[topic].topic_id
    indexes = list(range(3 * limits.PARTITIONS_AT_ONCE))
    asked = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=partitions)
        for each, partitions in ((b"unknown " * 2, [0]), (topic_id, indexes), (b"another " * 2, [1]))
    ]
    assert client.ask(FindCoordinatorRequest(key="nobody", key_type=0), 3).error_code == ErrorCode.NONE
    group = OffsetFetchRequestGroup(group_id="nobody", topics=asked)
    (found,) = client.ask(OffsetFetchRequest(groups=[group], require_stable=False), 10).groups
    assert found.error_code == ErrorCode.NONE
    told = {each.topic_id: [partition.partition_index for partition in each.partitions] for each in found.topics}
    assert told == {each.topic_id: each.partition_indexes for each in asked}
    assert len(found.topics) == len(asked)
