"""Decides what a request to change settings comes to: new overrides, or an error for that resource.

Owns: the four operations, and the rules for each resource type.  Pure: it reads overrides and settings, and writes
nothing (``config_service`` does).

Counterparts in Kafka: ``ConfigAdminManager``, ``ConfigurationControlManager``, ``ControllerConfigurationValidator``,
``DynamicBrokerConfig.validate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pybroker.config.broker import NOTHING, BrokerConfig
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, GROUP_SYNONYMS
from pybroker.config.log_config import validate_topic_configs
from pybroker.config.names import LISTENER_PREFIX, OF_PROVIDERS, PROVIDERS, base_name, broker_setting
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.providers import refers_elsewhere
from pybroker.config.resources import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    OPERATION_NAMES,
    SET,
    SUBTRACT,
    TOPIC,
    Alteration,
    AlterConfigOp,
    ConfigChange,
    ConfigFailure,
)
from pybroker.config.rules import check_change
from pybroker.config.schema import BROKER as PER_BROKER
from pybroker.config.schema import FIXED, LIST, ConfigError, Setting, list_text, parse_value, too_long, value_text
from pybroker.config.topic_settings import TOPIC_SETTINGS
from pybroker_protocol.errors import ErrorCode

Overrides = Mapping[str, str]

_PUSH_INTERVAL_MIN_MS: Final = 100
_PUSH_INTERVAL_MAX_MS: Final = 3_600_000
# What a client-metrics subscription may match clients by (ClientMetricsConfigs.ALLOWED_MATCH_PARAMS).
MATCH_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
# Kafka moves a listener while it runs; here the sockets stay as they were opened.
_NOT_WHILE_RUNNING: Final = ("listeners", "listener.security.protocol.map")
# Dynamic only for one listener: the plain setting would hold for all of them.
_SECURITY_PREFIXES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")


def refuse_malformed(alteration: Alteration) -> None:
    """Raise ``ConfigFailure`` for what no resource type allows: a setting named twice, a value that is null."""
    operations = alteration.operations
    if len({operation.name for operation in operations}) < len(operations):
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [operation.name for operation in operations if operation.value is None and operation.kind != DELETE]
    if nulls:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    for operation in operations:
        if operation.kind not in (SET, DELETE, APPEND, SUBTRACT):
            raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation.kind}")


def change_topic(alteration: Alteration, current: Overrides, config: BrokerConfig, exists: bool) -> ConfigChange:
    """New overrides of a topic."""
    if not alteration.resource_name:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    updates = _updates(alteration, current, TOPIC_SETTINGS.get)
    message = validate_topic_configs(_merged(alteration, current, updates), config)
    if message is not None:
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, message)
    if not exists:
        message = f"The topic '{alteration.resource_name}' does not exist."
        raise ConfigFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return ConfigChange(TOPIC, alteration.resource_name, updates, alteration.replace)


def change_group(alteration: Alteration, current: Overrides, config: BrokerConfig) -> ConfigChange:
    """New overrides of a group, which need not exist."""
    if not alteration.resource_name:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    updates = _updates(alteration, current, GROUP_SETTINGS.get)
    try:
        validate_group_configs(_merged(alteration, current, updates), config)
    except ConfigError as error:
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, str(error)) from error
    return ConfigChange(GROUP, alteration.resource_name, updates, alteration.replace)


def change_client_metrics(alteration: Alteration, current: Overrides) -> ConfigChange:
    """New settings of a client-metrics subscription, which comes into being by having some."""
    if not alteration.resource_name:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    # Kafka's controller knows no types for these settings, so that none of them can be appended to.
    updates = _updates(alteration, current, lambda name: None)
    merged = _merged(alteration, current, updates)
    for name in merged:
        if name not in CLIENT_METRICS_SETTINGS:
            raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    try:
        values = {name: CLIENT_METRICS_SETTINGS[name].parse(text) for name, text in merged.items()}
        compile_match(values.get("match", ()))
    except ConfigError as error:
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, str(error)) from error
    interval_ms = values.get("interval.ms", _PUSH_INTERVAL_MAX_MS)
    if not _PUSH_INTERVAL_MIN_MS <= interval_ms <= _PUSH_INTERVAL_MAX_MS:
        message = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, message)
    return ConfigChange(CLIENT_METRICS, alteration.resource_name, updates, alteration.replace)


def change_broker(
    alteration: Alteration,
    broker_id: int,
    current: Overrides,
    config: BrokerConfig,
    checks: Sequence[Callable[[BrokerConfig], None]] = (),
) -> ConfigChange:
    """New dynamic settings of this broker, or, where the resource has no name, of all brokers.

    Each of ``checks`` raises ConfigError for settings that the broker could not follow.

    Those of another broker are taken where that has judged them: what may stand beside its own settings it alone knows.
    """
    per_broker = bool(alteration.resource_name)
    if per_broker and alteration.is_forwarded and is_integer(alteration.resource_name):
        broker_id = int(alteration.resource_name)
    elif per_broker:
        require_broker(alteration.resource_name, broker_id)
    for operation in alteration.operations:
        setting = broker_setting(operation.name)
        if operation.kind not in (APPEND, SUBTRACT):
            continue
        if setting is None:
            raise ConfigFailure(ErrorCode.INVALID_CONFIG, f"Unknown config name: {operation.name}")
        if setting.type != LIST:
            verb = OPERATION_NAMES[operation.kind].lower()
            message = f"Config value {verb} is not allowed for config key: {operation.name}"
            raise ConfigFailure(ErrorCode.INVALID_CONFIG, message)
    updates = _updates(alteration, {**_of_links_in_file(alteration, config), **current}, broker_setting)
    merged = _merged(alteration, current, updates)
    try:
        _validate_dynamic(merged, per_broker)
        if not (per_broker and alteration.is_forwarded):
            layers = (config.cluster_default, merged) if per_broker else (merged, config.per_broker)
            after = config.with_dynamic(*layers)
            check_change(config, after)
            for check in checks:
                check(after)
    except ConfigError as error:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, str(error)) from error
    # The name as the broker itself writes it: "01" means broker 1, too.
    name = str(broker_id) if per_broker else ""
    return ConfigChange(BROKER, name, updates, alteration.replace)


def _of_links_in_file(alteration: Alteration, config: BrokerConfig) -> Overrides:
    """What a link's lists that are added to, or taken from, are in this broker's file: their other names stay in force.

    A client could not tell: the broker that it asks may lag, and show the file where a list is set by now.
    """
    named = (operation.name for operation in alteration.operations if operation.name.startswith(LINKS_PREFIX))
    return {name: config.static[name] for name in named if name in config.static}


def own_settings_after(alteration: Alteration, current: Overrides, config: BrokerConfig) -> BrokerConfig:
    """What this broker's settings would be; ConfigFailure and ConfigError where ``change_broker`` refuses that."""
    merged = _merged(alteration, current, _updates(alteration, current, broker_setting))
    _validate_dynamic(merged, per_broker=True)
    return config.with_dynamic(config.cluster_default, merged)


def require_broker(
    resource_name: str, broker_id: int, mismatch: str = "Unexpected broker id, expected {}, but received {}"
) -> None:
    """Raise ``ConfigFailure`` unless the resource is this very broker: other brokers answer for themselves."""
    if not is_integer(resource_name):
        message = f"Node id must be an integer, but it is: {resource_name}"
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, message)
    if int(resource_name) != broker_id:
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, mismatch.format(broker_id, resource_name))


def is_integer(text: str) -> bool:
    """Whether ``text`` can be a broker id."""
    return re.fullmatch(r"[+-]?[0-9]{1,10}", text, re.ASCII) is not None


def validate_group_configs(overrides: Overrides, config: BrokerConfig) -> None:
    """Raise ``ConfigError`` unless these are a group's settings, inside the limits that the broker's settings draw."""
    for name in overrides:
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {name: GROUP_SETTINGS[name].parse(text) for name, text in overrides.items()}
    for name, value in values.items():
        if name in GROUP_SYNONYMS:
            _check_limits(name, value, config)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms = values.get(session, config[GROUP_SYNONYMS[session]])
        heartbeat_ms = values.get(heartbeat, config[GROUP_SYNONYMS[heartbeat]])
        if (session in values or heartbeat in values) and session_ms <= heartbeat_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def compile_match(patterns: Sequence[str]) -> dict[str, re.Pattern[str]]:
    """``attribute=regex`` entries of a subscription's ``match``, by attribute; raises ``ConfigError``."""
    compiled: dict[str, re.Pattern[str]] = {}
    for pattern in patterns:
        attribute, _, expression = (part.strip() for part in pattern.partition("="))
        try:
            if attribute not in MATCH_ATTRIBUTES or not expression or "=" in expression:
                raise ValueError
            compiled[attribute] = re.compile(expression)
        except (ValueError, re.error):
            raise ConfigError(f"Illegal client matching pattern: {pattern}") from None
    return compiled


def _updates(
    alteration: Alteration, current: Overrides, setting_of: Callable[[str], Setting | None]
) -> dict[str, str | None]:
    # A request may have a hundred thousand operations of one resource, which are decided in one turn.
    updates = {}
    for operation in alteration.operations:
        name, value, kind = operation
        if kind == DELETE:
            value = None
        elif kind != SET:
            value = _edited_list(operation, current.get(name), setting_of(name))
        updates[name] = value
    for name, value in updates.items():
        if value is not None and (message := too_long(name, value)) is not None:
            raise ConfigFailure(ErrorCode.INVALID_CONFIG, message)
    return updates


def _edited_list(operation: AlterConfigOp, current: str | None, setting: Setting | None) -> str:
    if setting is None or setting.type != LIST:
        verb = OPERATION_NAMES[operation.kind]
        message = f"Can't {verb} to key {operation.name} because its type is not LIST."
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, message)
    # What is not overridden yet starts from Kafka's own default, and not from what the broker's settings say: but for
    # lists of links (``_of_links_in_file``).
    before = value_text(setting.default) if current is None else current
    elements = [element for element in parse_value(operation.name, before or "", LIST) if element]
    assert operation.value is not None
    operands = operation.value.split(",")
    if operation.kind == APPEND:
        elements += [operand for operand in dict.fromkeys(operands) if operand not in elements]
    else:
        elements = [element for element in elements if element not in operands]
    return ",".join(elements)


def _merged(alteration: Alteration, current: Overrides, updates: Mapping[str, str | None]) -> dict[str, str]:
    """All overrides that the resource would have."""
    before: Mapping[str, str | None] = NOTHING if alteration.replace else current
    return {name: value for name, value in {**before, **updates}.items() if value is not None}


def _validate_dynamic(overrides: Overrides, per_broker: bool) -> None:
    """Names that Kafka does not know pass, as they do there: plug-ins have settings of their own."""
    known = {name: setting for name in overrides if (setting := broker_setting(name)) is not None}
    fixed = [name for name, setting in known.items() if setting.mode == FIXED]
    # What they would be given for is resolved in a broker's own file alone.
    fixed += [name for name in overrides if name == PROVIDERS or name.startswith(OF_PROVIDERS)]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: {list_text(fixed)}")
    security = [name for name in known if name.startswith(_SECURITY_PREFIXES) and base_name(name) == name]
    if security:
        reason = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ConfigError(f"{reason}: {list_text(security)}")
    single = [name for name, setting in known.items() if setting.mode == PER_BROKER or name.startswith(LISTENER_PREFIX)]
    if single and not per_broker:
        reason = "Cannot update these configs at default cluster level, broker id must be specified"
        raise ConfigError(f"{reason}: {list_text(single)}")
    of_links = [name for name in overrides if name.startswith(LINKS_PREFIX)]
    if of_links and per_broker:
        raise ConfigError(f"Settings of links are those of all brokers together: {list_text(of_links)}")
    unknown = [name for name in of_links if name not in known]
    if unknown:
        raise ConfigError(f"A link has no such settings: {list_text(unknown)}")
    for name, text in overrides.items():
        if refers_elsewhere(text):
            raise ConfigError(f"{name}: references to config providers are resolved in a broker's own file alone")
    for name in known:
        if name in _NOT_WHILE_RUNNING:
            raise ConfigError(f"{name} cannot be changed while pybroker runs")
    for name, setting in known.items():
        setting._replace(name=name).parse(overrides[name])


def _check_limits(name: str, value: int, config: BrokerConfig) -> None:
    """Against ``group.<kind>.min.<rest>`` and ``group.<kind>.max.<rest>``, where the broker has them."""
    kind, rest = name.split(".", 1)
    low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if name in ("streams.num.standby.replicas", "streams.num.warmup.replicas"):
        high = f"group.{kind}.{rest.replace('num.', 'max.')}"
    if broker_setting(low) is not None and value < config[low]:
        raise ConfigError(f"{name} must be greater than or equal to {low}")
    if broker_setting(high) is not None and value > config[high]:
        raise ConfigError(f"{name} must be less than or equal to {high}")
