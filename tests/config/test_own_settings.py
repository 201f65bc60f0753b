"""pybroker's own settings: each row has a case, is read, and says what it is for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.log_config import LogConfig
from pybroker.config.own_settings import OWN_SETTINGS, OwnSetting
from pybroker.config.schema import ConfigError
from pybroker.config.topic_settings import TOPIC_SETTINGS

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# What ``scripts/new-setting`` says of a row until something reads the setting.
UNREAD: Final = "Nothing reads it yet."


class Case(NamedTuple):
    """A text that is accepted and its value, and one that is refused, where any is."""

    text: str
    value: Any
    refused: str | None = None


CASES: Final = {
    "pybroker.accept.lost.metadata": Case("true", True, "yes"),
    "pybroker.busy.poll.us": Case("50", 50, "-2"),
    "pybroker.cluster.id": Case(CLUSTER_ID, CLUSTER_ID, "short"),
    "pybroker.fsync.before.ack": Case("true", True, "yes"),
    "pybroker.fsync.enable": Case("false", False, "no"),
    "pybroker.liveness.timeout.ms": Case("0", 0, "-1"),
    "pybroker.metadata": Case("sqlite:///shared.db", "sqlite:///shared.db", "shared.db"),
    "pybroker.metadata.session.timeout.ms": Case("100", 100, "99"),
    "pybroker.metadata.zookeeper.digest": Case("user:secret", "user:secret"),
    "pybroker.validate.records": Case("true", True, "1"),
}

each_row = pytest.mark.parametrize("row", OWN_SETTINGS, ids=lambda row: row.name)


def test_each_row_has_a_case_and_a_name_of_its_own_in_order() -> None:
    names = [row.name for row in OWN_SETTINGS]
    assert names == sorted(set(names)) == sorted(CASES)
    assert all(name.startswith("pybroker.") for name in names)


@each_row
def test_value_is_taken_and_one_out_of_bounds_refused(row: OwnSetting) -> None:
    case = CASES[row.name]
    assert case.value != row.default, "a case that is told from the default"
    assert BrokerConfig()[row.name] == row.default
    assert BrokerConfig({row.name: case.text})[row.name] == case.value
    if case.refused is not None:
        with pytest.raises(ConfigError, match=row.name):
            BrokerConfig({row.name: case.refused})


@pytest.mark.parametrize("row", [row for row in OWN_SETTINGS if row.of_topics], ids=lambda row: row.name)
def test_topics_have_the_brokers_value_unless_they_have_one_of_their_own(row: OwnSetting) -> None:
    case = CASES[row.name]
    assert TOPIC_SETTINGS[row.name][:5] == BROKER_SETTINGS[row.name][:5]
    assert BrokerConfig({row.name: case.text}).log_config.value(row.name) == case.value
    assert LogConfig.from_overrides({row.name: case.text}, BrokerConfig()).value(row.name) == case.value


@each_row
def test_row_says_in_sentences_what_the_setting_is_for(row: OwnSetting) -> None:
    assert row.words.endswith(".")
    assert "\n" not in row.words
    assert (UNREAD in row.words) != BROKER_SETTINGS[row.name].has_effect
