"""As what a standing query writes its rows: JSON, or Avro and Protobuf by a schema, given or made of its columns.

Owns the options of CREATE … AS about values, and that rows fit the schema as far as names tell.  The schema stands in
the plan and in the declaration, so that a supervisor and other sessions need no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pybroker.sql.declared.registered_schemas import with_registered_schema
from pybroker.sql.fetching.made_schemas import made_schema
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.relations.format_options import (
    FULL_NAME,
    HEADER,
    REGISTRY,
    SCHEMA_ID,
    check_options,
    header_written,
    missing_library,
    with_schema_inside,
)
from pybroker.sql.sql_errors import SqlError, nearest
from pybroker.sql.standing.standing_plans import WrittenValue

WRITTEN: Final = (Format.JSON, Format.AVRO, Format.PROTOBUF)
_OF_SCHEMAS: Final = ("schema", "message", HEADER)


def format_of(options: Mapping[str, str]) -> Format:
    """The format that the options name; ``SqlError`` for one that is not written."""
    name = options.get("format", Format.JSON).lower()
    found = next((each for each in WRITTEN if each == name), None)
    if found is None:
        raise SqlError(f"a standing query writes {', '.join(WRITTEN)}, not {options['format']}")
    check_options(found, options)
    return found


def written_relation(made: Relation, options: Mapping[str, str], key: Sequence[str]) -> Relation:
    """The relation of a query's rows, in the format of ``made``: with its schema, and the columns of that.

    ``made`` has the query's columns, and ``key`` names those of the record's key.  A schema that is made for a registry
    is not registered yet.  Raises ``SqlError``.
    """
    if made.format is Format.JSON:
        return made
    own = {name: value for name, value in options.items() if name in (*_OF_SCHEMAS, FULL_NAME, REGISTRY, SCHEMA_ID)}
    try:
        if "schema" in own:
            own = with_schema_inside(made.format, own)
        elif REGISTRY in own:
            own = with_registered_schema(replace(made, options=own)).options
        else:
            own = made_schema(replace(made, options=own))
    except (ValueError, OSError) as error:
        raise SqlError(f"{made.name}: {error}") from error
    except ModuleNotFoundError as error:
        raise missing_library(made.format, error) from error
    columns = _columns(Relation(made.name, made.topic, made.format, (), options=own))
    found = Relation(made.name, made.topic, made.format, columns, True, made.kind, own, made.query)
    check_fits(found, made.columns, key)
    return found


def check_fits(relation: Relation, columns: Sequence[Column], key: Sequence[str]) -> None:
    """Raises ``SqlError`` where a query's rows are not what a relation's schema says: a field too many, or too few."""
    if relation.format is Format.JSON:
        return
    header_written(relation.options)
    fields = {each.name.lower(): each for each in _columns(relation)}
    names = {each.name.lower() for each in columns}
    for each in columns:
        if each.name.lower() not in fields and each.name not in key:
            raise SqlError(f"the schema has no field {each.name}{nearest(each.name, fields)}")
    for name in _needed(relation):
        if name.lower() not in names:
            raise SqlError(f"the schema has a field {name} without a default, and SELECT has none of it")


def written_value(relation: Relation) -> WrittenValue:
    """How a plan writes the values of a relation."""
    if relation.format not in (Format.AVRO, Format.PROTOBUF):
        return WrittenValue()
    return WrittenValue(relation.format, _of_schema(relation.options))


def _of_schema(options: Mapping[str, str]) -> dict[str, str]:
    return {name: options[name] for name in _OF_SCHEMAS if name in options}


def _columns(relation: Relation) -> tuple[Column, ...]:
    from pybroker.sql.fetching.value_decoders import schema_columns

    return schema_columns(relation)


def _needed(relation: Relation) -> list[str]:
    """The fields that a value must have."""
    if relation.format is not Format.AVRO:
        return []
    from pybroker.values.avro_values import parsed

    schema = parsed(relation.options["schema"])
    if not isinstance(schema, dict) or "fields" not in schema:
        raise SqlError(f"{relation.name}: a standing query writes records of Avro, and the schema is of another type")
    return [each["name"] for each in schema["fields"] if "default" not in each]
