"""A consumer reads what it may read under the topic's name, whenever this broker hears of the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker import limits
from pybroker.cluster.image.cluster_image import PartitionImage, TopicImage
from pybroker.handlers.context import Parked
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.authorizers import AnyOfType
from tests.replication.cluster import NAME, Broker, Cluster
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID

HIDDEN = "hidden"
HIDDEN_ID = b"hidden-topic's-id"[:16]
OTHER_ID = b"another-topic-id"
VERSION = 17
MANY = limits.PARTITIONS_AT_ONCE + 1


class MayRead(AnyOfType):
    """Who may read one topic."""

    def __init__(self, name: str) -> None:
        self._name = name

    def allows(self, ctx: Any, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True) -> bool:
        """See ``Authorizer``."""
        return (operation, resource_type, name) == (AclOperation.READ, Resource.TOPIC, self._name)


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """One broker, with a topic of its own."""
    return make_cluster(replicas=(1,))


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """The broker, whose clients may read that topic alone."""
    cluster.brokers[1].services.authorizer = MayRead(NAME)
    return cluster.brokers[1]


def create(cluster: Cluster, topic_id: bytes, name: str) -> None:
    """A topic with a record, of which the broker hears now."""
    topic = TopicImage(name, topic_id, (PartitionImage((1,), (1,), 1),))
    image = cluster.image
    cluster._change(
        topics_by_name={**image.topics_by_name, name: topic}, topics_by_id={**image.topics_by_id, topic_id: topic}
    )
    cluster.tell()
    partition = cluster.brokers[1].replicas.partition(name, 0)
    assert partition is not None
    partition.append(memoryview(batch([b"v"])), 1, 5_000, 13, lambda result: None)
    cluster.world.advance(0)
    assert partition.log.high_watermark == 1


def fetch(broker: Broker, *topic_ids: bytes, count: int = 1, **fields: Any) -> Any:
    indexes = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in range(count)]
    common: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": 0, "forgotten_topics_data": []}
    request = FetchRequest(
        **common | fields,
        rack_id="",
        topics=[FetchTopic(topic_id=topic_id, partitions=indexes) for topic_id in topic_ids],
    )
    return broker.serve(1, VERSION, codec.encode(request, VERSION), "CLIENTS")


def told(response: Any) -> dict[tuple[bytes, int], tuple[int, int]]:
    """Of each partition the error code and the bytes of its records."""
    assert response.error_code == 0
    return {
        (topic.topic_id, data.partition_index): (data.error_code, len(data.records or b""))
        for topic in response.responses
        for data in topic.partitions
    }


@pytest.mark.parametrize("count", [1, MANY])
def test_a_session_reads_nothing_without_permission_once_the_topic_of_its_id_is_known(
    cluster: Cluster, broker: Broker, count: int
) -> None:
    began = fetch(broker, HIDDEN_ID, count=count, session_epoch=0)
    assert told(began) == {(HIDDEN_ID, index): (ErrorCode.UNKNOWN_TOPIC_ID, 0) for index in range(count)}
    create(cluster, HIDDEN_ID, HIDDEN)
    resumed = fetch(broker, session_id=began.session_id, session_epoch=1)
    assert told(resumed) == {(HIDDEN_ID, index): (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0) for index in range(count)}


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("authorizer", [None, MayRead(HIDDEN)], ids=["no authorizer", "may read"])
def test_a_session_reads_with_permission_once_the_topic_of_its_id_is_known(
    cluster: Cluster, broker: Broker, count: int, authorizer: MayRead | None
) -> None:
    broker.services.authorizer = authorizer
    began = fetch(broker, HIDDEN_ID, count=count, session_epoch=0)
    create(cluster, HIDDEN_ID, HIDDEN)
    error, size = told(fetch(broker, session_id=began.session_id, session_epoch=1))[HIDDEN_ID, 0]
    assert not error
    assert size


def test_a_fetch_that_waits_reads_nothing_of_a_topic_whose_id_gets_known_meanwhile(
    cluster: Cluster, broker: Broker
) -> None:
    waits = fetch(broker, TOPIC_ID, HIDDEN_ID, session_epoch=0, max_wait_ms=5_000)
    assert isinstance(waits, Parked)
    create(cluster, HIDDEN_ID, HIDDEN)
    assert not waits.completed
    broker.produce()
    cluster.world.advance(0)
    answered = told(waits.response)
    assert answered[TOPIC_ID, 0][1]
    assert answered[HIDDEN_ID, 0] == (ErrorCode.UNKNOWN_TOPIC_ID, 0)


def test_a_session_reads_nothing_of_a_topic_that_was_made_anew_under_the_name_of_its_own(
    cluster: Cluster, broker: Broker
) -> None:
    began = fetch(broker, TOPIC_ID, session_epoch=0)
    cluster.delete_topic()
    create(cluster, OTHER_ID, NAME)
    resumed = fetch(broker, session_id=began.session_id, session_epoch=1)
    assert told(resumed) == {(TOPIC_ID, 0): (ErrorCode.UNKNOWN_TOPIC_ID, 0)}
