"""Schemas that are made of columns: what is written by them is read with the same names and values."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pybroker.values.avro_schemas import avro_schema
from pybroker.values.avro_values import Reader as AvroReader
from pybroker.values.avro_values import arrow_type as avro_type
from pybroker.values.avro_values import parsed
from pybroker.values.protobuf_schemas import protobuf_schema
from pybroker.values.protobuf_values import Definition
from pybroker.values.protobuf_values import Reader as ProtobufReader
from pybroker.values.protobuf_values import arrow_type as protobuf_type

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
INNER = pa.struct([("x", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "small": (pa.int8(), -3),
    "big": (pa.int64(), 2**62),
    "unsigned": (pa.uint32(), 2**32 - 1),
    "half": (pa.float32(), 0.5),
    "real": (pa.float64(), 1.1),
    "name": (pa.string(), "é"),
    "raw": (pa.binary(), b"\xff"),
    "at": (pa.timestamp("us", "UTC"), AT),
    "inner": (INNER, {"x": 1, "at": AT}),
    "tags": (pa.list_(pa.string()), ["a", "b"]),
    "rows": (pa.list_(INNER), [{"x": 2, "at": AT}]),
    "by_name": (pa.map_(pa.string(), pa.int64()), {"k": 1}),
}
OF_AVRO: dict[str, tuple[pa.DataType, Any]] = {
    "day": (pa.date32(), date(2026, 1, 2)),
    "money": (pa.decimal128(9, 2), Decimal("12.34")),
    "nested": (pa.list_(pa.list_(pa.int64())), [[1], [None]]),
}


def schema_of(columns: dict[str, tuple[pa.DataType, Any]]) -> pa.Schema:
    return pa.schema([(name, kind) for name, (kind, _) in columns.items()])


def row_of(columns: dict[str, tuple[pa.DataType, Any]]) -> dict[str, Any]:
    return {name: value for name, (_, value) in columns.items()}


def test_row_of_avro_is_read_as_it_was_written() -> None:
    columns = COLUMNS | OF_AVRO
    schema = avro_schema(schema_of(columns), "orders.v1")
    assert schema["name"] == "orders_v1"
    assert avro_type(parsed(schema)).names == list(columns)
    read = AvroReader(json.dumps(parsed(schema)), None, None)
    for row in (row_of(columns), dict.fromkeys(columns)):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(schema), row)
        assert read(written.getvalue()) == row


def test_row_of_protobuf_is_read_as_it_was_written_and_null_is_no_zero() -> None:
    pytest.importorskip("pyspark")
    from pybroker.values.protobuf_writing import Writer

    files, message = protobuf_schema(schema_of(COLUMNS), "2-orders")
    assert message == "_2_orders"
    definition = Definition((files, message))
    assert protobuf_type(definition.descriptor()).names == list(COLUMNS)
    write, read = Writer(definition), ProtobufReader(definition)
    nothing = dict.fromkeys(COLUMNS) | {"tags": [], "rows": [], "by_name": {}}
    found = [read(write(row)) for row in (row_of(COLUMNS), dict.fromkeys(COLUMNS))]
    cells = pa.array(found, protobuf_type(definition.descriptor())).to_pylist(maps_as_pydicts="strict")
    assert cells == [row_of(COLUMNS), nothing]


@pytest.mark.parametrize("make", [avro_schema, protobuf_schema])
@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("span", pa.duration("us"), "span: .* has no type for duration"),
        ("the name", pa.string(), "is no name of a field"),
        ("1st", pa.string(), "is no name of a field"),
    ],
)
def test_column_without_a_type_or_a_name_is_refused(make: Any, name: str, kind: pa.DataType, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make(pa.schema([(name, kind)]), "t")


def test_names_that_meet_are_told_apart() -> None:
    """What schemas name beside the columns is not called as a column is, and no two of it alike."""
    inner = pa.struct([("b", pa.struct([("c", pa.int32())]))])
    of_b = pa.struct([("c", pa.int32())])
    kinds = {"x": pa.int32(), "_x": pa.int32(), "a": inner, "a_b": of_b, "a_struct": of_b}
    columns = pa.schema([*kinds.items(), ("fooBar", pa.map_(pa.string(), pa.int64()))])
    assert avro_type(parsed(avro_schema(columns, "t"))).names == columns.names
    definition = Definition(protobuf_schema(columns, "t"))
    assert protobuf_type(definition.descriptor()).names == columns.names
    assert "FooBarEntry" in definition.descriptor().nested_types_by_name


def test_keys_of_a_map_that_protobuf_does_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match="m: Protobuf has no keys of double"):
        protobuf_schema(pa.schema([("m", pa.map_(pa.float64(), pa.int32()))]), "t")


def test_a_record_of_avro_has_the_full_name_that_is_wanted_for_it() -> None:
    columns = pa.schema([("id", pa.int64()), ("who", pa.struct([("name", pa.string())]))])
    made = avro_schema(columns, "orders", "com.acme.Order")
    assert parsed(json.dumps(made))["name"] == "com.acme.Order"
    with pytest.raises(ValueError, match=r"'com\.\.x' is no full name of a schema"):
        avro_schema(columns, "orders", "com..x")
