"""The tables against Apache Kafka itself: a small Java program prints its definitions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from harness.apache_kafka import JARS_DIRECTORY as JARS
from harness.waiting import PATIENCE_S

from pybroker.config.broker_settings import KAFKA_BROKER_SETTINGS
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, GROUP_SYNONYMS
from pybroker.config.names import synonym_names
from pybroker.config.schema import TYPE_NAMES, Setting, value_text
from pybroker.config.topic_settings import TOPIC_SETTINGS, TOPIC_SYNONYMS
from tests.config.test_rules import ACCEPTED, REFUSED

TABLES = {
    "broker": KAFKA_BROKER_SETTINGS,
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}
NULL = "\0"
OUR_OWN = "pybroker."
# Settings of a broker whose verdict Kafka is asked for.
CASES = [settings for settings, _ in REFUSED] + ACCEPTED

# An empty list of validators is how Kafka prints "any string but null", which no text can be.
NO_BOUNDS = {NULL, "", "non-null string"}

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on the PATH"),
    pytest.mark.skipif(
        not any(JARS.glob("kafka_2.13-*.jar")), reason="Kafka's jars are missing: run scripts/kafka-jars"
    ),
]


@pytest.fixture(scope="module")
def dump() -> list[list[str]]:
    """Kafka's definitions, one list of fields per line."""
    program = Path(__file__).with_name("DumpSettings.java")
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", str(program)]
    cases = "".join("\t".join(map("=".join, case.items())) + "\n" for case in CASES)
    result = subprocess.run(command, input=cases, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return [line.split("\t") for line in result.stdout.splitlines()]


def described(setting: Setting) -> tuple[str, str, str, str, str, str]:
    bounds = "" if setting.valid is None else str(setting.valid)
    default = value_text(setting.default)
    type_ = TYPE_NAMES[setting.type]
    internal = str(setting.internal).lower()
    return type_, NULL if default is None else default, bounds, setting.importance, setting.mode, internal


@pytest.mark.parametrize("resource", TABLES)
def test_table_says_what_kafka_says(dump: list[list[str]], resource: str) -> None:
    theirs = {}
    for kind, *fields in dump:
        if kind == "setting" and fields[0] == resource:
            _, name, type_, default, bounds, importance, mode, internal = fields
            # Modes exist for brokers; the other tables hold the neutral one.
            mode = mode if resource == "broker" else "cluster-wide"
            theirs[name] = (type_, default, "" if bounds in NO_BOUNDS else bounds, importance, mode, internal)
    ours = {name: described(setting) for name, setting in TABLES[resource].items() if not name.startswith(OUR_OWN)}
    assert ours == theirs


def test_topic_synonyms_are_kafkas(dump: list[list[str]]) -> None:
    theirs: dict[str, list[tuple[str, int]]] = {}
    for kind, *fields in dump:
        if kind == "topic-synonym":
            theirs.setdefault(fields[0], []).append((fields[1], int(fields[2])))
    ours = {name: list(synonyms) for name, synonyms in TOPIC_SYNONYMS.items() if not name.startswith(OUR_OWN)}
    assert ours == theirs


def test_group_synonyms_are_kafkas(dump: list[list[str]]) -> None:
    theirs = {fields[0]: fields[1] for kind, *fields in dump if kind == "group-synonym"}
    assert theirs == GROUP_SYNONYMS


def test_names_of_one_broker_setting_are_kafkas(dump: list[list[str]]) -> None:
    theirs = {fields[0]: tuple(fields[1].split(",")) for kind, *fields in dump if kind == "broker-synonyms"}
    assert {name: synonym_names(name) for name in KAFKA_BROKER_SETTINGS} == theirs


def test_settings_that_are_refused_together_are_those_that_kafka_refuses(dump: list[list[str]]) -> None:
    verdicts = [fields[0] for kind, *fields in dump if kind == "judged"]
    assert list(zip(CASES, verdicts, strict=True)) == [
        *((settings, "refused") for settings, _ in REFUSED),
        *((settings, "accepted") for settings in ACCEPTED),
    ]
