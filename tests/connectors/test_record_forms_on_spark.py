"""Converters and transforms of connectors as Spark runs them, and what becomes of records that cannot be read.

Starts a JVM; needs what `scripts/spark-setup` installs.  All tests share one session, and all transforms one job.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pybroker.connectors.declared.plugin_kinds import kind_named
from pybroker.connectors.declared.transforms import OWN_COLUMNS, TRANSFORMS, transform_errors, transforms_of
from pybroker.testing import Broker
from tests.connectors.supervisor_world import topic_values

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(600)]

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DDL = "id bigint, name string, amount double"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "amount", "type": "double"},
        ],
    }
)


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a message `shop.Row`."""
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    made = descriptor_pb2.FileDescriptorProto(name="row.proto", package="shop", syntax="proto3")
    row = made.message_type.add(name="Row")
    for number, (name, kind) in enumerate(
        (("id", kinds.TYPE_INT64), ("name", kinds.TYPE_STRING), ("amount", kinds.TYPE_DOUBLE)), 1
    ):
        row.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    path = tmp_path_factory.mktemp("descriptors") / "row.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())
    return str(path)


def records(spark: Any, *keys_and_values: tuple[bytes | None, bytes | None]) -> Any:
    headers = [("h", bytearray(b"1")), ("g", bytearray(b"2"))]
    rows = [(key, value, "a-1", 2, offset, AT, headers) for offset, (key, value) in enumerate(keys_and_values, 5)]
    kinds = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    return spark.createDataFrame(rows, f"{kinds}, headers array<struct<key string, value binary>>")


def config_of(descriptors: str, form: str) -> dict[str, str]:
    """Of a converter of values; keys are text."""
    more = {
        "json": {"schema": DDL},
        "envelope": {"schema": DDL, "schemas.enable": "true"},
        "avro": {"schema": AVRO},
        "protobuf": {"schema": descriptors, "message": "shop.Row"},
    }.get(form, {})
    name = "json" if form == "envelope" else form
    settings = {f"value.converter.{key}": text for key, text in more.items()}
    return {"key.converter": "text", "value.converter": name, **settings}


def flat_rows(config: dict[str, str], found: Any) -> Any:
    from pybroker.connectors.kinds.record_forms import decoder, flat
    from pybroker.pipeline.converters.decoding import decode

    return flat(decode(found, decoder(config, "value"), key=decoder(config, "key")))


def avro_bytes(value: dict[str, Any]) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), value)
    return stream.getvalue()


ROW = {"id": 7, "name": 'é"\n', "amount": 1.5}
PLAIN = b'{"id":7,"name":"\xc3\xa9\\"\\n","amount":1.5}'
FIELDS = [
    {"type": "int64", "optional": True, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "double", "optional": True, "field": "amount"},
]
ENVELOPE = b'{"schema":{"type":"struct","fields":%s,"optional":true},"payload":%s}' % (
    json.dumps(FIELDS, separators=(",", ":")).encode(),
    PLAIN,
)


@pytest.mark.parametrize("form", ["json", "envelope", "avro", "protobuf", "text", "bytes"])
def test_a_converter_reads_what_it_has_written(spark: Any, descriptors: str, form: str) -> None:
    from pybroker.connectors.kinds.record_forms import fields_of, records_of

    # \x08: field 1, 7; \x12: field 2, of four bytes; \x19: field 3, 1.5.
    protobuf = b'\x08\x07\x12\x04\xc3\xa9"\n\x19\x00\x00\x00\x00\x00\x00\xf8\x3f'
    written = {
        **{"json": PLAIN, "envelope": ENVELOPE, "avro": avro_bytes(ROW), "protobuf": protobuf},
        **{"text": "é".encode(), "bytes": b"\xff\x00"},
    }[form]
    config = config_of(descriptors, form)
    rows = flat_rows(config, records(spark, (b"k", written), (None, None))).persist()
    try:
        first, second = rows.orderBy("_offset").collect()
        expected: Any = {"text": "é", "bytes": b"\xff\x00"}.get(form, ROW)
        found = {name: first[name] for name in fields_of(rows)}
        assert found == ({"value": expected} if form in ("text", "bytes") else expected)
        assert (first["_key"], second["_key"], first["_tombstone"], second["_tombstone"]) == ("k", None, False, True)
        again, tombstone = records_of(rows, config, []).collect()
    finally:
        rows.unpersist()
    value = again.value.encode() if isinstance(again.value, str) else bytes(again.value)
    assert (again.key, value, again.topic) == ("k", written, "a-1")
    assert (again.timestamp.astimezone(UTC), [each.key for each in again.headers]) == (AT, ["h", "g"])
    assert (tombstone.key, tombstone.value) == (None, None)


def test_a_key_of_one_field_stands_alone_and_one_of_several_is_a_struct(spark: Any, descriptors: str) -> None:
    from pybroker.connectors.kinds.record_forms import records_of

    config = config_of(descriptors, "json") | {"key.converter": "json"}
    rows = flat_rows(config_of(descriptors, "json"), records(spark, (b"k", PLAIN)))
    keys = [records_of(rows, config, names).select("key") for names in (["name"], ["id"], ["id", "amount"])]
    assert [row.key for each in keys for row in each.collect()] == ['"é\\"\\n"', "7", '{"id":7,"amount":1.5}']


# By the transform: its settings, and what of the value and of the record's own columns is other behind it.
CHANGES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "sql": (
        {"select": "id + 1 AS id, upper(name) AS name", "key": "concat(name, '!')", "where": "amount > 1"},
        {"id": 8, "name": "ANN", "amount": None, "_key": "ann!"},
    ),
    "ReplaceField$Value": ({"exclude": "amount", "renames": "name:who"}, {"name": None, "amount": None, "who": "ann"}),
    "MaskField$Value": ({"fields": "name", "replacement": "it's"}, {"name": "it's"}),
    "InsertField$Value": (
        {"topic.field": "t", "partition.field": "p", "offset.field": "o", "static.field": "s", "static.value": "v"},
        {"t": "a-1", "p": 2, "o": 5, "s": "v"},
    ),
    "ExtractField$Key": ({"field": "k"}, {"_key": "x"}),
    "HoistField$Value": (
        {"field": "all"},
        {"id": None, "name": None, "amount": None, "all": {"id": 7, "name": "ann", "amount": 1.5}},
    ),
    "ValueToKey": ({"fields": "id, name"}, {"_key": {"id": 7, "name": "ann"}}),
    "Cast$Value": ({"spec": "id:string, amount:int32"}, {"id": "7", "amount": 1}),
    "RegexRouter": ({"regex": "(.*)-(\\d)", "replacement": "$2-$1"}, {"_topic": "1-a"}),
    "DropHeaders": ({"headers": "h"}, {"_headers": ["g"]}),
    "InsertHeader": ({"header": "n", "value.literal": "3"}, {"_headers": ["h", "g", "n"]}),
    "SetSchemaMetadata$Value": ({"schema.name": "x"}, {}),
    "SetSchemaMetadata$Key": ({"schema.name": "x"}, {}),
}
BEFORE = {"id": 7, "name": "ann", "amount": 1.5, "_key": {"k": "x"}, "_topic": "a-1", "_headers": ["h", "g"]}


def transforms_config(name: str) -> dict[str, str]:
    settings, _ = CHANGES[name]
    own = {
        "transforms": "t",
        "transforms.t.type": name,
        **{f"transforms.t.{key}": text for key, text in settings.items()},
    }
    if name == "sql":  # a key that is a struct has no text
        own["transforms.t.key"] = settings["key"]
    return own


@pytest.fixture(scope="module")
def transformed_rows(spark: Any) -> dict[str, dict[str, Any]]:
    """The one row behind each transform, by one job."""
    from pyspark.sql import functions as F

    from pybroker.connectors.kinds.record_forms import transformed

    config = {"key.converter": "json", "key.converter.schema": "k string"}
    config |= {"value.converter": "json", "value.converter.schema": DDL}
    rows = flat_rows(config, records(spark, (b'{"k":"x"}', b'{"id":7,"name":"ann","amount":1.5}')))
    whole: Any = None
    for name in CHANGES:
        found = transformed(rows, transforms_of(transforms_config(name)))
        found = found.withColumn("_headers", F.transform("_headers", lambda each: each.key))
        told = found.select(F.lit(name).alias("name"), F.to_json(F.struct("*")).alias("row"))
        whole = told if whole is None else whole.union(told)
    return {each["name"]: json.loads(each["row"]) for each in whole.collect()}


@pytest.mark.parametrize("name", CHANGES)
def test_a_transform_changes_what_it_says_and_nothing_else(
    transformed_rows: dict[str, dict[str, Any]], name: str
) -> None:
    assert transform_errors(transforms_config(name)) == {}
    expected = {key: value for key, value in {**BEFORE, **CHANGES[name][1]}.items() if value is not None}
    found = {key: value for key, value in transformed_rows[name].items() if key not in set(OWN_COLUMNS) - set(BEFORE)}
    assert found == expected


def test_each_transform_is_run() -> None:
    assert set(CHANGES) == set(TRANSFORMS)


def test_a_row_that_a_transform_leaves_out_is_gone_and_tombstones_can_be(spark: Any, descriptors: str) -> None:
    from pybroker.connectors.kinds.record_forms import transformed

    rows = flat_rows(config_of(descriptors, "json"), records(spark, (b"k", PLAIN), (b"k", None), (b"k", b"{}")))
    config = {"transforms": "t", "transforms.t.type": "sql", "transforms.t.where": "NOT _tombstone"}
    assert [row.id for row in transformed(rows, transforms_of(config)).orderBy("_offset").collect()] == [7, None]


def test_a_text_that_is_no_number_ends_a_cast_and_try_cast_gives_null(spark: Any, descriptors: str) -> None:
    from pyspark.errors import PySparkException

    from pybroker.connectors.kinds.record_forms import transformed

    rows = flat_rows(config_of(descriptors, "json"), records(spark, (b"k", PLAIN)))

    def behind(**settings: str) -> list[Any]:
        config = {"transforms": "t", **{f"transforms.t.{key}": text for key, text in settings.items()}}
        return list(transformed(rows, transforms_of(config)).collect())

    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        behind(type="Cast$Value", spec="name:int32")
    (row,) = behind(type="sql", select="try_cast(name AS int) AS name")
    assert row.name is None


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def work_of(spark: Any, broker: Broker, config: dict[str, str], name: str, kind_name: str) -> Any:
    """A connector to be run, without a supervisor."""
    from pybroker.connectors.kinds.connector_runs import Work

    kind = kind_named(kind_name)
    assert kind is not None
    place: Any = None
    cluster = {"kafka.bootstrap.servers": broker.bootstrap}
    return Work(name, kind, config, spark, cluster, "", f"of-{name}", lambda _: "", place, threading.Event())


def handler(spark: Any, broker: Broker, config: dict[str, str], name: str) -> tuple[Any, list[int]]:
    """What takes the micro-batches of a sink, and the offsets of the rows that it has written."""
    from pybroker.connectors.kinds.sink_queries import _Handler

    written: list[int] = []
    work = work_of(spark, broker, config, name, "FileSink")
    return _Handler(work, lambda rows, _: written.extend(row["_offset"] for row in rows.collect()), False), written


POISON = {
    "json": b'{"id":"x"}',
    "envelope": PLAIN,
    "avro": b"\xff",
    "protobuf": b"\x12\x7f",
    "text": b"\xff",
}


@pytest.mark.parametrize("form", POISON)
def test_a_record_that_cannot_be_read_is_a_dead_letter_or_ends_the_sink(
    spark: Any, broker: Broker, descriptors: str, form: str
) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    good = {"json": PLAIN, "envelope": ENVELOPE, "avro": avro_bytes(ROW), "protobuf": b"\x08\x07", "text": b"a"}[form]
    batch = records(spark, (b"k", good), (b"k", POISON[form]), (b"k", good), (b"k", None))
    topic = f"dead-{form}"
    broker.create_topic(topic)
    config = config_of(descriptors, form)
    strict, written = handler(spark, broker, config, form)
    with pytest.raises(RecordRefused, match=r"the record of a-1-2 at offset (6|8): value: "):
        strict.take(batch, 0)
    assert written == []
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic}
    one, written = handler(spark, broker, config | tolerant, form)
    one.take(batch, 0)
    one.take(batch, 0)  # as when the supervisor was killed behind the dead letters
    assert written == [5, 7, 5, 7]
    letters = sorted(topic_values(broker, topic), key=lambda each: dict(each.headers())["__connect.errors.offset"])
    assert [(each.key(), each.value()) for each in letters] == [(b"k", POISON[form]), (b"k", None)]
    headers = dict(letters[0].headers())
    assert headers["h"] == b"1"
    assert headers["__connect.errors.topic"] == b"a-1"
    assert headers["__connect.errors.partition"] == b"2"
    assert headers["__connect.errors.offset"] == b"6"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.exception.message"].startswith(b"value: ")


def test_a_key_that_cannot_be_read_says_so(spark: Any, broker: Broker, descriptors: str) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    config = config_of(descriptors, "json") | {"key.converter": "json", "key.converter.schema": "k string"}
    one, _ = handler(spark, broker, config, "keys")
    with pytest.raises(RecordRefused, match="the record of a-1-2 at offset 5: key: "):
        one.take(records(spark, (b"no json", PLAIN)), 0)
