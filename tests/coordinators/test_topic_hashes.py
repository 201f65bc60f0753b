"""The hash that notices changed topics."""

from __future__ import annotations

import pytest

from pybroker.coordinators.group.topic_hashes import group_metadata_hash, topic_hash

TOPIC_ID = bytes(range(16))


# Answers of Apache Kafka 4.3.1 (test_assignors_against_kafka asks it anew).
@pytest.mark.parametrize(
    ("name", "racks", "kafkas"),
    [
        ("t", [[]], 3950613343815327311),
        ("orders.eu", [["rack-1"], ["rack-2", "rack-1"]], 2933027616447355590),
        ("x" * 249, [["a", "b", "b"]] * 10, 3330761734266896193),
    ],
)
def test_the_hash_of_a_topic_is_kafkas(name: str, racks: list[list[str]], kafkas: int) -> None:
    assert topic_hash(TOPIC_ID, name, racks) == kafkas


@pytest.mark.parametrize(
    ("hashes", "kafkas"),
    [
        ({}, 0),
        ({"a": 1}, 3439722301264460078),
        ({"a": 1, "b": -2}, 1559002273794826001),
        ({"b": 3, "a": -(2**63), "c": 2**63 - 1}, 7471545271790073230),
        ({f"t{i}": i * 7919 for i in range(40)}, 2587499329099430084),
    ],
)
def test_the_hash_of_a_groups_topics_is_kafkas(hashes: dict[str, int], kafkas: int) -> None:
    assert group_metadata_hash(hashes) == kafkas


def test_the_hash_does_not_depend_on_the_order_of_racks_or_topics() -> None:
    assert topic_hash(TOPIC_ID, "t", [["b", "a"]]) == topic_hash(TOPIC_ID, "t", [["a", "b"]])
    assert group_metadata_hash({"a": 1, "b": 2}) == group_metadata_hash({"b": 2, "a": 1})


def test_the_hash_tells_every_change_of_a_topic() -> None:
    hashes = [
        topic_hash(TOPIC_ID, "t", [["a"]]),
        topic_hash(TOPIC_ID[::-1], "t", [["a"]]),
        topic_hash(TOPIC_ID, "u", [["a"]]),
        topic_hash(TOPIC_ID, "t", [["a"], ["a"]]),
        topic_hash(TOPIC_ID, "t", [["b"]]),
        topic_hash(TOPIC_ID, "t", [["a", "a"]]),
        topic_hash(TOPIC_ID, "t", [[]]),
    ]
    assert len(set(hashes)) == len(hashes)
