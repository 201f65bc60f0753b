"""``pybroker consume`` reads values by a schema that lies in a file."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from pybroker.cli.records.value_schemas import value_reader
from pybroker.cli.terminal.failure import CommandFailed
from tests.cli.command import CommandLine

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDER = {
    "id": 7,
    "note": None,
    "raw": b"\xff",
    "at": datetime(2026, 11, 28, tzinfo=UTC),
    "price": Decimal("12.50"),
    "tags": ["a"],
}
SHOWN = {
    "id": 7,
    "note": None,
    "raw": base64.b64encode(b"\xff").decode(),
    "at": "2026-11-28T00:00:00+00:00",
    "price": "12.50",
    "tags": ["a"],
}
HEADER = b"\0\0\0\0\x2a"


def avro_value() -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(SCHEMA), ORDER)
    return stream.getvalue()


@pytest.fixture
def avro(tmp_path: Path) -> Path:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    return file


@pytest.fixture
def protobuf(tmp_path: Path) -> Path:
    """What ``protoc -o`` makes of a message with a number and a text."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("order_id", "TYPE_INT32"), ("note", "TYPE_STRING")), 1):
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL")
    descriptors = tmp_path / "order.desc"
    descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return descriptors


def protobuf_value(file: Path) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes()).file[0])
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return bytes(kind(order_id=7, note="é").SerializeToString())


def test_a_value_of_avro_is_a_document(avro: Path) -> None:
    read = value_reader(avro, None, None, registry_header=False)
    assert read is not None
    assert read(avro_value()) == SHOWN
    with pytest.raises(ValueError, match="2 bytes are left over"):
        read(avro_value() + b"xx")
    with pytest.raises(ValueError, match="is not of the schema"):
        read(b"\x01")


def test_a_message_of_protobuf_is_a_document(protobuf: Path) -> None:
    read = value_reader(None, protobuf, "shop.Order", registry_header=False)
    assert read is not None
    assert read(protobuf_value(protobuf)) == {"order_id": 7, "note": "é"}
    with pytest.raises(ValueError, match=r"is no shop\.Order of"):
        read(b"\xff")


def test_the_header_of_a_schema_registry_is_passed_over(avro: Path, protobuf: Path) -> None:
    of_avro = value_reader(avro, None, None, registry_header=True)
    of_protobuf = value_reader(None, protobuf, "shop.Order", registry_header=True)
    assert of_avro is not None
    assert of_protobuf is not None
    assert of_avro(HEADER + avro_value()) == SHOWN
    # The first message of its file, and the second message inside of it: their numbers as zigzag varints.
    for indexes in (b"\0", b"\x04\x00\x02"):
        assert of_protobuf(HEADER + indexes + protobuf_value(protobuf)) == {"order_id": 7, "note": "é"}
    for read in (of_avro, of_protobuf):
        with pytest.raises(ValueError, match="does not begin as a schema registry's"):
            read(b"\x01\0\0\0\x2a")


@pytest.mark.parametrize("indexes", [b"\x80" * 1_000_000, b"\xfe\xff\xff\xff\x0f\x02\x02", b"\x04\x02"])
def test_indexes_that_do_not_end_are_told(protobuf: Path, indexes: bytes) -> None:
    read = value_reader(None, protobuf, "shop.Order", registry_header=True)
    assert read is not None
    with pytest.raises(ValueError, match="does not begin as a schema registry's"):
        read(HEADER + indexes)


def test_numbers_of_avro_that_json_lacks_are_text(tmp_path: Path) -> None:
    file = tmp_path / "numbers.avsc"
    file.write_text('{"type": "array", "items": "double"}')
    stream = io.BytesIO()
    schemaless_writer(stream, json.loads(file.read_text()), [1.5, math.nan, math.inf, -math.inf])
    read = value_reader(file, None, None, registry_header=False)
    assert read is not None
    assert read(stream.getvalue()) == [1.5, "NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("kind", ["through a union", "without an end"])
def test_a_value_of_avro_that_is_nested_too_deeply_is_told(tmp_path: Path, kind: str) -> None:
    inner: Any = ["null", "Node"] if kind == "through a union" else "Node"
    file = tmp_path / "node.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": inner}]}))
    read = value_reader(file, None, None, registry_header=False)
    assert read is not None
    if kind == "through a union":
        assert read(b"\x02\x00") == {"next": {"next": None}}
    with pytest.raises(ValueError, match="nested too deeply"):
        read(b"\x02" * 1_000_000)


@pytest.fixture
def envelope(tmp_path: Path) -> Path:
    """A message with an ``Any`` and a ``Value`` beside another message of its file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="envelope.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/any.proto", "google/protobuf/struct.proto"],
    )
    file.message_type.add(name="Item").field.add(name="sku", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    message = file.message_type.add(name="Envelope")
    for number, (name, kind) in enumerate((("item", "Any"), ("note", "Value")), 1):
        type_name = f".google.protobuf.{kind}"
        message.field.add(name=name, number=number, type="TYPE_MESSAGE", label="LABEL_OPTIONAL", type_name=type_name)
    needed = [
        descriptor_pb2.FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb) for each in (any_pb2, struct_pb2)
    ]
    descriptors = tmp_path / "envelope.desc"
    descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=[*needed, file]).SerializeToString())
    return descriptors


def field(number: int, data: bytes) -> bytes:
    """A field of a message whose value is text or a message itself."""
    return bytes([number << 3 | 2, len(data)]) + data


def test_a_message_in_an_any_is_found_in_the_file(envelope: Path) -> None:
    read = value_reader(None, envelope, "shop.Envelope", registry_header=False)
    assert read is not None
    item = field(1, b"type.googleapis.com/shop.Item") + field(2, field(1, b"x"))
    assert read(field(1, item)) == {"item": {"@type": "type.googleapis.com/shop.Item", "sku": "x"}}


@pytest.mark.parametrize(
    "value", [field(1, field(1, b"type.googleapis.com/shop.Other")), field(2, b"\x11" + struct.pack("<d", math.nan))]
)
def test_a_message_without_a_form_in_json_is_told(envelope: Path, value: bytes) -> None:
    read = value_reader(None, envelope, "shop.Envelope", registry_header=False)
    assert read is not None
    with pytest.raises(ValueError, match=r"the shop\.Envelope has no form in JSON"):
        read(value)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_file_that_is_no_schema_is_told(tmp_path: Path, kind: str) -> None:
    def read(file: Path) -> None:
        is_avro = kind == "avro"
        value_reader(file if is_avro else None, None if is_avro else file, "shop.Order", registry_header=False)

    with pytest.raises(CommandFailed, match="no such file"):
        read(tmp_path / "missing")
    (tmp_path / "other").write_bytes(b"\xff\xfe{")
    with pytest.raises(CommandFailed, match="is no"):
        read(tmp_path / "other")


def test_a_message_that_the_descriptors_lack_is_told(protobuf: Path) -> None:
    with pytest.raises(CommandFailed, match="has no message Order, by its full name"):
        value_reader(None, protobuf, "Order", registry_header=False)


def test_a_library_that_is_missing_is_named(avro: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(CommandFailed, match=r"needs fastavro: pip install .*values"):
        value_reader(avro, None, None, registry_header=False)


def test_consume_prints_documents_and_names_what_is_none(cli: CommandLine, name: str, avro: Path) -> None:
    cli.ok("topics", "create", name, "-p", "1")
    records = [{"key": "k", "value_base64": base64.b64encode(avro_value()).decode()}, {"key": "gone", "value": None}]
    cli.ok("produce", name, "--json", stdin="\n".join(map(json.dumps, records)).encode())
    options = ("--avro", str(avro), "-e")
    first, second = map(json.loads, cli.lines("consume", name, *options, "--json"))
    assert (first["key"], first["value"]) == ("k", SHOWN)
    assert second["value"] is None
    assert json.loads(cli.lines("consume", name, *options, "-f", "%s\\n")[0]) == SHOWN
    cli.ok("produce", name, stdin=b"\x01\n")
    failed = cli.run("consume", name, *options, "--json")
    assert failed.returncode == 1
    assert len(failed.stdout.splitlines()) == 2
    assert failed.stderr.decode().startswith(f"pybroker: {name} 0 offset 2: the value is not of the schema {avro}")


def test_a_registrys_header_without_a_schema_is_wrong_use(cli: CommandLine, name: str) -> None:
    finished = cli.run("consume", name, "--registry-header")
    assert finished.returncode == 2
    assert "--registry-header needs --avro or --protobuf" in finished.stderr.decode()


@pytest.mark.parametrize(
    "options", [("--avro", "a", "--protobuf", "b", "--message", "M"), ("--protobuf", "b"), ("--message", "M")]
)
def test_schemas_that_exclude_each_other_are_wrong_use(cli: CommandLine, name: str, options: tuple[str, ...]) -> None:
    finished = cli.run("consume", name, *options)
    assert finished.returncode == 2
    assert "give --avro, or --protobuf with --message" in finished.stderr.decode()
