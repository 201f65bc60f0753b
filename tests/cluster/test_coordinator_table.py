"""The rows of coordinators: what each topic begins with, and that the rows agree with the tables beside them."""

from __future__ import annotations

import pytest

from pybroker.cluster.controller.auto_topic_creation import topic_of
from pybroker.cluster.image.coordinator_table import COORDINATORS, GROUPS, TRANSACTIONS, CoordinatorType
from pybroker.config.broker import INTERNAL_TOPIC_FACTORS, BrokerConfig
from pybroker.handlers.services import Services
from pybroker.security.acl_bindings import Resource

each_coordinator = pytest.mark.parametrize("coordinator", COORDINATORS, ids=lambda each: each.name)


@each_coordinator
def test_replication_of_internal_topics_is_kafkas_but_of_a_broker_that_is_alone_and_told_nothing(
    coordinator: CoordinatorType,
) -> None:
    shared, two = {"pybroker.metadata": "sqlite:///metadata.db"}, {coordinator.factor_setting: "2"}
    found = [coordinator.replication_factor(BrokerConfig(each)) for each in ({}, two, shared, {**shared, **two})]
    assert found == [1, 2, 3, 2]


@each_coordinator
def test_every_coordinator_has_a_service_a_kind_of_resource_and_settings(coordinator: CoordinatorType) -> None:
    assert coordinator.name in Services.__slots__
    assert coordinator.resource in Resource.__members__
    assert coordinator.factor_setting in INTERNAL_TOPIC_FACTORS
    assert coordinator.partition_count(BrokerConfig()) == 50


def test_no_two_coordinators_share_a_topic_a_type_of_keys_or_a_setting() -> None:
    for column in ("name", "key_type", "topic", "settings"):
        assert len({getattr(each, column) for each in COORDINATORS}) == len(COORDINATORS)
    assert len(INTERNAL_TOPIC_FACTORS) == len(COORDINATORS)


def test_topics_of_coordinators_begin_with_kafkas_configs() -> None:
    config = BrokerConfig({"transaction.state.log.replication.factor": "3", "offsets.topic.segment.bytes": "1000"})
    assert topic_of(GROUPS, config).configs == (
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", "1000"),
    )
    assert topic_of(TRANSACTIONS, config).configs == (
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("min.insync.replicas", "2"),
        ("segment.bytes", "104857600"),
        ("unclean.leader.election.enable", "false"),
    )


def test_fewer_replicas_than_in_sync_ones_are_needed_lower_the_number_that_is_needed() -> None:
    (minimum,) = (value for name, value in topic_of(TRANSACTIONS, BrokerConfig()).configs if name.startswith("min."))
    assert minimum == "1"
