"""Avro as columns of Spark: values that `pybroker.values.avro_values` reads by a schema, and structs written by one."""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from pybroker.pipeline.converters.arrow_decoding import decoder_of, encoder_of
from pybroker.pipeline.converters.decoding import Decoder
from pybroker.values.avro_values import Reader, Schema, arrow_type, parsed
from pybroker.values.avro_writing import Writer
from pybroker.values.registry_header import Header, header_wanted
from pybroker.values.schema_registry import SchemaRegistry


def avro_of(
    schema: Schema,
    *,
    reader: Schema | None = None,
    registry_header: bool | int = False,
    registry: SchemaRegistry | None = None,
) -> Decoder:
    """Values written by ``schema``, as ``reader`` (a newer or older one) would have them, where it is given.

    ``registry_header`` is the id in a schema registry that the values' header has to have, or True for any.  By True, a
    value of another version is read as if it were of this one, which may well succeed, with wrong fields.

    With ``registry`` a value is written by the schema of the id in its header, which each task looks up there once, and
    comes as ``schema`` would have it.  A registry that is away fails the task.

    A schema is JSON, what JSON says, or the path of a file (``.avsc``).

    Raises ValueError for a schema that is none or no type of a column, and OSError for a file that cannot be read.
    """
    return avro_behind(header_wanted(registry_header), schema, reader=reader, registry=registry)


def avro_behind(
    header: Header | None, schema: Schema, *, reader: Schema | None = None, registry: SchemaRegistry | None = None
) -> Decoder:
    """As `avro_of`, behind a header, or of values without one."""
    written = parsed(schema)
    wanted = written if reader is None else parsed(reader)
    texts = (json.dumps(written), None if reader is None else json.dumps(wanted))
    return decoder_of(Reader(*texts, header, registry), spark_type(wanted))


def to_avro(schema: Schema) -> Callable[[Column], Column]:
    """An encoder: of a column of structs, their bytes; null stays null.

    What is not as the schema says ends the query with the name of the field. That is a field that the schema does not
    name, that is missing and has no default, or that does not fit its type.
    """
    return encoder_of(Writer(json.dumps(parsed(schema))))


def spark_type(schema: Any) -> DataType:
    """The type of Spark's for a schema with full names (`parsed`); raises ValueError where there is none."""
    return from_arrow_type(arrow_type(schema), prefer_timestamp_ntz=True)
