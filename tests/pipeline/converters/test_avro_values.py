"""Values of Avro that are written or read without Spark: what is refused, and by which reason."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

# Without a JVM, but with what is installed for it.
pytestmark = pytest.mark.jvm(needs="spark")

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": ["null", "double"]},
        {"name": "place", "type": "string", "default": "?"},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    from pybroker.values.avro_values import parsed
    from pybroker.values.avro_writing import Writer

    return Writer(json.dumps(parsed(schema)))(value)


def one_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"sensor": "s", "celcius": 1.5}, "celcius is no field of Reading, whose are sensor, celsius, place"),
        ({"sensor": "s"}, "celsius of Reading is missing, and has no default"),
        ({"sensor": None, "celsius": None}, "sensor is no string: null"),
    ],
    ids=["misspelt", "missing", "null"],
)
def test_a_record_is_written_only_with_the_fields_of_its_schema(value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        written(READING, value)


def test_a_field_that_has_a_default_may_be_missing() -> None:
    assert written(READING, {"sensor": "s", "celsius": None}) == b"\x02s\x00\x02?"


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("long", 5.7, r"a is no long: 5\.7"),
        (["null", "long"], 5.7, r"a is no long: 5\.7"),
        ("long", 1 << 63, "a is no long: "),
        ("int", 3_000_000_000, "a is no int: 3000000000"),
        ("int", True, "a is no int: True"),
        ("float", 1e300, r"a is no float: 1e\+300"),
        ("boolean", "no", "a is no boolean: 'no'"),
        ("double", "1", "a is no double: '1'"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "a is no E: 'B'"),
        ({"type": "fixed", "name": "F", "size": 2}, b"x", "a is no F, which has 2 bytes: "),
        ({"type": "array", "items": "int"}, [1, 2.5], r"a\[\] is no int: 2\.5"),
        ({"type": "map", "values": "int"}, {"k": None}, r"a\['k'\] is no int: null"),
        (one_field("int") | {"name": "Inner"}, {"a": 1.5}, r"a\.a is no int: 1\.5"),
        ({"type": "int", "logicalType": "date"}, datetime(2026, 1, 2, tzinfo=UTC), "a is no date: "),
        ("long", datetime(2026, 1, 2, tzinfo=UTC), "a is no long: "),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            Decimal(999),
            r"a is no decimal\(4,2\): ",
        ),
    ],
    ids=str,
)
def test_a_value_that_would_be_changed_is_refused_by_its_field(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        written(one_field(kind), {"a": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", -(1 << 31)),
        ("long", (1 << 63) - 1),
        ("double", 3),
        ("float", float("inf")),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 2)),
        ({"type": "int", "logicalType": "date"}, 20_000),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Decimal("-99.5")),
        (["null", "string", "int"], 7),
        (["null", "R"], {"a": None}),
    ],
    ids=str,
)
def test_a_value_that_fits_is_written(kind: Any, value: Any) -> None:
    assert written(one_field(kind), {"a": value})


def reader_of(schema: Any, wanted: Any = None, registry_header: bool | int = False) -> Any:
    from pybroker.values.avro_values import Reader, parsed
    from pybroker.values.registry_header import header_wanted

    texts = [None if one is None else json.dumps(parsed(one)) for one in (schema, wanted)]
    return Reader(texts[0] or "", texts[1], header_wanted(registry_header))


def test_a_registrys_header_has_to_have_the_id_that_is_expected() -> None:
    framed = b"\0\0\0\0\2" + b"\x02x"
    assert reader_of("string", registry_header=2)(framed) == "x"
    assert reader_of("string", registry_header=True)(framed) == "x"
    with pytest.raises(ValueError, match="schema 2 of the registry, expected 1"):
        reader_of("string", registry_header=1)(framed)
    with pytest.raises(ValueError, match="does not begin as a schema registry's serializers have it"):
        reader_of("string", registry_header=1)(framed[5:])


def test_an_id_of_a_registry_is_no_negative_number() -> None:
    from pybroker.pipeline.converters.avro import avro_of

    with pytest.raises(ValueError, match="no id of a schema registry: -1"):
        avro_of("string", registry_header=-1)


STATE = {"type": "enum", "name": "State", "symbols": ["A", "B"]}
GUARDED = {
    "type": "record",
    "name": "Guarded",
    "fields": [{"name": "a", "type": ["null", STATE]}, {"name": "b", "type": {"type": "array", "items": "State"}}],
}


@pytest.mark.parametrize("wanted", [None, GUARDED], ids=["as written", "by a reader's schema"])
@pytest.mark.parametrize(
    "value",
    [
        b"\x02\x01\0",
        b"\x02\x03\0",
        b"\x02\x04\0",
        b"\x01\x02\0",
        b"\x03\0",
        b"\x04\0",
        b"\xff\x01\x02\0",
        b"\0\x02\x01\0",
    ],
    ids=bytes.hex,
)
def test_an_index_that_is_out_of_range_is_an_error(value: bytes, wanted: Any) -> None:
    with pytest.raises(Exception, match=r"^symbol .* of an enum that has 2$|out of range"):
        reader_of(GUARDED, wanted)(value)


@pytest.mark.parametrize("wanted", [None, GUARDED], ids=["as written", "by a reader's schema"])
def test_an_index_that_is_in_range_is_read(wanted: Any) -> None:
    assert reader_of(GUARDED, wanted)(b"\x02\x02\x02\0\0") == {"a": "B", "b": ["A"]}
    assert reader_of(GUARDED, wanted)(b"\0\0") == {"a": None, "b": []}


@pytest.mark.parametrize(("schema", "value"), [(STATE, b"\x01"), (["null", "int"], b"\x01\x02")], ids=["enum", "union"])
def test_a_negative_index_is_an_error_of_a_schema_that_is_no_record(schema: Any, value: bytes) -> None:
    with pytest.raises(Exception, match=r"^symbol -1 of an enum that has 2$|out of range"):
        reader_of(schema)(value)


def test_an_error_of_avros_is_a_record() -> None:
    from pybroker.pipeline.converters.avro import spark_type
    from pybroker.values.avro_values import parsed

    schema = {"type": "error", "name": "Refusal", "fields": [{"name": "reason", "type": "string"}]}
    assert spark_type(parsed(schema)).simpleString() == "struct<reason:string>"
    assert reader_of(schema)(written(schema, {"reason": "x"})) == {"reason": "x"}


def test_a_type_that_sparks_has_none_for_is_told_by_its_name() -> None:
    from pybroker.pipeline.converters.avro import spark_type

    with pytest.raises(ValueError, match="request is no type of a column"):
        spark_type({"type": "request", "name": "Q", "fields": []})
