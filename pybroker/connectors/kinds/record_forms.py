"""Keys and values of records by the converters of a connector: decoders for sinks, encoders for sources.

Owns what each converter needs besides its name, and what a flat row is (``declared/transforms``).  The converters
themselves are the pipeline's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pybroker.connectors.declared.converter_names import converter_named
from pybroker.connectors.declared.transforms import OWN_COLUMNS, Transform
from pybroker.connectors.kinds.schema_envelopes import envelope_of
from pybroker.pipeline.converters.decoding import Decoder
from pybroker.pipeline.spark_names import spark_name
from pybroker.pipeline.topics.rows import HEADERS_TYPE

_OWN_TYPES = {
    "_key": "string",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_headers": HEADERS_TYPE,
    "_tombstone": "boolean",
    "_origin": "string",
}
_ALL_FIELDS = {"ignoreNullFields": "false"}
# Where the record was that a row has been made of.
PLACE = ("_origin", "_partition", "_offset")


class FormRefused(ValueError):
    """A converter lacks a setting, or cannot write what rows have."""


def decoder(config: Mapping[str, str], side: str) -> Decoder:
    """The decoder of a ``side``, key or value, whose converter ``config`` names; FormRefused."""
    from pybroker.pipeline.converters.json_values import json_of, raw, text

    form, schema = _form(config, side), config.get(f"{side}.converter.schema", "").strip()
    if form == "text":
        return text()
    if form == "bytes":
        return raw()
    if not schema:
        raise FormRefused(f"{side}.converter {form} needs {side}.converter.schema, which names the columns")
    if form == "json":
        if not _has_envelope(config, side):
            return json_of(schema)
        # A value without the envelope must not become a row of nulls.
        return _payload_of(json_of(f"payload struct<{schema}> not null"))
    if form == "avro":
        from pybroker.pipeline.converters.avro import avro_of

        return avro_of(schema)
    from pybroker.pipeline.converters.protobuf import protobuf_of

    return protobuf_of((schema, _message(config, side)))


def flat(decoded: DataFrame) -> DataFrame:
    """Fields of the value, and the record's own columns with an underscore; without fields the value is ``value``."""
    made = ("_headers", "_tombstone", "_origin")
    own = [F.col(name.removeprefix("_")).alias(name) for name in OWN_COLUMNS if name not in made]
    headers = F.col("headers") if "headers" in decoded.columns else F.lit(None)
    own.append(headers.cast(HEADERS_TYPE).alias("_headers"))
    own.append(F.col("raw_value").isNull().alias("_tombstone"))
    own.append(F.col("topic").alias("_origin"))
    kind = decoded.schema["value"].dataType
    if isinstance(kind, StructType):
        return decoded.select(*own, *(F.col("value").getField(name).alias(name) for name in kind.names))
    return decoded.select(*own, "value")


def with_own_columns(rows: DataFrame, topic: str) -> DataFrame:
    """Rows of a source with a record's own columns, which have no values yet but the topic's."""
    known = {"_topic": topic, "_tombstone": False}
    own = [F.lit(known.get(name)).cast(kind).alias(name) for name, kind in _OWN_TYPES.items()]
    return rows.select(*own, *(spark_name(name) for name in rows.columns))


def transformed(rows: DataFrame, transforms: Sequence[Transform]) -> DataFrame:
    """Flat rows behind the transforms; `FormRefused`, AnalysisException for what Spark does not understand."""
    for transform in transforms:
        projection = transform.projection({name: rows.schema[name].dataType.simpleString() for name in fields_of(rows)})
        found = rows if projection.where is None else rows.where(projection.where)
        rows = found.selectExpr(*projection.columns)
        names = [name.lower() for name in rows.columns]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise FormRefused(f"transforms.{transform.name} gives two columns with the name {twice}")
    return rows


def fields_of(rows: DataFrame) -> list[str]:
    """The fields of the value of flat rows."""
    return [name for name in rows.columns if name not in OWN_COLUMNS]


def records_of(
    rows: DataFrame,
    config: Mapping[str, str],
    key_fields: Sequence[str],
    *,
    keeps_partitions: bool = False,
    keeps_place: bool = False,
) -> DataFrame:
    """Flat rows as records for a topic, by the converters that ``config`` names; FormRefused.

    With ``keeps_place`` they have `PLACE`, too, which no record has.
    """
    fields = fields_of(rows)
    if missing := [name for name in key_fields if name not in fields]:
        raise FormRefused(f"key.fields names {missing[0]}, which rows do not have: they have {', '.join(fields)}")
    key = F.col("_key")
    if len(key_fields) == 1:
        key = F.col(spark_name(key_fields[0]))
    elif key_fields:
        key = F.struct(*map(spark_name, key_fields))
    # The types are those of the rows' own columns; a struct's are its fields'.
    key_kind = rows.select(key.alias("_key")).schema["_key"].dataType
    value_kind = StructType([rows.schema[name] for name in fields])
    # Encoders are called for each row, whatever is asked of it, and those of Avro take no struct of nulls.
    value = F.when(~F.col("_tombstone"), F.struct(*(F.col(spark_name(name)) for name in fields)))
    placed = [F.col("_partition").alias("partition")] if keeps_partitions else []
    return rows.select(
        *placed,
        _encoded(key, key_kind, config, "key").alias("key"),
        _encoded(value, value_kind, config, "value").alias("value"),
        F.col("_topic").alias("topic"),
        F.col("_timestamp").alias("timestamp"),
        F.col("_headers").alias("headers"),
        *(PLACE if keeps_place else ()),
    )


def _encoded(found: Column, kind: DataType, config: Mapping[str, str], side: str) -> Column:
    form = _form(config, side)
    if form == "json":
        told = F.to_json(found, _ALL_FIELDS) if isinstance(kind, StructType) else found.cast("string")
        if not isinstance(kind, StructType) and kind.simpleString() == "string":
            # A text of JSON has quotes: that of a struct with it, without the rest.
            told = F.regexp_extract(F.to_json(F.struct(found.alias("v"))), r"(?s)^\{\"v\":(.*)\}$", 1)
            told = F.when(found.isNotNull(), told)
        if not _has_envelope(config, side):
            return told
        schema = json.dumps(envelope_of(kind), separators=(",", ":"))
        return F.when(
            found.isNotNull(),
            F.concat(F.lit(f'{{"schema":{schema},"payload":'), F.coalesce(told, F.lit("null")), F.lit("}")),
        )
    if form in ("text", "bytes"):
        if isinstance(kind, StructType):
            if len(kind.names) != 1:
                raise FormRefused(f"{side}.converter {form} takes one field, and there are {', '.join(kind.names)}")
            found = found.getField(kind.names[0])
        return found.cast("string" if form == "text" else "binary")
    schema = config.get(f"{side}.converter.schema", "").strip()
    if not schema:
        raise FormRefused(f"{side}.converter {form} needs {side}.converter.schema")
    if form == "avro":
        from pybroker.pipeline.converters.avro import to_avro

        return to_avro(schema)(found)
    from pybroker.pipeline.converters.protobuf import to_protobuf

    return to_protobuf((schema, _message(config, side)))(found)


def _form(config: Mapping[str, str], side: str) -> str:
    named = config[f"{side}.converter"]
    if (form := converter_named(named)) is None:
        raise FormRefused(f"{side}.converter: there is no such converter: {named}")
    return form


def _has_envelope(config: Mapping[str, str], side: str) -> bool:
    return config.get(f"{side}.converter.schemas.enable", "false").strip().lower() == "true"


def _message(config: Mapping[str, str], side: str) -> str:
    name = config.get(f"{side}.converter.message", "").strip()
    if not name:
        raise FormRefused(f"{side}.converter protobuf needs {side}.converter.message")
    return name


def _payload_of(inner: Decoder) -> Decoder:
    def decode(frame: DataFrame, name: str) -> DataFrame:
        return inner(frame, name).withColumn(name, F.col(name).getField("payload"))

    return decode
