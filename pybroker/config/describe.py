"""Describes settings: value, source, type, synonyms, read-only and sensitive flags, documentation.

Owns: the entries of DescribeConfigs for brokers, topics, groups and client-metrics subscriptions.  Pure.

Rules that clients rely on:
- ``synonyms`` lists every layer that has a value, the one that counts first.
- A setting whose own name no layer has is described with source DEFAULT_CONFIG and no synonyms, even if another unit of
  it is set.
- Passwords, and settings that Kafka does not know, are sensitive and have no value.

Counterpart in Kafka: ``kafka.server.ConfigHelper``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, GROUP_SYNONYMS
from pybroker.config.log_config import LogConfig
from pybroker.config.names import broker_setting, is_sensitive, synonym_names
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.resources import (
    BROKER,
    CLIENT_METRICS,
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC,
    TOPIC_CONFIG,
    ConfigEntry,
    Synonym,
)
from pybroker.config.schema import FIXED, STRING, UNKNOWN, VALUE_BYTES_MAX, ConfigError, Setting, value_text
from pybroker.config.topic_settings import TOPIC_SETTINGS, TOPIC_SYNONYMS
from pybroker_protocol.java_order import in_hash_map_order, string_hash
from pybroker_protocol.uuids import uuid_text

Overrides = Mapping[str, str]

_TABLES: Final = {TOPIC: TOPIC_SETTINGS, GROUP: GROUP_SETTINGS, CLIENT_METRICS: CLIENT_METRICS_SETTINGS}

# What a value has that is made of several parts: less than a reply can show, with room for the count of the rest.
SHOWN_BYTES_MAX: Final = 32_000

# What the names of settings begin with that Kafka does not know.
_OURS = "pybroker."
_MIRROR = f"{_OURS}mirror."


def described_names(resource_type: int, overrides: Iterable[str], keys: Collection[str] | None) -> list[str]:
    """Names to describe: all but the internal ones, and whatever is set; ``keys`` (None or empty: all) chooses.

    They come in Kafka's order, which has what is set and no setting of the table in front.
    """
    known = _known_names(resource_type)
    others = dict.fromkeys(name for name in overrides if name not in known)
    return [name for name in (*others, *known) if not keys or name in keys]


@cache
def _known_names(resource_type: int) -> Mapping[str, None]:
    """The table's settings but the internal ones, in the order of Kafka's table of values."""
    table = BROKER_SETTINGS if resource_type == BROKER else _TABLES[resource_type]
    names = [name for name, setting in table.items() if not setting.internal]
    return dict.fromkeys(in_hash_map_order(names, string_hash))


def broker_entries(config: BrokerConfig, keys: Collection[str] | None) -> list[ConfigEntry]:
    """Every setting of this broker."""
    set_names = [*config.static, *config.cluster_default, *config.per_broker]
    return [_broker_entry(config, name) for name in described_names(BROKER, set_names, keys)]


def broker_default_entries(config: BrokerConfig, keys: Collection[str] | None) -> list[ConfigEntry]:
    """The dynamic settings that all brokers share; only those that are set."""
    entries = []
    for name, text in config.cluster_default.items():
        if keys and name not in keys:
            continue
        setting = broker_setting(name)
        value = None if is_sensitive(setting) else text
        synonyms = (Synonym(name, value, DYNAMIC_DEFAULT_BROKER_CONFIG),)
        entries.append(_entry(name, setting, value, synonyms, _is_read_only(name)))
    return entries


def topic_entries(config: BrokerConfig, overrides: Overrides, keys: Collection[str] | None) -> list[ConfigEntry]:
    """Every setting of a topic."""
    log_config = LogConfig.from_overrides(overrides, config)
    entries = []
    for name in described_names(TOPIC, overrides, keys):
        setting = TOPIC_SETTINGS.get(name)
        value = None if setting is None else value_text(log_config.value(name))
        if name == "cleanup.policy":
            # The attribute is a set; what clients read keeps the order in which it was given.
            value = _cleanup_policy(config, overrides)
        synonyms = [Synonym(name, value, TOPIC_CONFIG)] if name in overrides else []
        if name in TOPIC_SYNONYMS:
            synonyms += broker_synonyms(config, TOPIC_SYNONYMS[name][0][0])
        entries.append(_entry(name, setting, value, synonyms))
    return entries


def mirror_entries(mirror: Any, reason: str, keys: Collection[str] | None) -> list[ConfigEntry]:
    """How a topic that a link mirrors stands, as settings that cannot be set; tools that copy settings leave them
    out."""
    shown = {
        f"{_MIRROR}link": mirror.link,
        f"{_MIRROR}topic": mirror.source_topic,
        f"{_MIRROR}topic.id": uuid_text(mirror.source_topic_id),
        f"{_MIRROR}state": mirror.state,
        f"{_MIRROR}reason": reason,
    }
    return [_shown(name, text, TOPIC_CONFIG) for name, text in shown.items() if text and (not keys or name in keys)]


def link_entries(links: Mapping[str, Any], keys: Collection[str] | None) -> list[ConfigEntry]:
    """What is known of links beside their settings: whose cluster the source is, and what is the matter, if anything.

    It cannot be set.
    """
    shown = {}
    for link, state in links.items():
        shown[f"{LINKS_PREFIX}{link}.source.cluster.id"] = state.source_cluster_id
        shown[f"{LINKS_PREFIX}{link}.problem"] = state.problem
        refused = [f"{topic}: {reason}" for topic, reason in state.refused]
        shown[f"{LINKS_PREFIX}{link}.refused"] = _some_of(refused, state.refused_more)
        shown[f"{LINKS_PREFIX}{link}.not.carried"] = _some_of(state.not_carried)
    wanted = {name: text for name, text in shown.items() if text and (not keys or name in keys)}
    return [_shown(name, text, DYNAMIC_DEFAULT_BROKER_CONFIG) for name, text in wanted.items()]


def shown_entries(shown: Mapping[str, str]) -> list[ConfigEntry]:
    """What one broker alone knows, by names that are asked for."""
    return [_shown(name, text, STATIC_BROKER_CONFIG) for name, text in shown.items()]


def _some_of(parts: Sequence[str], more: int = 0) -> str:
    """As many of them as a value may have; the others are counted, and so are ``more`` that are not there."""
    text, left = "", len(parts) + more
    for part in parts:
        longer = f"{text}; {part}" if text else part
        if text and len(longer.encode()) > SHOWN_BYTES_MAX:
            return f"{text}; and {left} more"
        text, left = longer, left - 1
    return f"{text}; and {left} more" if left else text


def _shown(name: str, text: str, source: int) -> ConfigEntry:
    """A single one that is too long is cut: without it the other settings would not be described either."""
    if len(text.encode()) > VALUE_BYTES_MAX:
        text = text.encode()[:SHOWN_BYTES_MAX].decode(errors="ignore") + "…"
    return ConfigEntry(name, text, source, STRING, read_only=True)


def new_topic_entries(config: BrokerConfig, overrides: Overrides) -> list[ConfigEntry]:
    """What CreateTopics tells of a topic, in order: the settings that Kafka knows, and others where they were given."""
    entries = topic_entries(config, overrides, None)
    return sorted(entry for entry in entries if entry.name in overrides or not entry.name.startswith(_OURS))


def group_entries(config: BrokerConfig, overrides: Overrides, keys: Collection[str] | None) -> list[ConfigEntry]:
    """Every setting of a group; a group that does not exist has the broker's."""
    entries = []
    for name in described_names(GROUP, overrides, keys):
        setting = GROUP_SETTINGS.get(name)
        broker_name = GROUP_SYNONYMS.get(name)
        default = config[broker_name] if broker_name is not None else setting.default if setting is not None else None
        value = _parsed_text(setting, overrides.get(name), default)
        synonyms = [Synonym(name, value, GROUP_CONFIG)] if name in overrides else []
        if broker_name is not None:
            synonyms += broker_synonyms(config, broker_name)
        elif setting is not None:
            synonyms.append(Synonym(name, value_text(setting.default), DEFAULT_CONFIG))
        entries.append(_entry(name, setting, value, synonyms))
    return entries


def client_metrics_entries(overrides: Overrides, keys: Collection[str] | None) -> list[ConfigEntry]:
    """Every setting of a client-metrics subscription; one that does not exist has the defaults."""
    entries = []
    for name in described_names(CLIENT_METRICS, overrides, keys):
        setting = CLIENT_METRICS_SETTINGS.get(name)
        value = _parsed_text(setting, overrides.get(name), setting.default if setting is not None else None)
        synonyms = [Synonym(name, value, CLIENT_METRICS_CONFIG)] if name in overrides else []
        entries.append(_entry(name, setting, value, synonyms))
    return entries


def broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """What each layer says about a broker's setting, the strongest layer first.

    The list starts with the first layer that knows the setting by ``name`` itself.
    """
    sensitive = is_sensitive(broker_setting(name))
    names = synonym_names(name)
    layers = (
        (config.per_broker, DYNAMIC_BROKER_CONFIG),
        (config.cluster_default, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, STATIC_BROKER_CONFIG),
    )
    synonyms = [
        Synonym(synonym, None if sensitive else layer[synonym], source)
        for layer, source in layers
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        default = _default_text(config, synonym)
        if default is not None:
            synonyms.append(Synonym(synonym, None if sensitive else default, DEFAULT_CONFIG))
    start = next((index for index, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return synonyms[start:]


def _broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    setting = broker_setting(name)
    synonyms = broker_synonyms(config, name)
    if is_sensitive(setting):
        value = None
    elif name in BROKER_SETTINGS:
        value = value_text(config[name])
    else:
        # A setting of one listener, or one that exists only while the broker runs: what was given.
        value = synonyms[0].value if synonyms else None
    return _entry(name, setting, value, synonyms, _is_read_only(name))


def _entry(
    name: str,
    setting: Setting | None,
    value: str | None,
    synonyms: Iterable[Synonym],
    read_only: bool = False,
) -> ConfigEntry:
    synonyms = tuple(synonyms)
    source = synonyms[0].source if synonyms else DEFAULT_CONFIG
    type_ = UNKNOWN if setting is None else setting.type
    return ConfigEntry(name, value, source, type_, is_sensitive(setting), read_only, synonyms)


def _is_read_only(name: str) -> bool:
    setting = broker_setting(name)
    # Kafka calls the settings of single listeners read-only, though they can be altered.
    return setting is None or setting.name != name or setting.mode == FIXED


def _default_text(config: BrokerConfig, name: str) -> str | None:
    if name in config.defaults:
        return config.defaults[name]
    setting = BROKER_SETTINGS.get(name)
    return None if setting is None else value_text(setting.default)


def _cleanup_policy(config: BrokerConfig, overrides: Overrides) -> str | None:
    setting = TOPIC_SETTINGS["cleanup.policy"]
    return _parsed_text(setting, overrides.get("cleanup.policy"), config["log.cleanup.policy"])


def _parsed_text(setting: Setting | None, text: str | None, default: object) -> str | None:
    """An override as its type prints it; one that cannot be read has no effect, so that the default counts."""
    if setting is None:
        return None
    if text is not None:
        try:
            return value_text(setting.parse(text))
        except ConfigError:
            pass
    return value_text(default)
