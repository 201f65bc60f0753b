"""Messages that are written or read without Spark: what another version has, and what is refused, by which reason."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

# Without a JVM, but with what is installed for it.
pytestmark = pytest.mark.jvm(needs="spark")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of descriptors: `shop.Order`, within it `Line`, and `shop.Refund` behind it."""
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    optional, repeated = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    made = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    made.enum_type.add(name="State").value.add(name="OPEN", number=0)
    order = made.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_UINT64, label=optional)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=optional)
    line = order.nested_type.add(name="Line")
    line.field.add(name="n", number=1, type=kinds.TYPE_INT32, label=optional)
    order.oneof_decl.add(name="payer")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=optional)
    order.field.add(name="state", number=2, type=kinds.TYPE_ENUM, label=optional, type_name=".shop.State")
    order.field.add(name="states", number=3, type=kinds.TYPE_ENUM, label=repeated, type_name=".shop.State")
    order.field.add(
        name="counts", number=4, type=kinds.TYPE_MESSAGE, label=repeated, type_name=".shop.Order.CountsEntry"
    )
    order.field.add(name="lines", number=5, type=kinds.TYPE_MESSAGE, label=repeated, type_name=".shop.Order.Line")
    order.field.add(name="card", number=6, type=kinds.TYPE_STRING, label=optional, oneof_index=0)
    order.field.add(name="account", number=7, type=kinds.TYPE_STRING, label=optional, oneof_index=0)
    order.field.add(name="big", number=8, type=kinds.TYPE_UINT64, label=optional)
    made.message_type.add(name="Refund").field.add(name="id", number=1, type=kinds.TYPE_INT64, label=optional)
    path = tmp_path_factory.mktemp("descriptors") / "order.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())
    return path


NOTHING = {
    "id": 0,
    "state": "OPEN",
    "states": [],
    "counts": [],
    "lines": [],
    "card": None,
    "account": None,
    "big": 0,
}


def reader_of(file: Path, name: str = "shop.Order", registry_header: bool | int = False) -> Any:
    from pybroker.values.protobuf_values import Definition, Reader
    from pybroker.values.registry_header import header_wanted

    return Reader(Definition((file, name)), header_wanted(registry_header))


def written(file: Path, value: dict[str, Any]) -> bytes:
    from pybroker.values.protobuf_values import Definition
    from pybroker.values.protobuf_writing import Writer

    return Writer(Definition((file, "shop.Order")))(value)


def test_a_number_that_an_enum_has_no_name_for_is_written_as_it_was_read(file: Path) -> None:
    whole = b"\x10\x07\x1a\x02\x07\x00"
    found = reader_of(file)(whole)
    assert found == {**NOTHING, "state": "7", "states": ["7", "OPEN"]}
    assert written(file, found) == whole


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"state": "PAID"}, r"shop\.Order\.state: 'PAID' is none of shop\.State"),
        ({"state": str(1 << 40)}, r"shop\.Order\.state: "),
        ({"states": ["PAID"]}, r"shop\.Order\.states: 'PAID' is none of shop\.State"),
        ({"id": 1.5}, r"shop\.Order\.id: "),
        ({"lines": [{"n": 1 << 40}]}, r"^shop\.Order\.Line\.n: "),
        ({"card": "x", "account": "y"}, r"of shop\.Order\.payer two are set: card and account"),
        ({"lines": [None]}, r"shop\.Order\.lines: null among the items"),
        ({"states": ["OPEN", None]}, r"shop\.Order\.states: null among the items"),
        ({"counts": {1: None}}, r"shop\.Order\.counts: null for the key 1"),
        ({"counts": {Decimal(1): 1 << 40}}, r"shop\.Order\.counts: "),
        ({"big": Decimal("1.5")}, r"shop\.Order\.big: 1\.5 is no integer"),
        ({"big": 1.5}, r"shop\.Order\.big: "),
        ({"none": 1}, r"shop\.Order has no field none"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_its_field(file: Path, value: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        written(file, value)


def test_one_of_a_oneof_is_written(file: Path) -> None:
    whole = written(file, {"card": None, "account": "y"})
    assert reader_of(file)(whole) == {**NOTHING, "account": "y"}


def test_keys_of_a_map_that_are_decimals_are_written(file: Path) -> None:
    whole = written(file, {"counts": {Decimal(1 << 63): 2}})
    assert reader_of(file)(whole)["counts"] == [(1 << 63, 2)]


def test_a_message_of_a_newer_version_is_read_though_no_other_field_is_there(file: Path) -> None:
    assert reader_of(file)(b"\x9a\x06\x01x") == NOTHING


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (b"\x0a\x01x", "id"),
        (b"\x08\x01\x15\0\0\0\0", "state"),
        (b"\x2a\x03\x0a\x01x", "Line.n"),
        (b"\x28\x01", "lines"),
    ],
    ids=["id", "state", "Line.n", "lines"],
)
def test_a_field_that_is_written_as_another_type_is_an_error(file: Path, value: bytes, field: str) -> None:
    with pytest.raises(ValueError, match=rf"shop\.Order\.{field} is written as another type"):
        reader_of(file)(value)


@pytest.mark.parametrize(
    ("name", "indexes", "value"),
    [
        ("shop.Order", b"\0", {**NOTHING, "id": 9}),
        ("shop.Order", b"\x02\0", {**NOTHING, "id": 9}),
        ("shop.Refund", b"\x02\x02", {"id": 9}),
        ("shop.Order.Line", b"\x04\0\x02", {"n": 9}),
    ],
    ids=["first, in short", "first", "second", "within the first"],
)
def test_a_registrys_header_says_which_message_it_is(file: Path, name: str, indexes: bytes, value: Any) -> None:
    framed = b"\0\0\0\0\7" + indexes + b"\x08\x09"
    assert reader_of(file, name, 7)(framed) == value
    assert reader_of(file, name, True)(framed) == value
    with pytest.raises(ValueError, match="schema 7 of the registry, expected 1"):
        reader_of(file, name, 1)(framed)


@pytest.mark.parametrize(
    ("framed", "told"),
    [
        (b"\x08\x09", "does not begin as a schema registry's serializers have it"),
        (b"\0\0\0\0\7", "ends within its message indexes"),
        (b"\0\0\0\0\7\x04\0", "ends within its message indexes"),
        (b"\0\0\0\0\7\x01", "-1 message indexes"),
        (b"\0\0\0\0\7\x02\x02\x08\x09", "message 1 of its schema, expected 0"),
    ],
    ids=["no header", "no indexes", "too few indexes", "a negative count", "another message"],
)
def test_a_header_that_is_not_as_expected_is_an_error(file: Path, framed: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        reader_of(file, registry_header=7)(framed)


def test_a_file_of_descriptors_is_also_a_path_as_text(file: Path) -> None:
    from pybroker.pipeline.converters.protobuf import protobuf_of

    protobuf_of((str(file), "shop.Order"))
    with pytest.raises(ValueError, match=r"shop\.None is no message of the file's"):
        protobuf_of((str(file), "shop.None"))
