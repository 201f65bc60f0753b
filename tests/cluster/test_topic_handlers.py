"""CreateTopics, DeleteTopics, CreatePartitions and UpdateFeatures, from message to message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.handlers import create_partitions, create_topics, delete_topics, update_features
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pybroker_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pybroker_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .fakes import FakeCluster


def reply(cluster: FakeCluster, handler: Any, request: Any, version: int) -> Any:
    """The reply, after it went over the wire in this version."""
    response = cluster.handle(handler, request, version)
    return codec.decode(type(response), version, codec.encode(response, version))


def topic(name: str, **fields: Any) -> CreatableTopic:
    values = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **fields}
    return CreatableTopic(name=name, **values)


def create(cluster: FakeCluster, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return reply(cluster, create_topics, request, version)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_describes_what_it_created(cluster: FakeCluster, version: int) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="5")
    created, refused = create(
        cluster, topic("a", num_partitions=3, configs=[config]), topic("b", num_partitions=0), version=version
    ).topics
    assert (created.name, created.error_code) == ("a", 0)
    assert created.error_message is None
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message
    if version >= 5:
        assert (created.num_partitions, created.replication_factor, created.topic_config_error_code) == (3, 1, 0)
        configs = {entry.name: (entry.value, entry.config_source) for entry in created.configs}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert list(configs) == sorted(configs)
        assert (refused.num_partitions, refused.replication_factor, refused.configs) == (-1, -1, [])
    if version >= 7:
        assert created.topic_id == cluster.cache.image.topics_by_name["a"].topic_id


def test_create_topics_that_only_validates_describes_what_it_would_create(cluster: FakeCluster) -> None:
    (row,) = create(cluster, topic("a", num_partitions=3), validate_only=True).topics
    assert (row.error_code, row.num_partitions) == (0, 3)
    assert row.configs
    assert not cluster.cache.image.topics_by_name


def test_create_topics_takes_manual_assignments(cluster: FakeCluster) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in (1, 0)]
    (row,) = create(cluster, topic("a", num_partitions=-1, replication_factor=-1, assignments=assignments)).topics
    assert (row.error_code, row.num_partitions) == (0, 2)


def test_create_topics_of_nothing_answers_nothing(cluster: FakeCluster) -> None:
    assert create(cluster).topics == []


def delete(cluster: FakeCluster, *states: DeleteTopicState) -> list[tuple[str | None, bytes, int]]:
    request = DeleteTopicsRequest(topics=list(states), topic_names=[], timeout_ms=1000)
    rows = reply(cluster, delete_topics, request, 6).responses
    return [(row.name, row.topic_id, row.error_code) for row in rows]


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_by_name(cluster: FakeCluster, version: int) -> None:
    create(cluster, topic("a"), topic("b"))
    request = DeleteTopicsRequest(topics=[], topic_names=["a", "nope"], timeout_ms=1000)
    rows = reply(cluster, delete_topics, request, version).responses
    assert [(row.name, row.error_code) for row in rows] == [("a", 0), ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert set(cluster.cache.image.topics_by_name) == {"b"}


def test_delete_topics_by_id_names_what_it_deleted(cluster: FakeCluster) -> None:
    create(cluster, topic("a"))
    topic_id = cluster.cache.image.topics_by_name["a"].topic_id
    rows = delete(
        cluster, DeleteTopicState(name=None, topic_id=topic_id), DeleteTopicState(name=None, topic_id=b"?" * 16)
    )
    assert rows == [("a", topic_id, 0), (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_delete_topics_needs_either_a_name_or_an_id(cluster: FakeCluster) -> None:
    create(cluster, topic("a"))
    topic_id = cluster.cache.image.topics_by_name["a"].topic_id
    rows = delete(
        cluster, DeleteTopicState(name=None, topic_id=bytes(16)), DeleteTopicState(name="a", topic_id=topic_id)
    )
    assert [row[2] for row in rows] == [ErrorCode.INVALID_REQUEST] * 2
    assert "a" in cluster.cache.image.topics_by_name


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_delete_topics_can_be_switched_off(tmp_path: Path, version: int, error: ErrorCode) -> None:
    cluster = FakeCluster(tmp_path, {"delete.topic.enable": "false"}).start()
    cluster.ask(cluster.controller.create_topics, [NewTopic("a", 1, 1)])
    request = DeleteTopicsRequest(topics=[], topic_names=["a"], timeout_ms=1000)
    (row,) = reply(cluster, delete_topics, request, version).responses
    assert (row.name, row.error_code) == ("a", error)
    assert "a" in cluster.cache.image.topics_by_name
    cluster.close()


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_answers_every_topic(cluster: FakeCluster, version: int) -> None:
    create(cluster, topic("a"), topic("b"))
    manual = [CreatePartitionsAssignment(broker_ids=[1])]
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(name="b", count=2, assignments=manual),
            CreatePartitionsTopic(name="nope", count=2, assignments=None),
        ],
        timeout_ms=1000,
        validate_only=False,
    )
    rows = reply(cluster, create_partitions, request, version).results
    assert [(row.name, row.error_code) for row in rows] == [
        ("a", 0),
        ("b", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert len(cluster.cache.image.topics_by_name["a"].partitions) == 3


def test_create_partitions_that_only_validates_grows_nothing(cluster: FakeCluster) -> None:
    create(cluster, topic("a"))
    growth = CreatePartitionsTopic(name="a", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[growth], timeout_ms=1000, validate_only=True)
    assert reply(cluster, create_partitions, request, 3).results[0].error_code == 0
    assert len(cluster.cache.image.topics_by_name["a"].partitions) == 1


def features(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=False, upgrade_type=upgrade_type)
        for name, level, upgrade_type in updates
    ]
    return UpdateFeaturesRequest(timeout_ms=1000, feature_updates=keys, validate_only=validate_only)


@pytest.mark.parametrize("version", [1, 2])
def test_update_features_answers_per_feature_up_to_version_1(cluster: FakeCluster, version: int) -> None:
    response = reply(cluster, update_features, features(("kraft.version", 1, 1)), version)
    assert response.error_code == 0
    assert len(response.results) == (1 if version == 1 else 0)
    assert cluster.cache.image.features["kraft.version"] == 1


@pytest.mark.parametrize("version", [1, 2])
def test_refused_feature_is_the_error_of_the_whole(cluster: FakeCluster, version: int) -> None:
    response = reply(cluster, update_features, features(("kraft.version", 1, 1), ("nope", 1, 1)), version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "nope" in response.error_message
    assert response.results == []


@pytest.mark.parametrize("allow_downgrade", [False, True])
def test_version_0_lowers_nothing_whatever_its_flag_says(cluster: FakeCluster, allow_downgrade: bool) -> None:
    key = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=allow_downgrade)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[key], validate_only=False)
    response = reply(cluster, update_features, request, 0)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "without setting the upgrade type" in response.error_message
    assert cluster.cache.image.features["group.version"] == 1


def test_update_features_that_only_validates_finalizes_nothing(cluster: FakeCluster) -> None:
    response = reply(cluster, update_features, features(("kraft.version", 1, 1), validate_only=True), 1)
    assert response.error_code == 0
    assert "kraft.version" not in cluster.cache.image.features
