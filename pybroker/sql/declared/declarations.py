"""CREATE STREAM and CREATE TABLE: what a declaration says of a topic, checked against the topic.

Owns the options and their names, ksqlDB's among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pybroker.sql.declared import inference
from pybroker.sql.declared.registered_schemas import with_registered_schema
from pybroker.sql.parsing.statements import Create, DeclaredColumn
from pybroker.sql.relations import event_times
from pybroker.sql.relations.catalog import KEY, PSEUDO_COLUMNS, Column, Format, Relation, topic_named
from pybroker.sql.relations.cluster_port import Changes, Cluster
from pybroker.sql.relations.format_options import (
    FULL_NAME,
    HEADER,
    REGISTRY,
    SCHEMA_ID,
    by_own_names,
    check_options,
    missing_library,
    with_schema_inside,
)
from pybroker.sql.sql_errors import SqlError, nearest

_NAMES: Final = (
    *("topic", "format", "key", "key_format", "delimiter", "schema", "message", HEADER, REGISTRY, SCHEMA_ID),
    FULL_NAME,
    *event_times.OPTIONS,
)
_JSON_SR: Final = "json_sr"
_FORMATS: Final = {"delimited": "csv", "kafka": "text", _JSON_SR: "json"}
_KEY_FORMATS: Final = ("kafka", "text", "none")
_NAMED_DELIMITERS: Final = {"SPACE": " ", "TAB": "\t"}
# Of a topic that a declaration makes, by the names of a topic's settings where they are such.
_OF_NEW_TOPICS: Final = ("partitions", "replicas", "retention_ms")
# What Python takes for digits are those of other scripts, too.
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_WITH_SCHEMAS: Final = (Format.AVRO, Format.PROTOBUF)


def relation_of(cluster: Cluster, changes: Changes | None, wanted: Create, registry: str | None = None) -> Relation:
    """The relation that is declared; raises ``SqlError`` for options that are none, and for a topic that is not there.

    With ``partitions`` a topic that is missing is made.  Without columns they come from the schema, or from samples.
    ``registry`` is where schemas are that the declaration does not have.  One that is made for it is not registered.
    """
    options = by_own_names(wanted.options)
    _check(options)
    _check_columns(wanted)
    found = made_topic(cluster, changes, options.get("topic", wanted.name), options, {})
    options = {name: value for name, value in options.items() if name not in _OF_NEW_TOPICS}
    columns = tuple(Column(each.name, each.type, each.name, each.is_key) for each in wanted.columns)
    own = {name: value for name, value in options.items() if name not in ("topic", "format", "key_format")}
    if "format" not in options:
        inferred = inference.infer(cluster, found)
        check_options(inferred.format, own)
        known = columns or inferred.columns
        return _checked(Relation(wanted.name, found, inferred.format, known, True, wanted.kind, own))
    kind = _format(options["format"])
    if options["format"].lower() == _JSON_SR:
        own.setdefault(HEADER, "true")
    if registry is not None and "schema" not in own and (kind in _WITH_SCHEMAS or HEADER in own):
        own.setdefault(REGISTRY, registry)
    check_options(kind, own)
    try:
        own = with_schema_inside(kind, own)
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise SqlError(f"{wanted.name}: schema {own['schema']}: {why}") from error
    relation = with_registered_schema(Relation(wanted.name, found, kind, columns, True, wanted.kind, own))
    return _checked(_completed(cluster, relation, wanted.columns))


def _checked(relation: Relation) -> Relation:
    """``SqlError`` for options that name a column, and none that there is."""
    event_times.check_time(relation)
    key = relation.options.get(KEY)
    if key is not None and relation.column(key) is None:
        raise SqlError(f"{relation.name} has no column {key}{nearest(key, [each.name for each in relation.columns])}")
    return relation


def made_topic(
    cluster: Cluster, changes: Changes | None, topic: str, options: Mapping[str, str], settings: Mapping[str, str]
) -> str:
    """The topic's name as the cluster has it; the topic is made where it is missing and ``partitions`` are given."""
    name = topic if (there := cluster.partitions(topic)) is not None else topic_named(topic, cluster.topics())
    wanted = _number(options, "partitions")
    if name is not None:
        there = cluster.partitions(name) if there is None else there
        if wanted is not None and there is not None and wanted != len(there):
            raise SqlError(f"the topic {name} has {len(there)} partition{'' if len(there) == 1 else 's'}, not {wanted}")
        _check_shape(changes, name, options)
        return name
    if wanted is None:
        hint = "" if nearest(topic, cluster.topics()) else "; PARTITIONS=1 makes one"
        raise SqlError(f"there is no topic {topic}{nearest(topic, cluster.topics())}{hint}")
    if changes is None:
        raise SqlError("this session makes no topics")
    changes.create_topic(topic, wanted, _number(options, "replicas"), {**settings, **_own_settings(options)})
    return topic


def _own_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The topic's settings that the options say."""
    retention_ms = _number(options, "retention_ms")
    return {} if retention_ms is None else {"retention.ms": str(retention_ms)}


def _check_shape(changes: Changes | None, topic: str, options: Mapping[str, str]) -> None:
    replicas, settings = _number(options, "replicas"), _own_settings(options)
    if changes is None or (replicas is None and not settings):
        return
    found = changes.difference(topic, replicas, settings)
    if found is not None:
        raise SqlError(f"the topic {topic} has {found}; `pybroker topics` changes topics that are there")


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if _WHOLE_NUMBER.fullmatch(text) is None or int(text) < 1:
        raise SqlError(f"{name} is a number from 1 on, not {text}")
    return int(text)


def _check_columns(wanted: Create) -> None:
    seen: set[str] = set()
    for column in wanted.columns:
        if column.name.lower() in seen:
            raise SqlError(f"{wanted.name}: the column {column.name} is declared twice")
        if column.name.lower() in PSEUDO_COLUMNS:
            raise SqlError(f"{wanted.name}: {column.name} is a column that every record has, whatever its value says")
        seen.add(column.name.lower())


def _check(options: dict[str, str]) -> None:
    for name in options:
        if name not in (*_NAMES, *_OF_NEW_TOPICS):
            raise SqlError(f"there is no option {name}{nearest(name, (*_NAMES, *_OF_NEW_TOPICS))}")
    if options.get("key_format", "kafka").lower() not in _KEY_FORMATS:
        raise SqlError(f"key_format is {' or '.join(_KEY_FORMATS)}, not {options['key_format']}")
    delimiter = options.get("delimiter")
    if delimiter is not None:
        options["delimiter"] = _NAMED_DELIMITERS.get(delimiter.upper(), delimiter)
        if len(options["delimiter"]) != 1:
            raise SqlError(f"a delimiter is one character, SPACE or TAB, not {delimiter!r}")


def _format(name: str) -> Format:
    try:
        return Format(_FORMATS.get(name.lower(), name.lower()))
    except ValueError:
        raise SqlError(f"there is no format {name}{nearest(name, [*Format, *_FORMATS])}") from None


def _completed(cluster: Cluster, relation: Relation, declared: tuple[DeclaredColumn, ...]) -> Relation:
    """With the columns that a declaration leaves out, and the names that they have in the values."""
    of_value = [column for column in relation.columns if not column.is_key]
    if relation.format in _WITH_SCHEMAS:
        from pybroker.sql.fetching.value_decoders import schema_columns

        if of_value and "schema" not in relation.options:
            relation = replace(relation, options={**relation.options, **_made_schema(relation)})
        found = tuple(each for each in schema_columns(relation) if each.name.lower() not in PSEUDO_COLUMNS)
        keys = tuple(column for column in relation.columns if column.is_key)
        return replace(relation, columns=(*keys, *(_chosen(of_value, found) if of_value else found)))
    if relation.format is Format.JSON:
        if of_value:
            return with_names_of(relation, inference.field_names(cluster, relation.topic))
        samples = inference.infer(cluster, relation.topic)
        sampled = samples.columns if samples.format is Format.JSON else ()
        return replace(relation, columns=(*relation.columns, *sampled))
    if of_value:
        return relation
    if relation.format is Format.CSV:
        raise SqlError(f"{relation.name}: CSV has no names of columns; declare them")
    kind = "BLOB" if relation.format is Format.BYTES else "VARCHAR"
    return replace(relation, columns=(*relation.columns, Column("value", kind)))


def _made_schema(relation: Relation) -> dict[str, str]:
    from pybroker.sql.fetching.made_schemas import made_schema

    try:
        return made_schema(relation)
    except ValueError as error:
        raise SqlError(f"{relation.name}: {error}") from error
    except ModuleNotFoundError as error:
        raise missing_library(relation.format, error) from error


def with_names_of(relation: Relation, names: Sequence[str]) -> Relation:
    """The relation, whose fields have the case that samples of JSON have.

    ksqlDB's names have no case, those of JSON have one.
    """
    by_lower = {name.lower(): name for name in reversed(names)}
    by_lower |= {each.name.lower(): each.name for each in relation.columns if each.name in names}
    fields = (replace(each, field=by_lower.get(each.name.lower(), each.field)) for each in relation.columns)
    return replace(relation, columns=tuple(fields))


def _chosen(wanted: list[Column], found: tuple[Column, ...]) -> tuple[Column, ...]:
    """The declared ones of a schema's columns; ``SqlError`` for one that it has not."""
    by_name = {column.name.lower(): column for column in found}
    for column in wanted:
        if column.name.lower() not in by_name:
            raise SqlError(f"the schema has no field {column.name}{nearest(column.name, by_name)}")
    return tuple(by_name[column.name.lower()] for column in wanted)
