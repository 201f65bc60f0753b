"""Settings of topics, brokers, groups and the like, described and altered.

Owns: the requests, which broker is asked, and how changes are written on the command line.  Which settings there are,
and what they may be, the broker says.  Counterpart: kafka-configs.sh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.client_settings import parse_pairs
from pybroker.cli.connection.retries import retried
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.options import misused
from pybroker.cli.terminal.output import Row

# Kinds of resources, with their numbers in Kafka's requests (ConfigResource.Type).
TYPES: Final = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
_OF_ONE_BROKER: Final = ("broker", "broker-logger")
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_OPERATIONS: Final = {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}

# By name: the operation and its value.
Changes = Mapping[str, tuple[str, str | None]]


def changes_of(
    settings: Sequence[str],
    unset: Sequence[str] = (),
    append: Sequence[str] = (),
    subtract: Sequence[str] = (),
    from_file: Mapping[str, str] | None = None,
) -> Changes:
    """What ``--set KEY=VALUE`` and its sisters say; a usage error where a setting is named twice."""
    changes: dict[str, tuple[str, str | None]] = dict.fromkeys(unset, ("DELETE", None))
    of_options = [
        ("SET", parse_pairs(settings, "--set")),
        ("APPEND", parse_pairs(append, "--append")),
        ("SUBTRACT", parse_pairs(subtract, "--subtract")),
    ]
    for operation, pairs in (*of_options, ("SET", from_file or {})):
        if twice := sorted(changes.keys() & pairs.keys()):
            raise misused(f"{twice[0]} is named by two options")
        changes |= {key: (operation, value) for key, value in pairs.items()}
    return changes


class Resource(NamedTuple):
    """What has settings, by its kind and name; ``keys`` are those that are asked for, None: all."""

    kind: str
    name: str
    keys: tuple[str, ...] | None = None


def described(client: AdminClient, kind: str, name: str) -> list[dict[str, Any]]:
    """All settings of a resource, by name: ``name``, ``value`` (None if ``sensitive``), ``source``, ``read_only``."""
    ((_, result),) = _results(client, [Resource(kind, name)], _node_id(kind, name))
    if result.error_code:
        raise refused(f"{kind} {name}", result.error_code, result.error_message)
    return _entries(result)


def described_all(
    client: AdminClient, resources: Sequence[Resource], node_id: int | None = None
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The settings of several resources, which one broker is asked for; without those that are not shown, or gone."""
    return ((name, _entries(result)) for name, result in _results(client, resources, node_id) if not result.error_code)


def _results(client: AdminClient, resources: Sequence[Resource], node_id: int | None) -> list[tuple[str, Any]]:
    from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    asked = [
        DescribeConfigsResource(
            resource_type=TYPES[each.kind],
            resource_name=each.name,
            configuration_keys=None if each.keys is None else list(each.keys),
        )
        for each in resources
    ]
    request = DescribeConfigsRequest(resources=asked, include_synonyms=False)
    return [(result.resource_name, result) for result in retried(lambda: client.ask(request, node_id)).results]


def _entries(result: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": config.name,
            "value": None if config.is_sensitive else config.value,
            "source": _SOURCES.get(config.config_source, "UNKNOWN"),
            "read_only": config.read_only,
            "sensitive": config.is_sensitive,
        }
        for config in sorted(result.configs, key=lambda config: str(config.name))
    ]


def setting_row(entry: Mapping[str, Any]) -> Row:
    """A setting's name, value and source; a secret differs from an empty value."""
    return (entry["name"], "(secret)" if entry["sensitive"] else entry["value"], entry["source"])


def alter(
    client: AdminClient, kind: str, name: str, changes: Changes, *, dry_run: bool, what: str | None = None
) -> None:
    """IncrementalAlterConfigs of one resource: all of ``changes`` or none; CommandFailed, in the broker's words.

    ``what`` is what a failure is said of, where that is not the resource.
    """
    from pybroker_protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    configs = [
        AlterableConfig(name=key, config_operation=_OPERATIONS[operation], value=value)
        for key, (operation, value) in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=TYPES[kind], resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    (result,) = retried(lambda: client.ask(request, _node_id(kind, name))).responses
    if result.error_code:
        raise refused(what or f"{kind} {name}", result.error_code, result.error_message)


def _node_id(kind: str, name: str) -> int | None:
    """A broker speaks of itself; of what all brokers have (an empty name), and of everything else, any does."""
    return int(name) if kind in _OF_ONE_BROKER and name else None
