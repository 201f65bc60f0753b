"""What a topic's values are, as far as samples tell: their format, and the columns of JSON.

Owns the judgement.  Samples are from the beginning and from the end of a partition, so that a field which came later is
found.  Values are JSON where most samples are objects; CSV, Avro and Protobuf are never guessed, because much that is
none of them looks like it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from pybroker.sql.fetching.record_columns import VALUE, Position, raw_batches
from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.fetching.short_queries import connection_values
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.relations.cluster_port import Cluster

SAMPLES_MAX: Final = 500
_SAMPLE_BYTES: Final = 256 << 10
_SAMPLED_PARTITIONS: Final = 2
_WAIT_MS: Final = 200
# With more fields than this an object is a map of some kind, whose keys are data.
_FIELDS_MAX: Final = 400
# Of a value in a value: DuckDB's parser of types has a bound, too.
_DEPTH_MAX: Final = 32
# So many of the samples have to be objects; the others are records that do not fit.
_OBJECTS_SHARE_MIN: Final = 0.75
_INT64_MAX: Final = 2**63 - 1
_WIDE: Final = ("UBIGINT", "HUGEINT")
_MANY_DIGITS: Final = re.compile(r"\d{19}")
# Where some whole numbers are negative DuckDB has a type for both kinds, whose ``//`` is a fraction.
_TYPES: Final = {"UBIGINT": "BIGINT", "HUGEINT": "BIGINT", "NULL": "JSON", "JSON": "JSON"}


def infer(cluster: Cluster, topic: str) -> Relation:
    """The relation of a topic without a declaration; an empty topic is text."""
    return relation_of(topic, samples(cluster, topic))


def field_names(cluster: Cluster, topic: str) -> tuple[str, ...]:
    """The names of the fields of a topic's objects, in any case that they have, as far as samples tell."""
    found: dict[str, None] = {}
    for value in samples(cluster, topic):
        with suppress(ValueError, RecursionError):
            document = json.loads(value)
            found |= dict.fromkeys(document) if isinstance(document, dict) else {}
    return tuple(found)


def samples(cluster: Cluster, topic: str) -> list[bytes]:
    """Some values of a topic, from both ends of its first partitions that have any; tombstones are left out."""
    partitions = cluster.partitions(topic) or []
    bounds = {each: at for each, at in cluster.bounds(topic, partitions).items() if at.end > at.begin}
    found: list[bytes] = []
    for partition in sorted(bounds)[:_SAMPLED_PARTITIONS]:
        begin, end = bounds[partition]
        starts = {begin, max(begin, end - SAMPLES_MAX)}
        for start in sorted(starts):
            found += _values(cluster, topic, partition, Position(start, end))[:SAMPLES_MAX]
    return found


def _values(cluster: Cluster, topic: str, partition: int, wanted: Position) -> list[bytes]:
    values: list[bytes] = []
    for fetched in cluster.fetch(topic, {partition: wanted.start}, _SAMPLE_BYTES, _WAIT_MS):
        for batch in raw_batches(fetched, wanted, [VALUE]):
            values += batch.column(VALUE).slice(0, SAMPLES_MAX).drop_null().to_pylist()
    return values


def relation_of(topic: str, values: Sequence[bytes]) -> Relation:
    """What the samples say.  Pure."""
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError:
        return Relation(topic, topic, Format.BYTES, (Column("value", "BLOB"),))
    columns = json_columns(texts) if texts else ()
    if columns:
        return Relation(topic, topic, Format.JSON, columns)
    return Relation(topic, topic, Format.TEXT, (Column("value", "VARCHAR"),))


def json_columns(texts: Sequence[str]) -> tuple[Column, ...]:
    """The columns of objects of JSON; none where a text is no object, or the objects have no field in common."""
    table = pa.table({"v": pa.array(texts, pa.string())})
    # Only CASE keeps DuckDB from asking a text that is no JSON for its type.
    is_object = "CASE WHEN json_valid(v) THEN json_type(v) = 'OBJECT' ELSE false END"
    ((structure, share),) = connection_values(
        f"SELECT json_group_structure(CASE WHEN {is_object} THEN v END::JSON), avg(({is_object})::INT) FROM t", t=table
    )
    if share < _OBJECTS_SHARE_MIN:
        return ()
    try:
        fields = json.loads(structure)
    except RecursionError:  # a record of it may be anything
        return ()
    if not isinstance(fields, dict) or len(fields) > _FIELDS_MAX:
        return ()
    columns: dict[str, Column] = {}
    wide = _beyond_bigint(texts)
    for name, kind in fields.items():
        # DuckDB's names have no case: of two fields that differ by it alone the first is a column.
        if name.lower() not in PSEUDO_COLUMNS and _is_name(name):
            own = kind if name in wide and kind in _WIDE else duckdb_type(kind)
            columns.setdefault(name.lower(), Column(name, own, field=name))
    return tuple(columns.values())


def _beyond_bigint(texts: Sequence[str]) -> set[str]:
    """The fields of objects that have whole numbers which no BIGINT takes."""
    names: set[str] = set()
    for text in texts:
        if _MANY_DIGITS.search(text) is None:
            continue
        with suppress(ValueError, RecursionError):
            document = json.loads(text)
            fields = document.items() if isinstance(document, dict) else ()
            names |= {name for name, value in fields if isinstance(value, int) and value > _INT64_MAX}
    return names


def duckdb_type(structure: Any, depth: int = 0) -> str:
    """The type of a structure as ``json_group_structure`` tells it; JSON of what is nested in ``_DEPTH_MAX`` others."""
    if isinstance(structure, (list, dict)) and depth == _DEPTH_MAX:
        return "JSON"
    if isinstance(structure, list):
        return f"{duckdb_type(structure[0], depth + 1)}[]" if structure else "JSON[]"
    if isinstance(structure, dict):
        names = {name.lower() for name in structure if _is_name(name)}
        if not structure or len(structure) > _FIELDS_MAX or len(names) < len(structure):
            return "JSON"
        fields = (f"{quoted(name)} {duckdb_type(kind, depth + 1)}" for name, kind in structure.items())
        return f"STRUCT({', '.join(fields)})"
    return _TYPES.get(str(structure), str(structure))


def _is_name(name: str) -> bool:
    """Whether DuckDB takes it for a name; a field of JSON may have none."""
    return bool(name) and "\0" not in name
