"""Offsets of sinks, which are their groups', told and changed at a broker (KIP-875)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition

from pybroker.connectors.supervision.connector_offsets import GroupOffsets, OffsetsRefused, SinkOffsets
from pybroker.testing import Broker


@pytest.fixture
def groups(pybroker: Broker) -> GroupOffsets:
    return GroupOffsets({"bootstrap.servers": pybroker.bootstrap})


@pytest.fixture
def topic(pybroker: Broker) -> str:
    name = f"t-{uuid4()}"
    pybroker.create_topic(name, partitions=3)
    return name


def told(groups: GroupOffsets, group: str) -> dict[tuple[str, int], int]:
    return {
        (each["partition"]["kafka_topic"], each["partition"]["kafka_partition"]): each["offset"]["kafka_offset"]
        for each in groups.documents(group)
    }


def test_an_offset_that_is_forgotten_takes_no_other_one_with_it(groups: GroupOffsets, topic: str) -> None:
    pytest.importorskip("pyspark")  # of the pipeline's module of groups
    groups.alter("g", SinkOffsets([TopicPartition(topic, number, 5 + number) for number in range(3)], ()))
    assert told(groups, "g") == {(topic, 0): 5, (topic, 1): 6, (topic, 2): 7}
    groups.alter("g", SinkOffsets([TopicPartition(topic, 2, 1)], [(topic, 0), ("no such topic", 4)]))
    assert told(groups, "g") == {(topic, 1): 6, (topic, 2): 1}
    starting: dict[str, Any] = json.loads(groups.starting_offsets("g", [topic], "latest"))
    assert starting == {topic: {"0": -1, "1": 6, "2": 1}}
    starting = json.loads(groups.starting_offsets("g", [topic], "earliest"))
    assert starting == {topic: {"0": -2, "1": 6, "2": 1}}
    groups.alter("g", SinkOffsets((), [(topic, 1), (topic, 2)]))
    assert told(groups, "g") == {}
    assert groups.starting_offsets("g", [topic], "latest") == "latest"


def test_a_partition_that_is_not_there_changes_nothing(groups: GroupOffsets, topic: str) -> None:
    groups.alter("h", SinkOffsets([TopicPartition(topic, 0, 5)], ()))
    with pytest.raises(OffsetsRefused, match=f"there is no partition {topic}-3"):
        groups.alter("h", SinkOffsets([TopicPartition(topic, 3, 5)], [(topic, 0)]))
    assert told(groups, "h") == {(topic, 0): 5}
    groups.reset("h")
    groups.reset("h")
    assert told(groups, "h") == {}
