"""Decoders and encoders in Python: a function per value, over batches of Arrow.

Owns that an error becomes the value's, with its reason, and fails no task: the function's own, and that of Arrow for a
value that its type has no room for.
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

_REASON_MAX = 300


def decoder_of(read: Callable[[bytes], Any], kind: DataType) -> Decoder:
    """A decoder by ``read``, which goes to the tasks pickled, gives what Arrow takes for ``kind``, and may raise."""
    result = StructType([StructField("value", kind), StructField("error", StringType())])
    arrow_kind = to_arrow_type(kind, timezone="UTC")

    def read_all(column: pa.Array) -> pa.Array:
        values, errors = [], []
        for cell in column.to_pylist():
            value, error = None, None
            if cell is not None:
                try:
                    value = read(cell)
                except Exception as problem:
                    error = _reason(problem)
            values.append(value)
            errors.append(error)
        arrays = [_array(values, errors, arrow_kind), pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(arrays, names=["value", "error"])

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


def _array(values: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """The values; of one that Arrow refuses its reason is put among ``errors``."""
    try:
        return pa.array(values, kind)
    except Exception:
        # One is enough to fail all: which it is, only one by one tells.
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except Exception as problem:
                values[i], errors[i] = None, _reason(problem)
        return pa.array(values, kind)


def _reason(problem: Exception) -> str:
    said = f"{type(problem).__name__}: {problem}"[:_REASON_MAX]
    # What could not be read may be in it, and may be no text.
    return said.encode(errors="replace").decode()
