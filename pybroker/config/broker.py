"""The broker's settings as they stand now: layers over defaults, typed and checked.

Owns: ``BrokerConfig``, the order of the layers, which defaults differ from Kafka's, and the messages about unknown
and idle settings.  Owns no table (``broker_settings``) and no persistence: dynamic layers are handed in.

Layers, the later wins: defaults (Kafka's, changed by ``--dev``) <- file <- command line <- dynamic default of all
brokers <- dynamic settings of this broker.

Invariants:
- Every static value was parsed and checked at construction, by itself and with the others (``rules``).
- A dynamic value that cannot be accepted, or breaks a rule, is logged and ignored, so a bad record never stops a
  broker.
- ``config[name]`` is one dict look-up.

Counterpart in Kafka: ``AbstractKafkaConfig`` and ``DynamicBrokerConfig``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY_SETTINGS, REQUIRED_BY_KAFKA
from pybroker.config.named_files import read_named_file
from pybroker.config.names import (
    LISTENER_PREFIX,
    OF_PROVIDERS,
    OF_THE_AUTHORIZER,
    PROVIDERS,
    base_name,
    broker_setting,
    is_sensitive,
)
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.properties import parse_properties
from pybroker.config.rules import absolute_paths, broken_rule, check_together
from pybroker.config.schema import BuiltIn, ConfigError, Setting, WrongArgument, too_long
from pybroker.config.secret_files import tell_of_exposed_settings
from pybroker.config.topic_settings import TOPIC_SYNONYMS
from pybroker.config.without_effect import suggestion, tell_without_effect
from pybroker.limits import QUEUED_REQUEST_BYTES

if TYPE_CHECKING:
    from pybroker.config.log_config import LogConfig

log = logging.getLogger("pybroker.config")

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_DEFAULTS: Final[dict[str, Any]] = {
    name: setting.default for name, setting in {**BROKER_SETTINGS, **DYNAMIC_ONLY_SETTINGS}.items()
}


class OverriddenDefault(NamedTuple):
    """A default that differs from Kafka's, for the table of docs/reference.md; ``when`` is "always" or a condition."""

    names: str
    default: str
    when: str
    reason: str


def _of_internal_topics(name: str) -> tuple[str, ...]:
    """The settings of coordinators' topics whose names end so; ``default.`` is for all other topics."""
    return tuple(
        each
        for each, setting in BROKER_SETTINGS.items()
        if each.endswith(f".{name}") and setting.has_effect and not each.startswith("default.")
    )


INTERNAL_TOPIC_FACTORS: Final = _of_internal_topics("replication.factor")

OVERRIDDEN_DEFAULTS: Final = (
    OverriddenDefault(
        ", ".join(INTERNAL_TOPIC_FACTORS),
        "1",
        "without `pybroker.metadata`",
        "one broker alone serves groups without a setting",
    ),
    OverriddenDefault("node.id", "1", "always", "Kafka has no default; a single broker needs none"),
    OverriddenDefault("process.roles", "broker,controller", "always", "Kafka has no default; every broker can do both"),
    OverriddenDefault(
        "controller.listener.names", "CONTROLLER", "always", "Kafka has no default; such listeners are skipped"
    ),
    OverriddenDefault(
        "socket.receive.buffer.bytes",
        "the kernel's own tuning",
        "always",
        "large batches cost less CPU; a value that is set is used",
    ),
    OverriddenDefault(
        "socket.send.buffer.bytes",
        "524288",
        "always",
        "faster bulk fetches than with the kernel's own tuning, which -1 leaves on, for clients far away",
    ),
    OverriddenDefault("socket.listen.backlog.size", "1024", "always", "a thousand clients may come at once"),
    OverriddenDefault(
        "queued.max.request.bytes",
        f"{QUEUED_REQUEST_BYTES} (256 MB)",
        "where it is unset or -1",
        "requests that are received cannot fill the memory; Kafka has no bound there",
    ),
    OverriddenDefault("group.initial.rebalance.delay.ms", "0", "--dev", "a test does not wait for further members"),
    OverriddenDefault(", ".join(_of_internal_topics("num.partitions")), "5", "--dev", "fewer files and buffers"),
    OverriddenDefault("pybroker.fsync.enable", "false", "--dev", "the data of a test need not survive power loss"),
)

DEV_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {name: row.default for row in OVERRIDDEN_DEFAULTS if row.when == "--dev" for name in row.names.split(", ")}
)


def internal_topic_factors(brokers: int) -> dict[str, str]:
    """What to set where it is known how many brokers a cluster is to have: Kafka's default, or their number if less."""
    return {name: str(min(brokers, _DEFAULTS[name])) for name in INTERNAL_TOPIC_FACTORS}


class BrokerConfig:
    """Typed look-ups over the layers: ``config["num.partitions"]``, or ``get_int`` and its sisters for type checkers.

    ``static`` has what the operator set, in a file and on the command line, completed by what Kafka requires;
    ``defaults`` replaces some of Kafka's.  Raises ``ConfigError`` for a value that cannot be accepted; unknown names
    are kept, never read.
    """

    __slots__ = ("_given", "_log_config", "_values", "cluster_default", "defaults", "per_broker", "static")

    def __init__(self, static: Mapping[str, str] = NOTHING, *, defaults: Mapping[str, str] = NOTHING) -> None:
        self._given = frozenset(static)
        # The two names of one thing: what is set under one holds for the other (Kafka's populateSynonyms).
        node_id = static.get("node.id", static.get("broker.id", REQUIRED_BY_KAFKA["node.id"]))
        self.static: Mapping[str, str] = {**REQUIRED_BY_KAFKA, "broker.id": node_id, **static, "node.id": node_id}
        self.defaults = defaults
        self.cluster_default: Mapping[str, str] = NOTHING
        self.per_broker: Mapping[str, str] = NOTHING
        self._log_config: LogConfig | None = None
        self._values = self._combine()

    @classmethod
    def load(
        cls,
        *,
        config_file: str | None = None,
        settings: Iterable[tuple[str, str]] = (),
        listen: Sequence[str] = (),
        data_dir: str | None = None,
        dev: bool = False,
    ) -> BrokerConfig:
        """The settings of one ``pybroker serve``: ``settings`` from ``--set``, ``listen`` from ``--listen``.

        Both arguments win over the file; in ``settings``, too, they would be a second answer to one question.  Raises
        ``WrongArgument`` (such a second answer, an unknown name in ``settings``, no address in ``listen``), and
        ``ConfigError`` for the rest (a bad value, an unreadable file).
        """
        static: dict[str, str] = {}
        if config_file is not None:
            static.update(_read_file(config_file))
        for name, value in settings:
            require_known(name)
            if data_dir is not None and name in ("log.dir", "log.dirs"):
                raise WrongArgument(f"the data directory {data_dir} and the setting {name} exclude each other")
            if listen and name == "listeners":
                raise WrongArgument(f"listening on {', '.join(listen)} and the setting {name} exclude each other")
            static[name] = value
        if PROVIDERS in static or any("${" in text for text in static.values()):
            from pybroker.config.providers import resolve

            static = resolve(static)
        if data_dir is not None:
            static.pop("log.dir", None)
            static["log.dirs"] = data_dir  # a list, as of every log.dirs
        if listen:
            from pybroker.config.listeners import settings_of_arguments

            static.update(settings_of_arguments(listen, static))
        _require_text(static)
        config = cls(static, defaults=DEV_DEFAULTS if dev else NOTHING)
        _check_names_of_parts(static)
        tell_without_effect(static, config.static)
        return config

    # --- look-ups --------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get_int(self, name: str) -> int:
        """A setting of type INT, SHORT or LONG that has a value."""
        value: int = self._values[name]
        return value

    def get_bool(self, name: str) -> bool:
        """A setting of type BOOLEAN."""
        value: bool = self._values[name]
        return value

    def get_float(self, name: str) -> float:
        """A setting of type DOUBLE."""
        value: float = self._values[name]
        return value

    def get_str(self, name: str) -> str:
        """A setting of type STRING, CLASS or PASSWORD that has a value."""
        value: str = self._values[name]
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """A setting of type LIST that has a value."""
        value: tuple[str, ...] = self._values[name]
        return value

    def is_set(self, name: str) -> bool:
        """Whether it was set, in a file, on the command line or at run time."""
        return name in self._given or name in self.cluster_default or name in self.per_broker

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self.get_int("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Directories of the logs: ``log.dirs``, else ``log.dir``."""
        dirs: tuple[str, ...] = self._values["log.dirs"] or self._values["log.dir"]
        return dirs

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """The absolute paths of those log dirs that take no new replicas (KIP-1066); ``*`` is all of them."""
        cordoned = self._values["cordoned.log.dirs"]
        return absolute_paths(self.log_dirs if cordoned == ("*",) else cordoned)

    @property
    def log_config(self) -> LogConfig:
        """What a topic without overrides has; one object until a broker setting changes."""
        if self._log_config is None:
            from pybroker.config.log_config import LogConfig

            self._log_config = LogConfig.of_values(self.topic_defaults())
        return self._log_config

    def topic_defaults(self) -> dict[str, Any]:
        """What the broker's settings say for topic settings, by the topic's names (Kafka's ``extractLogConfigMap``)."""
        defaults: dict[str, Any] = {}
        for name, synonyms in TOPIC_SYNONYMS.items():
            for broker_name, factor in synonyms:
                value = self._values[broker_name]
                if value is not None:
                    defaults[name] = value if factor == 1 else value * factor
                    break
        # Kafka takes any negative retention of a broker for "no limit".
        defaults["retention.ms"] = max(defaults["retention.ms"], -1)
        return defaults

    # --- changes ---------------------------------------------------------------------------------------------------

    def adopt_node_id(self, node_id: int) -> None:
        """The data directory knows better than the default which node this is."""
        self.static = {**self.static, "node.id": str(node_id), "broker.id": str(node_id)}
        self._values = self._combine()

    def apply_dynamic(self, cluster_default: Mapping[str, str], per_broker: Mapping[str, str]) -> frozenset[str]:
        """Replace both dynamic layers; returns the names whose value changed.  Effective at once."""
        before, own_before = self._values, self.per_broker
        layers = {*self.cluster_default.items(), *own_before.items()}
        new = [name for name, text in (*cluster_default.items(), *per_broker.items()) if (name, text) not in layers]
        tell_without_effect(new, {**self.static, **cluster_default, **per_broker})
        self.cluster_default = cluster_default
        self.per_broker = per_broker
        self._values = self._combine()
        self._log_config = None
        of_listeners = (name for name in {**own_before, **per_broker} if name.startswith(LISTENER_PREFIX))
        return frozenset(
            (
                *(name for name, value in self._values.items() if before[name] != value),
                *(name for name in of_listeners if own_before.get(name) != per_broker.get(name)),
            )
        )

    def with_dynamic(self, cluster_default: Mapping[str, str], per_broker: Mapping[str, str]) -> BrokerConfig:
        """What the settings would be with these dynamic layers; raises ``ConfigError`` when they do not go together."""
        candidate = BrokerConfig(self.static, defaults=self.defaults)
        candidate.cluster_default = cluster_default
        candidate.per_broker = per_broker
        candidate._values = candidate._with_dynamic_layers(self._static_values())
        check_together(candidate)
        return candidate

    def snapshot(self) -> BrokerConfig:
        """These settings as they are now, for a thread: this object changes on the loop."""
        return copy(self)

    def _combine(self) -> dict[str, Any]:
        static = self._static_values()
        return _sound(self._with_dynamic_layers(static), static)

    def _static_values(self) -> dict[str, Any]:
        values = dict(_DEFAULTS)
        for layer in (self.defaults, self.static):
            for name, text in layer.items():
                if name in BROKER_SETTINGS:
                    values[name] = BROKER_SETTINGS[name].parse(text)
        return values

    def _with_dynamic_layers(self, static: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(static)
        for layer in (self.cluster_default, self.per_broker):
            for name, text in layer.items():
                setting = BROKER_SETTINGS.get(name) or DYNAMIC_ONLY_SETTINGS.get(name)
                if setting is not None:
                    values[name] = _parse_dynamic(setting, text, values[name])
        return values


def _parse_dynamic(setting: Setting, text: str, current: Any) -> Any:
    try:
        return setting.parse(text)
    except ConfigError as error:
        log.warning("dynamic setting ignored: %s", error)
        return current


def _sound(values: dict[str, Any], static: Mapping[str, Any]) -> dict[str, Any]:
    """``values``, but the static ones of settings whose dynamic values break a rule (an older version's store)."""
    while (rule := broken_rule(values)) is not None:
        ignored = {name: static[name] for name in rule.names if values[name] != static[name]}
        if not ignored:
            raise ConfigError(rule.says(values))
        log.warning("dynamic settings ignored: %s: %s", ", ".join(ignored), rule.says(values))
        values.update(ignored)
    return values


def _check_names_of_parts(static: Mapping[str, str]) -> None:
    """ConfigError for what a setting of a link must not say, nor one of a listener, also where that is none."""
    for name, text in static.items():
        of_a_link = broker_setting(name) if name.startswith(LINKS_PREFIX) else None
        if of_a_link is not None:
            of_a_link.parse(text)
        setting = broker_setting(name) if name.startswith(LISTENER_PREFIX) else None
        if setting is not None and isinstance(setting.valid, BuiltIn):
            setting._replace(name=name).parse(text)


_DIRECTORIES = frozenset(("log.dir", "log.dirs", "metadata.log.dir"))
_FILE: Final = "--config"
_SHOWN_CHARS: Final = 40


def _read_file(path: str) -> dict[str, str]:
    data = read_named_file(path, _FILE)
    if b"\0" in data:
        raise ConfigError(f"{_FILE}: {path} is no text")
    try:
        settings = parse_properties(data.decode(errors="surrogateescape"))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    _require_settings(path, settings)
    tell_of_exposed_settings(path, settings)
    return settings


def _require_settings(path: str, settings: Mapping[str, str]) -> None:
    """ConfigError for a file of something else: a broker that went on would serve by its defaults, on all addresses."""
    for name in settings:
        if not name.isprintable():
            raise ConfigError(f"{_FILE}: {path}: {_shortened(name)} is no name of a setting")
    if not settings:
        log.warning("%s sets nothing: all settings have their defaults", path)
    elif not any(_is_known(name) or name in DYNAMIC_ONLY_SETTINGS for name in settings):
        first = next(iter(settings))
        raise ConfigError(
            f"{_FILE}: {path} sets nothing that is known here: {_shortened(first)} is no setting{suggestion(first)}"
        )


def _shortened(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]!r}…"


def _require_text(settings: Mapping[str, str]) -> None:
    """Names of directories may be any bytes; clients read everything else, and what is no secret is shown to them."""
    for name, value in settings.items():
        if name not in _DIRECTORIES and base_name(name) is not None:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ConfigError(f"the value of {name} is not UTF-8") from None
        if not is_sensitive(broker_setting(name)) and (message := too_long(name, value)) is not None:
            raise ConfigError(message)


def _is_known(name: str) -> bool:
    if base_name(name) is not None or name in OF_THE_AUTHORIZER or name.startswith(OF_PROVIDERS):
        return True
    return name.startswith(LINKS_PREFIX) and broker_setting(name) is not None


def require_known(name: str) -> None:
    """WrongArgument for what is no setting that a start takes."""
    if _is_known(name):
        return
    if name in DYNAMIC_ONLY_SETTINGS:
        raise WrongArgument(f"'{name}' can only be set while the broker runs, with kafka-configs or its like")
    raise WrongArgument(f"unknown setting '{name}'{suggestion(name)}")
