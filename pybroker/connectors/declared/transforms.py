"""Transforms of records, as expressions of Spark's SQL.

A transform is given a flat row: the fields of the value as columns, and the record's own, named as `pybroker sql`
names them.  These are ``_key``, ``_topic``, ``_partition``, ``_offset``, ``_timestamp`` and ``_headers``.
``_tombstone`` says whether the record has no value, and ``_origin`` which topic it was read from, whatever a
transform makes of ``_topic``.  ``type: sql`` has ``select`` and ``where`` as they stand in SQL.  Of Kafka Connect's
transforms those that SQL can say are taken by their class's name; another one is refused by name.

Owns what a transform comes to, given the columns before it.  Pure text: Spark judges the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pybroker.connectors.declared.config_keys import nearest
from pybroker.pipeline.spark_names import spark_name

OWN_COLUMNS: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_tombstone", "_origin")
_PACKAGE = "org.apache.kafka.connect.transforms."
_SQL = "sql"
# Groups with a name, which Java's expressions have in another spelling than Python's.
_NAMED: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_NAMED_AGAIN: Final = re.compile(r"\\k<(\w+)>")


@dataclass(frozen=True, slots=True)
class Projection:
    """Expressions for the columns behind a transform, the record's own ones included; and which rows stay."""

    columns: Sequence[str]
    where: str | None = None


# The fields of the value before a transform, each with its type in Spark's words.
Fields = Mapping[str, str]
# From the transform's settings and the fields before it.
Maker = Callable[[Mapping[str, str], Fields], Projection]


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of a configuration."""

    name: str
    type: str
    settings: Mapping[str, str]

    def projection(self, fields: Fields) -> Projection:
        """What it comes to where the value has ``fields``; ValueError for fields that are not there."""
        maker, _ = _MADE[self.type]
        return maker(self.settings, fields)


def transforms_of(config: Mapping[str, str]) -> list[Transform]:
    """The transforms of a valid configuration, in their order."""
    return [_transform(name, config) for name in _names(config.get("transforms", ""))]


def transform_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """What is wrong with the keys below ``transforms.`` and ``predicates.``, by key."""
    found: dict[str, list[str]] = {}
    names = _names(config.get("transforms", ""))
    if twice := next((name for name in names if names.count(name) > 1), None):
        found["transforms"] = [f"Duplicate alias provided: {twice}"]
    if _names(config.get("predicates", "")):
        found["predicates"] = ["predicates are not there: a transform of type sql has where"]
    for key in config:
        prefix, _, rest = key.partition(".")
        name = rest.partition(".")[0]
        if prefix == "transforms" and rest and name not in names:
            near = nearest(name, names)
            found[key] = [f"transforms does not name {name}" + (f"; is {near} meant?" if near else "")]
    for name in names:
        found |= _errors_of(name, config)
    return found


def _errors_of(name: str, config: Mapping[str, str]) -> dict[str, list[str]]:
    key = f"transforms.{name}.type"
    if key not in config:
        return {key: [f'Missing required configuration "{key}" which has no default value.']}
    transform = _transform(name, config)
    if transform.type not in _MADE:
        near = nearest(transform.type, _MADE)
        hint = f"is {near} meant?" if near else "type sql says in SQL what it does"
        return {key: [f"there is no transform {config[key]}; {hint}"]}
    _, known = _MADE[transform.type]
    found: dict[str, list[str]] = {}
    for setting in transform.settings:
        if setting not in known:
            near = nearest(setting, known)
            hint = f"is {near} meant?" if near else f"there are {', '.join(known)}"
            found[f"transforms.{name}.{setting}"] = [f"{transform.type} has no {setting}; {hint}"]
    if not found:
        try:
            transform.projection({})
        except KeyError as missing:
            whole = f"transforms.{name}.{missing.args[0]}"
            found[whole] = [f'Missing required configuration "{whole}" which has no default value.']
        except FieldMissing:
            pass  # which fields there are is known when the connector runs
        except ValueError as error:
            found[key] = [str(error)]
    return found


class FieldMissing(ValueError):
    """A transform names a field that the value does not have."""


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _transform(name: str, config: Mapping[str, str]) -> Transform:
    prefix = f"transforms.{name}."
    given = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    kind = given.pop("type", "").strip()
    return Transform(name, _SQL if kind.lower() == _SQL else kind.removeprefix(_PACKAGE), given)


# --- what each comes to ----------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """A text as SQL has it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _all(fields: Iterable[str], *, without: Sequence[str] = ()) -> list[str]:
    return [spark_name(name) for name in (*OWN_COLUMNS, *fields) if name not in without]


def _sql(settings: Mapping[str, str], fields: Fields) -> Projection:
    where = settings.get("where", "").strip() or None
    select = settings.get("select", "*").strip()
    key = settings.get("key", "").strip()
    own = _all((), without=("_key",) if key else ())
    if key:
        own.append(f"{key} AS `_key`")
    chosen = _all(fields)[len(OWN_COLUMNS) :] if select == "*" else split_expressions(select)
    return Projection([*own, *chosen], where)


def split_expressions(text: str) -> list[str]:
    """The expressions of a select list, parted at commas outside of brackets and texts."""
    parts, depth, start, quote = [], 0, 0, ""
    skip = False
    for at, sign in enumerate(text):
        if skip:
            skip = False
        elif quote:
            if sign == "\\" and quote != "`":
                skip = True
            elif sign == quote:
                quote = ""
        elif sign in "'\"`":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    if "" in parts:
        raise ValueError("select has an expression too few between commas")
    return parts


def _present(name: str, fields: Fields) -> str:
    if name not in fields:
        near = nearest(name, fields)
        raise FieldMissing(f"the value has no field {name}" + (f"; is {near} meant?" if near else ""))
    return name


def _replace_field(settings: Mapping[str, str], fields: Fields) -> Projection:
    excluded, included = _names(settings.get("exclude", "")), _names(settings.get("include", ""))
    renames = {}
    for pair in _names(settings.get("renames", "")):
        before, colon, behind = pair.partition(":")
        if not (before and colon and behind) or ":" in behind:
            raise ValueError(f"Invalid rename mapping: {pair}; renames are FROM:TO, with commas between")
        renames[before.strip()] = behind.strip()
    kept = [name for name in fields if name not in excluded and (not included or name in included)]
    chosen = [f"{spark_name(name)} AS {spark_name(renames.get(name, name))}" for name in kept]
    return Projection([*_all(()), *chosen])


def _mask_field(settings: Mapping[str, str], fields: Fields) -> Projection:
    masked, text = _names(settings["fields"]), settings.get("replacement")
    chosen = [_masked(name, kind, text) if name in masked else spark_name(name) for name, kind in fields.items()]
    return Projection([*_all(()), *chosen])


def _masked(name: str, kind: str, replacement: str | None) -> str:
    """As Kafka does: the empty value of the field's type, or the replacement as one of it; null stays null."""
    plain = kind.partition("(")[0].partition("<")[0]
    empty = _EMPTY.get(plain)
    if empty is None or (replacement is not None and plain not in _REPLACED):
        told = "" if replacement is None else " with a replacement"
        raise ValueError(f"MaskField cannot mask {name}{told}: it is {kind}")
    value = empty if replacement is None else literal(replacement)
    return f"if({spark_name(name)} IS NULL, NULL, CAST({value} AS {kind})) AS {spark_name(name)}"


_REPLACED: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string"})
_EMPTY: Final = {
    **dict.fromkeys(_REPLACED, "0"),
    **{"string": "''", "boolean": "false", "array": "array()", "map": "map()"},
    **{"date": "'1970-01-01'", "timestamp_ntz": "'1970-01-01'", "timestamp": "timestamp_seconds(0)"},
}


_OF_RECORD = {
    "topic.field": "_topic", "partition.field": "_partition", "offset.field": "_offset", "timestamp.field": "_timestamp"
}  # fmt: skip


def _insert_field(settings: Mapping[str, str], fields: Fields) -> Projection:
    added = [(settings[key].strip("!? "), spark_name(column)) for key, column in _OF_RECORD.items() if key in settings]
    if "static.field" in settings:
        added.append((settings["static.field"].strip("!? "), literal(settings["static.value"])))
    if not added:
        raise KeyError("static.field")
    names = [name for name, _ in added]
    kept = [spark_name(name) for name in fields if name not in names]
    return Projection([*_all(()), *kept, *(f"{value} AS {spark_name(name)}" for name, value in added)])


def _extract_key(settings: Mapping[str, str], fields: Fields) -> Projection:
    field = settings["field"]
    return Projection([*_all(fields, without=("_key",)), f"`_key`.{spark_name(field)} AS `_key`"])


def _hoist_value(settings: Mapping[str, str], fields: Fields) -> Projection:
    inner = ", ".join(spark_name(name) for name in fields)
    return Projection([*_all(()), f"struct({inner or '*'}) AS {spark_name(settings['field'])}"])


def _value_to_key(settings: Mapping[str, str], fields: Fields) -> Projection:
    names = [_present(name, fields) if fields else name for name in _names(settings["fields"])]
    return Projection([*_all(fields, without=("_key",)), f"struct({', '.join(map(spark_name, names))}) AS `_key`"])


_CASTS = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE",
    "boolean": "BOOLEAN", "string": "STRING",
}  # fmt: skip


def _cast(settings: Mapping[str, str], fields: Fields) -> Projection:
    wanted: dict[str, str] = {}
    for pair in _names(settings["spec"]):
        name, colon, kind = pair.rpartition(":")
        if not colon:
            raise ValueError(f"spec names no field: {pair}; a value that is no struct is not cast here")
        if kind not in _CASTS:
            raise ValueError(f"spec has the type {kind}; there are {', '.join(_CASTS)}")
        wanted[name] = _CASTS[kind]
    chosen = [
        f"CAST({spark_name(name)} AS {wanted[name]}) AS {spark_name(name)}" if name in wanted else spark_name(name)
        for name in fields
    ]
    return Projection([*_all(()), *chosen])


def _regex_router(settings: Mapping[str, str], fields: Fields) -> Projection:
    pattern, replacement = settings["regex"], settings["replacement"]
    try:
        re.compile(_NAMED_AGAIN.sub(r"(?P=\1)", _NAMED.sub("(?P<", pattern)))
    except re.error as error:
        raise ValueError(f"regex is no regular expression: {error}") from None
    # Kafka's router changes a topic that the whole expression fits.
    whole = literal(f"^(?:{pattern})$")
    routed = f"regexp_replace(`_topic`, {whole}, {literal(replacement)})"
    return Projection([*_all(fields, without=("_topic",)), f"{routed} AS `_topic`"])


def _drop_headers(settings: Mapping[str, str], fields: Fields) -> Projection:
    dropped = ", ".join(literal(name) for name in _names(settings["headers"]))
    kept = f"filter(`_headers`, each -> each.key NOT IN ({dropped}))"
    return Projection([*_all(fields, without=("_headers",)), f"{kept} AS `_headers`"])


def _insert_header(settings: Mapping[str, str], fields: Fields) -> Projection:
    name, text = literal(settings["header"]), literal(settings["value.literal"])
    added = f"array(struct({name} AS key, CAST({text} AS BINARY) AS value))"
    own = f"concat(coalesce(`_headers`, CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)), {added})"
    return Projection([*_all(fields, without=("_headers",)), f"{own} AS `_headers`"])


def _nothing(settings: Mapping[str, str], fields: Fields) -> Projection:
    return Projection(_all(fields))


_MADE: Final[Mapping[str, tuple[Maker, Sequence[str]]]] = {
    _SQL: (_sql, ("select", "where", "key")),
    "ReplaceField$Value": (_replace_field, ("exclude", "include", "renames")),
    "MaskField$Value": (_mask_field, ("fields", "replacement")),
    "InsertField$Value": (_insert_field, (*_OF_RECORD, "static.field", "static.value")),
    "ExtractField$Key": (_extract_key, ("field",)),
    "HoistField$Value": (_hoist_value, ("field",)),
    "ValueToKey": (_value_to_key, ("fields",)),
    "Cast$Value": (_cast, ("spec",)),
    "RegexRouter": (_regex_router, ("regex", "replacement")),
    "DropHeaders": (_drop_headers, ("headers",)),
    "InsertHeader": (_insert_header, ("header", "value.literal")),
    # A schema's name is nothing that columns have.
    "SetSchemaMetadata$Value": (_nothing, ("schema.name", "schema.version")),
    "SetSchemaMetadata$Key": (_nothing, ("schema.name", "schema.version")),
}
TRANSFORMS: Final = tuple(_MADE)
CLASSES_OF_TRANSFORMS: Final = tuple(f"{_PACKAGE}{name}" for name in TRANSFORMS if name != _SQL)
