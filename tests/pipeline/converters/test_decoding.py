"""Values of each kind, read and written; nulls, drift, and what cannot be read. Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

ORDER = "id bigint not null, name string, tags array<string>, at timestamp"

AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "notes", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
AN_ORDER = {"id": 1, "name": "x", "price": Decimal("9.50"), "at": AT, "lines": [{"sku": "a"}], "notes": {"k": "v"}}


def rows_of(spark: Any, *values: bytes | str | None) -> Any:
    rows = [
        (b"k", value.encode() if isinstance(value, str) else value, "orders", 3, offset, None)
        for offset, value in enumerate(values)
    ]
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "headers array<struct<key string, value binary>>"
    )
    return spark.createDataFrame(rows, schema)


def read(decoded: Any) -> list[tuple[Any, Any]]:
    """Value and error of each row."""
    return [
        (row.value.asDict(True) if hasattr(row.value, "asDict") else row.value, row.error)
        for row in decoded.orderBy("offset").collect()
    ]


def avro_bytes(value: Any, schema: Any = AVRO_ORDER) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def test_json_is_read_or_told(spark: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of

    values = [
        '{"id": 1, "name": "x", "tags": ["a"], "at": "2026-01-02T03:04:05Z", "new": 5}',
        '{"id": 2}',
        '{"id": 3, "name": null, "tags": null}',
        None,
        "{not JSON",
        "",
        '{"id": 1} x',
        '{"id": 1}{"id": 2}',
        '{"id": 1}, {"id": 2}',
        '{"id": 1}] [{"id": 2}',
        "[1, 2]",
        "7",
        '{"id": "three"}',
        '{"id": 4, "tags": 5}',
        '{"name": "x"}',
        b'{"id": 5, "name": "\xff"}',
    ]
    found = read(decode(rows_of(spark, *values), json_of(ORDER)))
    assert [value and (value["id"], value["name"], value["tags"]) for value, _ in found[:4]] == [
        (1, "x", ["a"]),
        (2, None, None),
        (3, None, None),
        None,
    ]
    assert [error for _, error in found[:4]] == [None] * 4
    assert [value for value, _ in found[4:]] == [None] * 12
    assert [error for _, error in found[4:]] == [
        *6 * ["value: is no JSON"],
        "value: is no JSON object",
        "value: is no JSON object",
        "value: does not fit the schema: id is no bigint",
        "value: does not fit the schema: tags is no array<string>",
        "value: id is missing",
        "value: is no UTF-8",
    ]


def test_nested_json_that_has_drifted_is_told_by_its_field(spark: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of

    schema = "id int, at struct<place: struct<lat: double not null, name: string>>, lines array<struct<n: int>>"
    values = [
        '{"id": 1, "at": {"place": {"lat": 1.5, "new": [1]}}, "lines": [{"n": 1, "new": {}}]}',
        '{"id": 2, "at": {"place": {"lat": 1.5, "name": {"now": "an object"}}}, "lines": []}',
        '{"id": 3, "at": null, "lines": [null]}',
        '{"id": 4, "at": {"place": {"lat": "north"}}}',
        '{"id": 5, "at": {"place": "Oslo"}}',
        '{"id": 6, "at": [1]}',
        '{"id": 7, "at": {"place": {"name": "Oslo"}}}',
        '{"id": 8, "lines": [{"n": "one"}]}',
        '{"id": 9, "lines": {"n": 1}}',
        "[" * 2_000,
        '{"id": 9, "lines": ' + "[" * 2_000 + "]" * 2_000 + "}",
    ]
    found = read(decode(rows_of(spark, *values), json_of(schema)))
    assert [value and value["id"] for value, _ in found] == [1, 2, 3] + [None] * 8
    assert found[1][0]["at"]["place"]["name"] == '{"now":"an object"}'
    assert [error for _, error in found[3:]] == [
        "value: does not fit the schema: at.place.lat is no double",
        "value: does not fit the schema: at.place is no struct<lat:double,name:string>",
        "value: does not fit the schema: at is no struct<place:struct<lat:double,name:string>>",
        "value: at.place.lat is missing",
        "value: does not fit the schema: a value in at or lines",
        "value: does not fit the schema: lines is no array<struct<n:int>>",
        "value: is no JSON",
        "value: is no JSON",
    ]


def test_json_may_have_any_of_its_whitespace_in_front_and_no_key_twice(spark: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of

    values = [
        '\n\t\r {"id": 1}\r\n',
        "\n\t[1]",
        '{"id": 1, "id": 2}',
        '{"id": 1, "x": {"a": 1, "a": 2}}',
        '{"id": 1, "x": NaN}',
        '{"id": 1, "x": "\\ud83d"}',
        '{"id": 1, "x": "\\ud83d\\ude00"}',
    ]
    found = read(decode(rows_of(spark, *values), json_of("id int")))
    assert found == [
        ({"id": 1}, None),
        (None, "value: is no JSON object"),
        (None, "value: has a key twice"),
        (None, "value: has a key twice"),
        (None, "value: is no JSON"),
        (None, "value: has half of a surrogate pair alone, or a key twice"),
        ({"id": 1}, None),
    ]


def test_json_that_is_read_as_another_value_is_refused(spark: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of

    values = [
        '{"day": "2026-01-02", "at": "2026-01-02T03:04:05Z", "n": 1.5, "ns": [0, 1e300]}',
        '{"day": "20260102"}',
        '{"at": "20260102"}',
        '{"n": "NaN"}',
        '{"n": "Infinity"}',
        '{"n": 1e999}',
        '{"ns": [1, 1e999]}',
        '{"at": 9223372036855}',  # one more than Spark's microseconds have
        '{"of": {"at": -9223372036854775808}}',
    ]
    schema = "day date, at timestamp, n double, ns array<double>, of struct<at: timestamp>"
    found = read(decode(rows_of(spark, *values), json_of(schema)))
    assert found[0][0]["ns"] == [0, 1e300]
    assert [error for _, error in found] == [
        None,
        "value: does not fit the schema: day is no date",
        "value: does not fit the schema: at is no timestamp",
        "value: does not fit the schema: n is no double",
        "value: does not fit the schema: n is no double",
        "value: n is no double",
        "value: ns[] is no double",
        "value: does not fit the schema: at is no timestamp",
        "value: does not fit the schema: of.at is no timestamp",
    ]


def test_what_may_not_be_null_is_told_within_arrays_and_maps(spark: Any) -> None:
    from pyspark.sql import types as T

    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import json_of

    line = T.StructType([T.StructField("n", T.IntegerType(), nullable=False)])
    schema = T.StructType(
        [
            T.StructField("lines", T.ArrayType(line)),
            T.StructField("named", T.MapType(T.StringType(), T.ArrayType(line))),
            T.StructField("tags", T.ArrayType(T.StringType(), containsNull=False)),
        ]
    )
    values = [
        '{"lines": [{"n": 1}, null], "named": {"a": [{"n": 1}], "b": null}, "tags": ["x"]}',
        '{"lines": [], "named": {}, "tags": []}',
        '{"lines": [{"n": 1}, {}]}',
        '{"named": {"a": [], "b": [{"n": 1}, {"n": null}]}}',
        '{"tags": ["x", null]}',
    ]
    found = read(decode(rows_of(spark, *values), json_of(schema)))
    assert [error for _, error in found] == [
        None,
        None,
        "value: lines[].n is missing",
        "value: named[][].n is missing",
        "value: tags[] is missing",
    ]


@pytest.mark.parametrize("fields", [1, 30])
def test_a_plan_parses_json_once_however_many_fields_are_read_and_filtered(spark: Any, fields: int) -> None:
    from pybroker.pipeline.converters.decoding import decode, readable
    from pybroker.pipeline.converters.json_values import json_of

    schema = ", ".join(f"f{number} double not null" for number in range(fields))
    found = readable(decode(rows_of(spark, "{}"), json_of(schema))).select("value.*").where("f0 > 1 and f0 < 7")
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(StructField") == 1
    assert plan.count("parseJson") == 1


def test_a_decoder_in_python_is_asked_once_per_value(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.types import StringType

    from pybroker.pipeline.converters.arrow_decoding import decoder_of
    from pybroker.pipeline.converters.decoding import decode, readable

    asked = tmp_path / "asked"

    def read_and_note(value: bytes) -> str:
        with asked.open("ab") as file:
            file.write(value)
        return value.decode()

    found = readable(decode(rows_of(spark, "a", "b", "c"), decoder_of(read_and_note, StringType())))
    assert sorted(row.value for row in found.where("value != 'b'").collect()) == ["a", "c"]
    assert sorted(asked.read_bytes()) == sorted(b"abc")


def test_text_and_bytes(spark: Any) -> None:
    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.json_values import raw, text

    records = rows_of(spark, "é", b"\xff", None)
    assert read(decode(records, text())) == [("é", None), (None, "value: is no UTF-8"), (None, None)]
    assert read(decode(records, raw())) == [("é".encode(), None), (b"\xff", None), (None, None)]
    keys = decode(records.selectExpr("value as key", "value", *records.columns[2:]), raw(), key=text())
    assert [error for _, error in read(keys)] == [None, "key: is no UTF-8", None]


def test_avro_is_read_by_its_schema_and_written_again(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline.converters.avro import avro_of, to_avro
    from pybroker.pipeline.converters.decoding import decode

    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(AVRO_ORDER))
    whole = avro_bytes(AN_ORDER)
    decoded = decode(rows_of(spark, whole, None, whole[:-3], whole + b"!", b""), avro_of(file))
    found = read(decoded)
    shown = {**AN_ORDER, "at": AT.astimezone().replace(tzinfo=None)}
    assert found[0] == (shown, None)
    assert found[1] == (None, None)
    assert [value for value, _ in found[2:]] == [None] * 3
    assert found[3][1] == "value: ValueError: 1 bytes are left over behind the value"
    assert all(error and error.startswith("value: EOFError") for _, error in (found[2], found[4]))
    written = decoded.where("offset < 2").select("offset", to_avro(AVRO_ORDER)(F.col("value")).alias("value"))
    assert [row.value for row in written.orderBy("offset").collect()] == [whole, None]


def test_a_newer_schema_reads_what_an_older_one_wrote(spark: Any) -> None:
    from pybroker.pipeline.converters.avro import avro_of
    from pybroker.pipeline.converters.decoding import decode

    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": "int"}]}
    new = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "?"}],
    }
    framed = b"\0\0\0\0\7" + avro_bytes({"id": 1, "x": 2}, old)
    decoder = avro_of(old, reader=json.dumps(new), registry_header=True)
    found = read(decode(rows_of(spark, framed, framed[5:]), decoder))
    assert found[0] == ({"id": 1, "name": "?"}, None)
    assert found[1][1] == "value: ValueError: does not begin as a schema registry's serializers have it"


def test_a_value_that_its_type_has_no_room_for_is_told_and_fails_no_other(spark: Any) -> None:
    from pybroker.pipeline.converters.avro import avro_of
    from pybroker.pipeline.converters.decoding import decode

    def price(digits: int) -> bytes:
        # Avro's writer knows the bound as well; its reader does not.
        number = (10**digits - 1).to_bytes(9, "big")
        return avro_bytes(number, "bytes")

    decoder = avro_of({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    found = read(decode(rows_of(spark, price(9), price(12), None, price(3)), decoder))
    assert [value for value, _ in found] == [Decimal("9999999.99"), None, None, Decimal("9.99")]
    assert [error is not None for _, error in found] == [False, True, False, False]
    assert found[1][1].startswith("value: ArrowInvalid: Decimal type with precision")


TIMES = {
    "type": "record",
    "name": "Times",
    "fields": [
        {"name": "ms", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "local_ms", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "local_us", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "strange", "type": {"type": "string", "logicalType": "decimal"}},
    ],
}


def test_logical_types_are_read_and_written_again(spark: Any) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline.converters.avro import avro_of, to_avro
    from pybroker.pipeline.converters.decoding import decode

    local = datetime(2026, 1, 2, 3, 4, 5, 678000)
    value = {
        "ms": 3_600_001,
        "us": 3_600_000_001,
        "local_ms": local,
        "local_us": local,
        "day": local.date(),
        "id": "00112233-4455-6677-8899-aabbccddeeff",
        "strange": "x",
    }
    as_written = json.loads(json.dumps(TIMES).replace("time-millis", "-").replace("time-micros", "-"))
    whole = avro_bytes(value, as_written)
    decoded = decode(rows_of(spark, whole), avro_of(TIMES))
    assert read(decoded) == [(value, None)]
    written = decoded.select(to_avro(TIMES)(F.col("value")).alias("value"))
    assert [row.value for row in written.collect()] == [whole]


def test_a_schema_is_also_a_files_path_as_text(tmp_path: Path) -> None:
    from pybroker.pipeline.converters.avro import avro_of

    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(AVRO_ORDER))
    avro_of(str(file))
    with pytest.raises(FileNotFoundError):
        avro_of(str(tmp_path / "none.avsc"))
    with pytest.raises(ValueError, match=r"neither JSON nor the path of an \.avsc file: 'order'"):
        avro_of("order")


def test_short_names_are_those_of_the_namespace_that_is_around_them() -> None:
    from pybroker.pipeline.converters.avro import spark_type
    from pybroker.values.avro_values import parsed

    state = {"type": "enum", "name": "State", "symbols": ["OPEN"]}
    line = {"type": "record", "name": "lines.Line", "fields": [{"name": "s", "type": "shop.State"}]}
    fields = [{"name": "a", "type": state}, {"name": "b", "type": "State"}, {"name": "c", "type": line}]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    assert spark_type(parsed(schema)).simpleString() == "struct<a:string,b:string,c:struct<s:string>>"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (["int", "string"], "a union of 2 types is no type of a column"),
        (["null", "R"], "R contains itself"),
        ("S", "no schema of Avro's: UnknownType: S"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
    ],
    ids=str,
)
def test_a_schema_that_has_no_type_of_sparks_is_refused(kind: Any, told: str) -> None:
    from pybroker.pipeline.converters.avro import avro_of

    with pytest.raises(ValueError, match=told):
        avro_of({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that protoc makes of a message of every kind of field."""
    from google.protobuf import descriptor_pb2, timestamp_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    optional, repeated = field_type.LABEL_OPTIONAL, field_type.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.enum_type.add(name="State").value.add(name="OPEN", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="NotesEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), start=1):
        entry.field.add(name=name, number=number, type=field_type.TYPE_STRING, label=optional)
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field_type.TYPE_STRING, label=optional)
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("id", field_type.TYPE_INT64, optional, None),
            ("data", field_type.TYPE_BYTES, optional, None),
            ("state", field_type.TYPE_ENUM, optional, ".shop.State"),
            ("at", field_type.TYPE_MESSAGE, optional, ".google.protobuf.Timestamp"),
            ("lines", field_type.TYPE_MESSAGE, repeated, ".shop.Order.Line"),
            ("notes", field_type.TYPE_MESSAGE, repeated, ".shop.Order.NotesEntry"),
            ("big", field_type.TYPE_UINT64, optional, None),
        ],
        start=1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    path = tmp_path_factory.mktemp("descriptors") / "order.desc"
    path.write_bytes(files.SerializeToString())
    return path


def test_protobuf_is_read_by_its_descriptors_and_written_again(spark: Any, descriptors: Path) -> None:
    from google.protobuf import descriptor_pb2, message_factory
    from pyspark.sql import functions as F

    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.protobuf import protobuf_of, to_protobuf

    made = message_factory.GetMessages(descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file)
    message = made["shop.Order"](id=7, data=b"\xff", state=1, notes={"k": "v"}, big=1 << 63)
    message.at.FromDatetime(AT)
    message.lines.add(sku="a")
    whole = message.SerializeToString(deterministic=True)
    source = (descriptors, "shop.Order")
    decoded = decode(rows_of(spark, whole, None, b"", whole[:-1], b"\x0a\x01x"), protobuf_of(source))
    found = read(decoded)
    at = AT.astimezone().replace(tzinfo=None)
    full = {"id": 7, "data": b"\xff", "state": "PAID", "at": at, "lines": [{"sku": "a"}], "notes": {"k": "v"}}
    empty = {"id": 0, "data": b"", "state": "OPEN", "at": None, "lines": [], "notes": {}}
    assert found[:3] == [({**full, "big": 1 << 63}, None), (None, None), ({**empty, "big": 0}, None)]
    assert found[3][1] is not None
    assert found[3][1].startswith("value: DecodeError")
    assert found[4][1] == "value: ValueError: shop.Order.id is written as another type: the value is another message"
    written = decoded.where("offset < 3").select("offset", to_protobuf(source)(F.col("value")).alias("value"))
    assert [row.value for row in written.orderBy("offset").collect()] == [whole, None, b""]


def test_a_generated_class_says_how_to_read_it(spark: Any) -> None:
    from google.protobuf.source_context_pb2 import SourceContext

    from pybroker.pipeline.converters.decoding import decode
    from pybroker.pipeline.converters.protobuf import protobuf_of

    found = read(decode(rows_of(spark, SourceContext(file_name="x").SerializeToString()), protobuf_of(SourceContext)))
    assert found == [({"file_name": "x"}, None)]


def dead_letter_form(form: str) -> tuple[Any, str, list[bytes], bytes, bytes]:
    """A decoder, a field of its values, two values with it, one that cannot be read, and what is wrong with that."""
    from google.protobuf.source_context_pb2 import SourceContext

    from pybroker.pipeline.converters.avro import avro_of
    from pybroker.pipeline.converters.json_values import json_of
    from pybroker.pipeline.converters.protobuf import protobuf_of

    names = ("x", "y")
    if form == "json":
        values = [json.dumps({"id": 1, "name": name}).encode() for name in names]
        return json_of(ORDER), "name", values, b"{", b"value: is no JSON"
    if form == "avro":
        schema = {"type": "record", "name": "Named", "fields": [{"name": "name", "type": "string"}]}
        values = [avro_bytes({"name": name}, schema) for name in names]
        return avro_of(schema), "name", values, b"\x0ax", b"value: EOFError"
    values = [SourceContext(file_name=name).SerializeToString() for name in names]
    return protobuf_of(SourceContext), "file_name", values, values[0][:-1], b"value: DecodeError"


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_what_cannot_be_read_goes_to_the_dead_letters_with_the_reason(drive: Any, form: str) -> None:
    from pyspark.sql import functions as F

    from pybroker.pipeline.converters.decoding import dead_letters, decode, readable
    from pybroker.pipeline.testing import Record

    decoder, field, (first, second), unreadable, reason = dead_letter_form(form)

    def job(topics: Any) -> Any:
        orders = decode(topics.stream("orders"), decoder)
        return {
            "names": readable(orders).select("key", F.col(f"value.{field}").alias("value")),
            "orders-dead": dead_letters(orders),
        }

    driver = drive(job)
    driver.pipe("orders", Record("a", first), Record("b", None))
    driver.pipe("orders", Record("c", unreadable, headers=[("trace", b"1")], partition=2), Record("d", second))
    assert driver.read_pairs("names", bytes.decode) == [("a", "x"), ("b", None), ("d", "y")]
    (dead,) = driver.read("orders-dead")
    assert (dead.key, dead.value) == (b"c", unreadable)
    headers = dict(dead.headers)
    assert (headers.pop("__streams.errors.message") or b"").startswith(reason)
    assert headers == {
        "trace": b"1",
        "__streams.errors.topic": b"orders",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"0",
    }
