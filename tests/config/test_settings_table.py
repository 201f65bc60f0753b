"""The tables: complete, consistent, and made of plain tuples."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness.waiting import PATIENCE_S

from pybroker.config.broker_settings import (
    BROKER_SETTINGS,
    DYNAMIC_ONLY_SETTINGS,
    KAFKA_BROKER_SETTINGS,
    REQUIRED_BY_KAFKA,
)
from pybroker.config.documentation import documentation
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, GROUP_SYNONYMS
from pybroker.config.resources import BROKER, CLIENT_METRICS, GROUP, TOPIC
from pybroker.config.schema import BROKER as PER_BROKER
from pybroker.config.schema import CLUSTER, FIXED, INT, LIST, PASSWORD, value_text
from pybroker.config.topic_settings import KAFKA_TOPIC_SETTINGS, TOPIC_SETTINGS, TOPIC_SYNONYMS

TABLES = {
    BROKER: BROKER_SETTINGS | DYNAMIC_ONLY_SETTINGS,
    TOPIC: TOPIC_SETTINGS,
    GROUP: GROUP_SETTINGS,
    CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
ALL_SETTINGS = [(kind, setting) for kind, table in TABLES.items() for setting in table.values()]


def test_every_setting_of_kafka_is_there() -> None:
    counts = [len(t) for t in (KAFKA_BROKER_SETTINGS, KAFKA_TOPIC_SETTINGS, GROUP_SETTINGS, CLIENT_METRICS_SETTINGS)]
    assert counts == [379, 38, 27, 3]


def test_own_settings_have_the_prefix_of_pybroker() -> None:
    for all_of_them, kafkas in ((BROKER_SETTINGS, KAFKA_BROKER_SETTINGS), (TOPIC_SETTINGS, KAFKA_TOPIC_SETTINGS)):
        own = set(all_of_them) - set(kafkas)
        assert own
        assert all(name.startswith("pybroker.") for name in own)


@pytest.mark.parametrize(
    ("name", "type_", "default", "bounds", "mode"),
    [
        ("num.partitions", INT, 1, "[1,...]", FIXED),
        ("log.cleanup.policy", LIST, ("delete",), "[compact, delete]", CLUSTER),
        ("compression.gzip.level", INT, -1, "[1,...,9] or -1", CLUSTER),
        ("ssl.keystore.password", PASSWORD, None, "None", PER_BROKER),
    ],
)
def test_spot_checks(name: str, type_: int, default: object, bounds: str, mode: str) -> None:
    setting = BROKER_SETTINGS[name]
    assert (setting.type, setting.default, str(setting.valid), setting.mode) == (type_, default, bounds, mode)


def test_defaults_pass_their_own_bounds_and_survive_their_own_spelling() -> None:
    for _, setting in ALL_SETTINGS:
        text = value_text(setting.default)
        assert text is None or setting.parse(text) == setting.default, setting.name


def test_every_setting_is_documented_in_one_line() -> None:
    wordless = [s.name for kind, s in ALL_SETTINGS if "\n" in (documentation(kind, s.name) or "\n")]
    assert wordless == []


def test_synonyms_are_settings_of_the_broker() -> None:
    synonyms = {name for names in TOPIC_SYNONYMS.values() for name, _ in names} | set(GROUP_SYNONYMS.values())
    assert synonyms <= set(BROKER_SETTINGS)
    assert set(TOPIC_SYNONYMS) <= set(TOPIC_SETTINGS)
    assert set(GROUP_SYNONYMS) <= set(GROUP_SETTINGS)


def test_what_kafka_requires_is_acceptable() -> None:
    for name, text in REQUIRED_BY_KAFKA.items():
        BROKER_SETTINGS[name].parse(text)


def test_tables_load_neither_documentation_nor_heavy_modules() -> None:
    program = (
        "import sys; import pybroker.config.broker, pybroker.config.log_config, pybroker.config.listeners;"
        "print([m for m in ('pybroker.config.documentation', 'dataclasses', 'asyncio', 'difflib') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert result.stdout.strip() == "[]"
