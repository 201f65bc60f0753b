"""Schemas that a registry has for a topic: its subject's newest one, or that of an id, and one that is registered.

Owns the subject's name, ``TOPIC-value`` as serializers have it, and which columns a JSON Schema has.  What is found
stands in the declaration, so that the registry is asked once, and later for other versions alone.  A schema is found
first, which leaves the registry as it is, and registered by the statement that runs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from pybroker.sql.fetching.made_schemas import made_schema
from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.relations.format_options import DESCRIPTORS, HEADER, SCHEMA_ID, is_id, missing_library, registry_of
from pybroker.sql.sql_errors import SqlError
from pybroker.values.schema_registry import RegisteredSchema, RegistryAway, SchemaRegistry

_KINDS: Final = {"AVRO": Format.AVRO, "PROTOBUF": Format.PROTOBUF, "JSON": Format.JSON}
_PLAIN: Final = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"}


def with_registered_schema(relation: Relation) -> Relation:
    """The relation with the schema that its registry has for the values; ``SqlError``.

    Where the registry has none, one is made of the relation's columns, and has no id before it is `registered`.
    """
    registry = registry_of(relation.options)
    if registry is None or "schema" in relation.options:
        return relation
    with _told(relation):
        found = _found(registry, relation)
        return _made(registry, relation) if found is None else _with(relation, found)


def registered(relation: Relation, given: Mapping[str, str]) -> Relation:
    """The relation, whose schema the registry has from now on, where no id of it is known yet; ``SqlError``.

    ``given`` are the options of a declaration: a schema among them is for reading, and is not registered.
    """
    registry = registry_of(relation.options)
    if registry is None or HEADER in relation.options or "schema" in given:
        return relation
    with _told(relation):
        text = relation.options["schema"]
        if relation.format is Format.PROTOBUF:
            from pybroker.values.protobuf_values import last_file

            text = base64.b64encode(last_file(base64.b64decode(text.removeprefix(DESCRIPTORS)))).decode()
        found = registry.register(_subject(relation), relation.format.upper(), text)
    return replace(relation, options={**relation.options, HEADER: str(found)})


@contextmanager
def _told(relation: Relation) -> Iterator[None]:
    """``SqlError`` with the relation's name for what a registry, or a schema, is wrong with."""
    try:
        yield
    except (ValueError, RegistryAway) as error:
        raise SqlError(f"{relation.name}: {error}") from error
    except RecursionError:
        raise SqlError(f"{relation.name}: its schema in the registry is nested too deep") from None
    except ModuleNotFoundError as error:
        raise missing_library(relation.format, error) from error


def _subject(relation: Relation) -> str:
    return f"{relation.topic}-value"


def _found(registry: SchemaRegistry, relation: Relation) -> RegisteredSchema | None:
    text = relation.options.get(SCHEMA_ID)
    if text is None:
        return registry.latest(_subject(relation))
    if not is_id(text):
        raise SqlError(f"{SCHEMA_ID} is the id of a schema, not {text}")
    return registry.by_id(int(text))


def _with(relation: Relation, found: RegisteredSchema) -> Relation:
    if _KINDS.get(found.kind) is not relation.format:
        raise SqlError(f"{relation.name} is {relation.format}, and its schema in the registry is {found.kind}")
    options = {**relation.options, HEADER: str(found.id)}
    match relation.format:
        case Format.AVRO:
            from pybroker.values.avro_values import registered_schema

            options["schema"] = json.dumps(registered_schema(found), separators=(",", ":"))
        case Format.PROTOBUF:
            from pybroker.values.protobuf_values import first_message, registered_files

            files = registered_files(found)
            options["schema"] = DESCRIPTORS + base64.b64encode(files).decode()
            options.setdefault("message", first_message(files))
        case _:
            if all(each.is_key for each in relation.columns):
                relation = replace(relation, columns=(*relation.columns, *_json_columns(found)))
    return replace(relation, options=options)


def _made(registry: SchemaRegistry, relation: Relation) -> Relation:
    if relation.format is Format.JSON or all(each.is_key for each in relation.columns):
        raise SqlError(f"{relation.name}: the registry {registry.url} has no subject {_subject(relation)}")
    others = {name: value for name, value in relation.options.items() if name != HEADER}
    return replace(relation, options={**others, **made_schema(relation)})


def _json_columns(found: RegisteredSchema) -> tuple[Column, ...]:
    document = json.loads(found.text)
    fields = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(fields, dict) or not fields:
        raise ValueError(f"schema {found.id} of the registry has no properties")
    return tuple(Column(name, _json_type(kind), name) for name, kind in fields.items())


def _json_type(schema: Any) -> str:
    """DuckDB's type of what a JSON Schema says; JSON where that is several, or any."""
    if not isinstance(schema, Mapping):
        return "JSON"
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not kinds:
        others = [each for each in schema.get("oneOf", schema.get("anyOf", ())) if each != {"type": "null"}]
        return _json_type(others[0]) if len(others) == 1 else "JSON"
    kind = next((each for each in kinds if each != "null"), None)
    if len(kinds) > 2 or (len(kinds) == 2 and "null" not in kinds):
        return "JSON"
    if kind == "array":
        return f"{_json_type(schema.get('items'))}[]"
    if kind == "object" and schema.get("properties"):
        fields = (f"{quoted(name)} {_json_type(each)}" for name, each in schema["properties"].items())
        return f"STRUCT({', '.join(fields)})"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"MAP(VARCHAR, {_json_type(schema['additionalProperties'])})"
    return _PLAIN.get(str(kind), "JSON")
