"""The flag USED is the truth: a setting has it if, and only if, something in the source reads the setting."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pybroker
from pybroker.cluster.image.coordinator_table import COORDINATORS
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.topic_settings import TOPIC_SETTINGS, TOPIC_SYNONYMS

SOURCE = Path(pybroker.__file__).parent
# These hold the names of all settings, or name some without reading them.
MENTIONING = {
    "alter.py",
    "broker_settings.py",
    "documentation.py",
    "group_settings.py",
    "link_settings.py",
    "log_config.py",
    "names.py",
    "own_settings.py",
    "rules.py",
    "security_documentation.py",
    "security_settings.py",
    "topic_settings.py",
}

# A client's part among the broker's: a link asks for its source's tokens.
OF_CLIENTS = {"net/token_endpoint.py"}


@cache
def source() -> str:
    """The broker's source, without the modules that only mention settings, and without clients (theirs differ)."""
    paths = (path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")))
    reading = (
        path
        for path in paths
        if path.parts[0] not in {"cli", "pipeline"}
        and path.as_posix() not in OF_CLIENTS
        and (path.parts[0] != "config" or path.name not in MENTIONING)
    )
    return "\n".join((SOURCE / path).read_text() for path in reading)


def read_topic_settings() -> set[str]:
    """Topic settings whose attribute of ``LogConfig`` somebody uses, and those that the controller's rules look up."""
    by_property = {
        "cleanup.policy": ("compact", "delete"),
        "segment.bytes": ("segment_size_bytes",),
        "internal.segment.bytes": ("segment_size_bytes",),
    }
    looked_up = set(re.findall(r'Final = "([a-z.]+)"', (SOURCE / "config" / "resources.py").read_text()))
    return {
        name
        for name in TOPIC_SETTINGS
        if name in looked_up
        or any(
            re.search(rf"\.{attribute}\b", source())
            for attribute in (name.replace(".", "_"), *by_property.get(name, ()))
        )
    }


def read_broker_settings() -> set[str]:
    """Broker settings named in the source, whole or by a coordinator's first words, and those that supply the default
    of a topic setting which is read."""
    named = set(re.findall(r'"([a-z0-9.]+)"', source()))
    last_words = re.findall(r"(?:self|coordinator)\.settings\}([a-z.]+)", source())
    coordinators = {f"{each.settings}{last}" for each in COORDINATORS for last in last_words}
    defaults = {synonym for name in read_topic_settings() for synonym, _ in TOPIC_SYNONYMS.get(name, ())}
    mentioned_only = {"process.roles"}
    return {name for name in BROKER_SETTINGS if name in (named | defaults | coordinators) - mentioned_only}


def test_topic_settings_are_marked_as_used_if_they_are() -> None:
    assert {name for name, setting in TOPIC_SETTINGS.items() if setting.used} == read_topic_settings()


def test_broker_settings_are_marked_as_used_if_they_are() -> None:
    assert {name for name, setting in BROKER_SETTINGS.items() if setting.used} == read_broker_settings()
