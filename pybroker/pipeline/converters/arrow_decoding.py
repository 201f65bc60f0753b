"""Decoders and encoders in Python: a function per value, over batches of Arrow.

An error becomes the value's, with its reason, and fails no task (`pybroker.values.arrow_values`).
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from pybroker.pipeline.converters.decoding import ERROR_SUFFIX, Decoder, once
from pybroker.values.arrow_values import read_values


def decoder_of(read: Callable[[bytes], Any], kind: DataType) -> Decoder:
    """A decoder by ``read``, which goes to the tasks pickled, gives what Arrow takes for ``kind``, and may raise."""
    result = StructType([StructField("value", kind), StructField("error", StringType())])
    arrow_kind = to_arrow_type(kind, timezone="UTC")

    def read_all(column: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays([*read_values(read, column, arrow_kind)], names=["value", "error"])

    function: Callable[[Column], Column] = arrow_udf(read_all, result)  # type: ignore[call-overload,unused-ignore]

    def decoder(frame: DataFrame, name: str) -> DataFrame:
        read_column = f"{name}_read"
        found = frame.withColumn(read_column, once(function(F.col(name))))
        columns = {name: F.col(f"{read_column}.value"), f"{name}{ERROR_SUFFIX}": F.col(f"{read_column}.error")}
        return found.withColumns(columns).drop(read_column)

    return decoder


def encoder_of(write: Callable[[Any], bytes]) -> Callable[[Column], Column]:
    """An encoder by ``write``, which is given a struct as a dict; what it raises fails the query."""

    def write_all(column: pa.Array) -> pa.Array:
        cells = column.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if cell is None else write(cell) for cell in cells], pa.binary())

    encoder: Callable[[Column], Column] = arrow_udf(write_all, BinaryType())  # type: ignore[call-overload,unused-ignore]
    return encoder
