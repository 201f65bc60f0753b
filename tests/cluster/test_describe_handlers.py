"""DescribeCluster and DescribeTopicPartitions, from message to message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.image.cluster_image import BrokerRegistration, Endpoint, ImageBuilder
from pybroker.handlers import describe_cluster, describe_topic_partitions
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)

from .fakes import CLUSTER_ID, FakeCluster


def describe(cluster: FakeCluster, version: int = 2, listener: str = "PLAINTEXT", **fields: Any) -> Any:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    for name, value in fields.items():
        setattr(request, name, value)
    response = cluster.handle(describe_cluster, request, version, listener)
    return codec.decode(type(response), version, codec.encode(response, version))


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_answers_by_the_listener(cluster: FakeCluster, version: int) -> None:
    response = describe(cluster, version, listener="OTHER")
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 1)
    assert [(broker.broker_id, broker.host, broker.port) for broker in response.brokers] == [(1, "other.example", 9999)]
    assert response.cluster_authorized_operations == -(2**31)


def test_describe_cluster_gives_operations_when_asked(cluster: FakeCluster) -> None:
    assert describe(cluster, include_cluster_authorized_operations=True).cluster_authorized_operations == 8096


def test_fenced_brokers_are_shown_only_where_asked_for(cluster: FakeCluster) -> None:
    builder = ImageBuilder(cluster.cache.image)
    builder.put_broker(BrokerRegistration(2, 0, bytes(16), {"PLAINTEXT": Endpoint("dead", 1)}, fenced=True))
    cluster.cache.apply(*builder.build(cluster.cache.image.epoch + 1))
    assert [broker.broker_id for broker in describe(cluster).brokers] == [1]
    shown = describe(cluster, include_fenced_brokers=True).brokers
    assert [(broker.broker_id, broker.is_fenced) for broker in shown] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_endpoint_of_another_type_is_refused(cluster: FakeCluster, endpoint_type: int, error: ErrorCode) -> None:
    response = describe(cluster, endpoint_type=endpoint_type)
    assert (response.error_code, response.brokers) == (error, [])
    assert response.error_message


def page(
    cluster: FakeCluster, names: tuple[str, ...] = (), limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    at = None
    if cursor is not None:
        at = DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=at
    )
    response = cluster.handle(describe_topic_partitions, request, 0)
    return codec.decode(type(response), 0, codec.encode(response, 0))


def shown(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [row.partition_index for row in topic.partitions]) for topic in response.topics]


def next_page(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def three(cluster: FakeCluster) -> FakeCluster:
    """Topics a, b and c, with 1, 2 and 3 partitions."""
    topics = [NewTopic(name, count, 1) for name, count in (("c", 3), ("a", 1), ("b", 2))]
    cluster.ask(cluster.controller.create_topics, topics)
    return cluster


def test_all_topics_are_described_in_the_order_of_their_names(three: FakeCluster) -> None:
    response = page(three)
    assert shown(response) == [("a", [0]), ("b", [0, 1]), ("c", [0, 1, 2])]
    assert response.next_cursor is None
    topic = response.topics[0]
    assert (topic.error_code, topic.topic_authorized_operations, topic.is_internal) == (0, 3576, False)
    (row,) = topic.partitions
    assert (row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) == (1, 0, [1], [1])
    assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([], [], [])


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_together_show_every_partition_once(three: FakeCluster, limit: int) -> None:
    seen, cursor = [], None
    for _ in range(10):
        response = page(three, limit=limit, cursor=cursor)
        rows = [(name, index) for name, indexes in shown(response) for index in indexes]
        assert 0 < len(rows) <= limit
        seen += rows
        cursor = next_page(response)
        if cursor is None:
            break
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2)]


def test_limit_of_the_broker_holds_too(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"max.request.partition.size.limit": "2"}).start()
    cluster.ask(cluster.controller.create_topics, [NewTopic("a", 5, 1)])
    response = page(cluster, limit=1000)
    assert (shown(response), next_page(response)) == ([("a", [0, 1])], ("a", 2))
    cluster.close()


def test_limit_of_nothing_still_shows_one_partition(three: FakeCluster) -> None:
    assert shown(page(three, limit=0)) == [("a", [0])]


def test_names_that_are_unknown_or_invalid_are_errors_in_their_place(three: FakeCluster) -> None:
    response = page(three, ("nope", "a", "a b"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", 0),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_cursor_behind_the_last_partition_shows_none_of_its_topic(three: FakeCluster) -> None:
    assert shown(page(three, ("a", "b"), cursor=("a", 9))) == [("a", []), ("b", [0, 1])]


def test_cursor_at_a_topic_that_is_gone_starts_with_the_next_one(three: FakeCluster) -> None:
    assert shown(page(three, cursor=("aa", 1)))[0] == ("b", [0, 1])


@pytest.mark.parametrize(("names", "cursor"), [(("a",), ("b", 0)), (("a",), ("a", -1))])
def test_cursor_that_makes_no_sense_is_refused(
    three: FakeCluster, names: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    response = page(three, names, cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.INVALID_REQUEST)]
