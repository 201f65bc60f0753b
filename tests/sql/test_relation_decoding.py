"""Values become columns by their format; what does not fit is counted with a reason, or ends the query."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pybroker.sql.fetching.record_columns import TYPES
from pybroker.sql.fetching.relation_decoding import Decoding, Misfits
from pybroker.sql.fetching.value_decoders import schema_columns
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.relations.format_options import with_schema_inside
from pybroker.sql.sql_errors import SqlError

COLUMNS = (Column("id", "BIGINT", "id"), Column("name", "TEXT", "name"), Column("at", "TIMESTAMP", "at"))


def relation(form: Format, columns: Sequence[Column] = COLUMNS, **options: str) -> Relation:
    return Relation("orders", "orders", form, tuple(columns), options=options)


def decoded(
    found: Relation, values: Sequence[bytes | None], columns: Sequence[Column] | None = None, **raw: list[Any]
) -> tuple[list[dict[str, Any]], Misfits]:
    misfits = Misfits(stops=False)
    decoding = Decoding(found, found.columns if columns is None else columns, misfits)
    given: dict[str, list[Any]] = {"value": list(values), "offset": list(range(len(values))), **raw}
    batch = pa.RecordBatch.from_pydict({name: pa.array(given[name], TYPES[name]) for name in decoding.fields})
    result = decoding.decoded(batch, 3)
    assert result.schema == decoding.schema()
    return result.to_pylist(), misfits


def test_object_of_json_has_its_fields() -> None:
    rows, misfits = decoded(
        relation(Format.JSON),
        [b'{"id": 1, "name": "a", "at": "2026-01-31 12:00:00", "more": []}', b'{"name": null}', None],
    )
    assert [row["id"] for row in rows] == [1, None, None]
    assert rows[0]["name"] == "a"
    assert rows[0]["at"].isoformat() == "2026-01-31T12:00:00"
    assert misfits.remark() is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id": "x"}', "id is no BIGINT"),
        (b'{"id": {"a": 1}}', "id is no BIGINT"),
        (b'{"at": "noon"}', "at is no TIMESTAMP"),
        (b"[1]", "is no JSON object"),
        (b'"a"', "is no JSON object"),
        (b'{"id": ', "is no JSON object"),
        (b"", "is no JSON object"),
        (b'{"name": "\xff"}', "the value is no UTF-8"),
    ],
)
def test_value_that_is_no_such_object_is_left_out_and_counted(value: bytes, reason: str) -> None:
    rows, misfits = decoded(relation(Format.JSON), [b'{"id": 1}', value, b'{"id": 2}', value])
    assert [row["id"] for row in rows] == [1, 2]
    assert misfits.count == 2
    assert str(misfits.first) == f"orders partition 3 offset 1: {reason}"
    assert misfits.remark() == (
        f"2 records do not fit and were left out; the first: orders partition 3 offset 1: {reason}"
    )


def test_only_columns_that_a_query_uses_have_to_fit() -> None:
    rows, misfits = decoded(relation(Format.JSON), [b'{"id": "x", "name": "a"}'], [COLUMNS[1]])
    assert rows == [{"name": "a"}]
    assert misfits.count == 0


def test_misfit_ends_a_query_that_stops_there() -> None:
    decoding = Decoding(relation(Format.JSON), COLUMNS, Misfits(stops=True))
    batch = pa.RecordBatch.from_pydict(
        {name: pa.array({"value": [b"x"], "offset": [7]}[name], TYPES[name]) for name in decoding.fields}
    )
    with pytest.raises(SqlError, match="a record does not fit: orders partition 0 offset 7: is no JSON object"):
        decoding.decoded(batch, 0)


def test_first_misfit_is_that_of_the_lowest_partition_and_offset() -> None:
    _, misfits = decoded(relation(Format.JSON), [b"x"])
    assert misfits.first is not None
    misfits.note(1, misfits.first.__class__("orders", 1, 9, "other"))
    assert misfits.first.partition == 1
    misfits.note(1, misfits.first.__class__("orders", 2, 0, "later"))
    assert misfits.first.partition == 1
    assert misfits.count == 3


def test_fields_with_odd_names_are_found() -> None:
    columns = (Column('a"b', "BIGINT", 'a"b'), Column("c/d~e", "BIGINT", "c/d~e"), Column("it's", "BIGINT", "it's"))
    value = json.dumps({'a"b': 1, "c/d~e": 2, "it's": 3}).encode()
    rows, misfits = decoded(relation(Format.JSON, columns), [value, b'{"c/d~e": "x"}'])
    assert rows == [{'a"b': 1, "c/d~e": 2, "it's": 3}]
    assert misfits.count == 1


def test_nested_values_of_json_are_structs_and_lists() -> None:
    columns = (Column("who", "STRUCT(name VARCHAR, age BIGINT)", "who"), Column("tags", "VARCHAR[]", "tags"))
    rows, _ = decoded(relation(Format.JSON, columns), [b'{"who": {"name": "a", "age": 3}, "tags": ["x", "y"]}'])
    assert rows == [{"who": {"name": "a", "age": 3}, "tags": ["x", "y"]}]


def test_line_of_csv_has_its_columns_in_order() -> None:
    rows, misfits = decoded(
        relation(Format.CSV), [b'1,"a, b",2026-01-31 12:00:00', b"2,,", b"3,x", b"x,y,", b"1,a,b\n2,c,d", None]
    )
    assert [row["id"] for row in rows] == [1, 2, None]
    assert [row["name"] for row in rows] == ["a, b", None, None]
    quoted, _ = decoded(relation(Format.CSV, [COLUMNS[1]] * 3), [b'"",,"say ""no"""', b'"a""","",'], COLUMNS[1:2])
    assert quoted == [{"name": ""}, {"name": 'a"'}]
    assert misfits.count == 3
    assert misfits.first is not None
    assert misfits.first.reason == "has 2 fields in 1 lines, and should have 3 in one"


def test_csv_may_have_another_delimiter_and_columns_are_found_by_their_place() -> None:
    found = relation(Format.CSV, delimiter="\t")
    rows, _ = decoded(found, [b"1\ta\t2026-01-31"], [COLUMNS[1]])
    assert rows == [{"name": "a"}]


def test_text_is_the_whole_value() -> None:
    column = Column("value", "VARCHAR")
    rows, misfits = decoded(relation(Format.TEXT, [column]), ["é".encode(), b"\xff", None])
    assert rows == [{"value": "é"}, {"value": None}]
    assert misfits.count == 1
    numbers, _ = decoded(relation(Format.TEXT, [Column("n", "BIGINT")]), [b"7"])
    assert numbers == [{"n": 7}]


def test_pseudo_columns_are_the_records() -> None:
    columns = [Column(name, "") for name in ("_key", "_partition", "_offset")]
    rows, _ = decoded(relation(Format.JSON), [], columns, key=[b"k", b"\xff", None], offset=[4, 5, 6])
    assert rows == [
        {"_key": "k", "_partition": 3, "_offset": 4},
        {"_key": "\\xff", "_partition": 3, "_offset": 5},
        {"_key": None, "_partition": 3, "_offset": 6},
    ]


def test_key_column_is_the_key_as_its_type() -> None:
    columns = [Column("id", "BIGINT", "id", is_key=True)]
    rows, misfits = decoded(relation(Format.JSON, columns), [], key=[b"7", b"x", None], offset=[0, 1, 2])
    assert rows == [{"id": 7}, {"id": None}]
    assert (misfits.count, str(misfits.first)) == (1, "orders partition 3 offset 1: id is no BIGINT")


def test_key_and_value_that_do_not_fit_are_one_record() -> None:
    columns = [Column("id", "BIGINT", "id", is_key=True), Column("n", "BIGINT", "n")]
    values = [b'{"n": 1}', b'{"n": "x"}', b'{"n": "x"}', b'{"n": 2}']
    rows, misfits = decoded(relation(Format.JSON, columns), values, key=[b"7", b"8", b"y", b"y"])
    assert rows == [{"id": 7, "n": 1}]
    assert misfits.count == 3


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}],
}


def test_values_of_avro_are_read_by_their_schema(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(SCHEMA), {"id": 7, "tags": ["a"]})
    empty = relation(Format.AVRO, [], schema=str(file))
    columns = schema_columns(empty)
    assert [(column.name, column.type) for column in columns] == [("id", "BIGINT"), ("tags", "VARCHAR[]")]
    rows, misfits = decoded(relation(Format.AVRO, columns, schema=str(file)), [stream.getvalue(), b"\x01", None])
    assert rows == [{"id": 7, "tags": ["a"]}, {"id": None, "tags": None}]
    assert misfits.count == 1


def test_messages_of_protobuf_are_read_by_their_descriptors(tmp_path: Path) -> None:
    made = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    made.message_type.add(name="Order").field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    file = tmp_path / "order.desc"
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(made)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    options = {"schema": str(file), "message": "shop.Order"}
    columns = schema_columns(relation(Format.PROTOBUF, [], **options))
    assert [(column.name, column.type) for column in columns] == [("id", "BIGINT")]
    rows, misfits = decoded(relation(Format.PROTOBUF, columns, **options), [order(id=7).SerializeToString(), b"\xff"])
    assert rows == [{"id": 7}]
    assert misfits.count == 1
    inside = with_schema_inside(Format.PROTOBUF, options)
    file.unlink()
    assert schema_columns(relation(Format.PROTOBUF, [], **inside)) == columns


@pytest.mark.parametrize(
    ("form", "options", "told"),
    [
        (Format.AVRO, {}, "format avro needs schema='FILE'"),
        (Format.PROTOBUF, {"schema": "a.desc"}, "format protobuf needs message='NAME'"),
        (Format.AVRO, {"schema": "/nowhere/a.avsc"}, "No such file"),
        (Format.AVRO, {"schema": "{}"}, "no schema of Avro's"),
        (Format.AVRO, {"schema": '"long"', "registry_header": "perhaps"}, "registry_header is true, false or the id"),
        (Format.AVRO, {"schema": '"long"', "registry_header": "²"}, "registry_header is true, false or the id"),
    ],
)
def test_schema_that_is_none_is_refused(form: Format, options: dict[str, str], told: str) -> None:
    with pytest.raises(SqlError, match=told):
        schema_columns(relation(form, [], **options))


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_S"])
@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Format.JSON, b'{"at": "2026-01-31T14:00:00+02:00"}'),
        (Format.JSON, b'{"at": "2026-01-31T12:00:00Z"}'),
        (Format.TEXT, b"2026-01-31 14:00:00+02"),
        (Format.CSV, b"2026-01-31 06:30:00-05:30"),
    ],
)
def test_time_with_a_zone_is_that_time_in_utc(form: Format, value: bytes, kind: str) -> None:
    rows, misfits = decoded(relation(form, [Column("at", kind, "at")]), [value])
    assert rows[0]["at"].isoformat() == "2026-01-31T12:00:00"
    assert misfits.count == 0


def test_time_with_a_zone_inside_of_a_value_and_in_a_key_is_that_time_in_utc() -> None:
    columns = (Column("s", "STRUCT(l TIMESTAMP[])", "s"), Column("k", "TIMESTAMP", is_key=True))
    rows, _ = decoded(
        relation(Format.JSON, columns), [b'{"s": {"l": ["2026-01-31T14:00:00+02:00"]}}'], key=[b"2026-01-31T13:00+01"]
    )
    assert rows[0]["s"]["l"][0].isoformat() == rows[0]["k"].isoformat() == "2026-01-31T12:00:00"
