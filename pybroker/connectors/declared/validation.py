"""A whole configuration judged: the keys of its kind, values as they stand together, transforms.

Owns the order of the judgements, and the forms in which they are told. These are by line of a declaration, as the text
of a refused request, and as Kafka Connect's document. Counterpart in Kafka: ``AbstractHerder.validateConnectorConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pybroker.connectors.declared.common_keys import ANY, EVERYWHERE, PREFIXES
from pybroker.connectors.declared.config_keys import ConfigValue, Key, validated
from pybroker.connectors.declared.connector_kind import Kind
from pybroker.connectors.declared.declaration_files import Declaration
from pybroker.connectors.declared.plugin_kinds import kind_named, together, unknown_kind
from pybroker.connectors.declared.secret_texts import shown
from pybroker.connectors.declared.transforms import transform_errors


def judged(config: Mapping[str, str]) -> list[ConfigValue]:
    """Each key of the configuration's kind with its value and errors, and what is no key."""
    given = config.get("connector.class")
    kind = None if given is None else kind_named(given)
    if kind is None:
        common = validated(EVERYWHERE, {name: config[name] for name in config if name in _COMMON})
        if given is not None:
            next(each for each in common if each.name == "connector.class").errors.append(unknown_kind(given))
        return common
    values = validated(kind.keys, config, PREFIXES if kind.runs is None else ANY)
    by_name = {each.name: each for each in values}
    own_transforms = transform_errors(config) if kind.runs is None else {}
    for name, errors in {**together(kind, config), **own_transforms}.items():
        if name not in by_name:
            by_name[name] = ConfigValue(name, None, config.get(name))
            values.append(by_name[name])
        by_name[name].errors += errors
    return values


def errors_of(config: Mapping[str, str]) -> dict[str, list[str]]:
    """What is wrong, by key; empty for a configuration that can be run."""
    return {each.name: each.errors for each in judged(config) if each.errors}


def refusal(config: Mapping[str, str], connector_type: str) -> str | None:
    """Why a request with this configuration is refused, in Connect's words; ``None`` where it is not."""
    errors = [error for each in errors_of(config).values() for error in each]
    if not errors:
        return None
    listed = "".join(f"\n{error}" for error in errors)
    return (
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):{listed}\n"
        "You can also find the above list of errors at the endpoint "
        f"`/connector-plugins/{connector_type}/config/validate`"
    )


def findings(declaration: Declaration) -> list[str]:
    """What is wrong with a declaration, each with its line."""
    found = [
        (declaration.lines.get(name, declaration.line), f"{declaration.at(name)}: {error}")
        for name, errors in errors_of(declaration.config).items()
        for error in errors
    ]
    return [text for _, text in sorted(found, key=lambda each: each[0])]


def document(kind: Kind, config: Mapping[str, str]) -> dict[str, Any]:
    """What Connect answers to PUT ``/connector-plugins/NAME/config/validate``."""
    values = judged(config)
    groups = list(dict.fromkeys(each.key.group for each in values if each.key is not None))
    return {
        "name": kind.name,
        "error_count": sum(len(each.errors) for each in values),
        "groups": groups,
        "configs": [_config_info(each, order) for order, each in enumerate(values, start=1)],
    }


def key_document(key: Key, order: int = 0) -> dict[str, Any]:
    """A key as Connect tells it."""
    return {
        "name": key.name,
        "type": key.type,
        "required": key.is_required,
        "default_value": key.default,
        "importance": key.importance,
        "documentation": key.documentation,
        "group": key.group,
        "order_in_group": order,
        "width": "MEDIUM",
        "display_name": key.name,
        "dependents": [],
    }


def _config_info(value: ConfigValue, order: int) -> dict[str, Any]:
    # A name that is no key may be that of a secret, misspelt.
    is_secret = value.key is None or value.key.is_secret
    return {
        "definition": None if value.key is None else key_document(value.key, order),
        "value": {
            "name": value.name,
            "value": None if value.value is None else shown(value.value, is_secret=is_secret),
            "recommended_values": list(value.key.one_of) if value.key is not None else [],
            "errors": value.errors,
            "visible": True,
        },
    }


_COMMON = {key.name for key in EVERYWHERE}
