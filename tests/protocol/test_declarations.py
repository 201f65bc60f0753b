"""Every declaration says what Kafka's own definition says: types, versions, tags, defaults, nullability, keys."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from harness.apache_kafka import JARS_VARIABLE

from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.schema import Request

from .kafka_definitions import (
    Differences,
    defined_versions,
    definitions_of_jars,
    definitions_of_kafka_python,
    jars,
)
from .message_classes import message_classes

needs_jars = pytest.mark.skipif(
    not jars(), reason=f"Kafka's jars are not here: run scripts/kafka-jars or set {JARS_VARIABLE}"
)


@pytest.mark.parametrize("name", sorted(definitions_of_kafka_python()))
def test_declaration_agrees_with_the_definition_in_kafka_python(name: str) -> None:
    definition = definitions_of_kafka_python()[name]
    assert Differences(definition, message_classes()[name]).found == []


@needs_jars
def test_declarations_agree_with_the_definitions_in_the_jars() -> None:
    definitions = definitions_of_jars()
    found = [line for name, d in definitions.items() for line in Differences(d, message_classes()[name]).found]
    assert not found, "\n".join(found)


@needs_jars
def test_declarations_have_all_messages_and_versions_of_kafka_and_no_others() -> None:
    definitions = definitions_of_jars()
    assert sorted(message_classes()) == sorted(definitions)
    for name, definition in definitions.items():
        assert message_classes()[name].__declaration__.versions == defined_versions(definition), name


@pytest.mark.parametrize(
    "change",
    [
        {"type": "int64"},
        {"versions": "1+"},
        {"nullableVersions": "0+"},
        {"tag": 0, "taggedVersions": "4+"},
        {"default": "7"},
        {"mapKey": True},
        {"name": "GenerationNumber"},
    ],
    ids=str,
)
def test_comparison_notices_a_different_field(change: dict[str, Any]) -> None:
    definition = deepcopy(definitions_of_kafka_python()["HeartbeatRequest"])
    definition["fields"][1] |= change
    assert Differences(definition, message_classes()["HeartbeatRequest"]).found


def test_comparison_notices_what_is_ignorable_and_what_is_flexible() -> None:
    definition = deepcopy(definitions_of_kafka_python()["HeartbeatRequest"])
    definition["fields"][3]["ignorable"] = True
    assert Differences(definition, message_classes()["HeartbeatRequest"]).found
    definition = definitions_of_kafka_python()["HeartbeatRequest"] | {"flexibleVersions": "3+"}
    assert Differences(definition, message_classes()["HeartbeatRequest"]).found


def test_every_key_has_a_name_and_both_messages() -> None:
    assert len(NAMES) == 91
    requests = [cls for cls in message_classes().values() if issubclass(cls, Request)]
    assert len(requests) == len(NAMES)
    assert all(cls.__name__ == f"{NAMES[cls.__declaration__.key or 0]}Request" for cls in requests)
