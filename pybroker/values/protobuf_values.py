"""Protobuf, by Google's library: messages, by a generated class or a file of descriptors, as values of Arrow.

Owns which type of Arrow's a field has.  A field that a message has not is null where Protobuf can tell (``optional``,
messages, a ``oneof``), and its default otherwise, as in every other language.

Fields that a message does not know are passed over, as newer versions of it have some, be they all that there is.  A
field of a number that it knows, written as another type, is an error: the bytes are another message's.
"""

import base64
import importlib
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pybroker.values.registry_header import Header, without_header, without_indexes
from pybroker.values.schema_registry import RegisteredSchema

# What Protobuf brings itself, and no registry has.
_WELL_KNOWN = "google/protobuf/"

# A generated class; or a file of descriptors or what is in it, and the message's full name.
MessageSource: TypeAlias = type[Message] | tuple[Path | str | bytes, str]

# What is not among these is written as a varint.
_VARINT, _FIXED_64, _LENGTH, _GROUP, _FIXED_32 = 0, 1, 2, 3, 5
_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED_64,
    FieldDescriptor.TYPE_FIXED64: _FIXED_64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED_64,
    FieldDescriptor.TYPE_FLOAT: _FIXED_32,
    FieldDescriptor.TYPE_FIXED32: _FIXED_32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED_32,
    FieldDescriptor.TYPE_STRING: _LENGTH,
    FieldDescriptor.TYPE_BYTES: _LENGTH,
    FieldDescriptor.TYPE_MESSAGE: _LENGTH,
    FieldDescriptor.TYPE_GROUP: _GROUP,
}

TIMESTAMP = "google.protobuf.Timestamp"

_KINDS: dict[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


def arrow_type(descriptor: Descriptor, inside: tuple[str, ...] = ()) -> pa.DataType:
    """The struct of Arrow's for a message; raises ValueError where it contains itself."""
    if descriptor.full_name in inside:
        raise ValueError(f"{descriptor.full_name} contains itself, which no type of a column does")
    inside = (*inside, descriptor.full_name)
    return pa.struct([pa.field(field.name, _field_type(field, inside)) for field in descriptor.fields])


class Definition:
    """A message's definition, as it goes to tasks: by its files, not by its class."""

    def __init__(self, source: MessageSource) -> None:
        if isinstance(source, tuple):
            files, self._name = source
            self._files = files if isinstance(files, bytes) else Path(files).read_bytes()
        else:
            self._name = source.DESCRIPTOR.full_name
            found = descriptor_pb2.FileDescriptorSet()
            _add_file(source.DESCRIPTOR.file, found, set())
            self._files = found.SerializeToString()
        self._made: type[Message] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def message(self) -> type[Message]:
        if self._made is None:
            pool = descriptor_pool.DescriptorPool()
            for file in descriptor_pb2.FileDescriptorSet.FromString(self._files).file:
                pool.Add(file)
            try:
                found = pool.FindMessageTypeByName(self._name)
            except KeyError as error:
                raise ValueError(f"{self._name} is no message of the file's") from error
            self._made = message_factory.GetMessageClass(found)
        return self._made

    def descriptor(self) -> Descriptor:
        found: Descriptor = self.message().DESCRIPTOR
        return found


def registered_files(found: RegisteredSchema) -> bytes:
    """The descriptors of a registry's schema, and of those that it imports; raises ValueError."""
    if found.kind != "PROTOBUF":
        raise ValueError(f"schema {found.id} of the registry is {found.kind}, not PROTOBUF")
    files = descriptor_pb2.FileDescriptorSet()
    for text in (*found.imported, found.text):
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (ValueError, DecodeError):
            raise ValueError(f"schema {found.id} of the registry comes as a text, and not serialized") from None
        for name in file.dependency:
            if name.startswith(_WELL_KNOWN):
                known = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
                _add_file(known.DESCRIPTOR, files, {each.name for each in files.file})
        files.file.append(file)
    found_files: bytes = files.SerializeToString()
    return found_files


def last_file(files: bytes) -> bytes:
    """The last one of descriptors, as a registry takes it."""
    file: bytes = descriptor_pb2.FileDescriptorSet.FromString(files).file[-1].SerializeToString()
    return file


def first_message(files: bytes) -> str:
    """The full name of the first message of the last file; raises ValueError where that has none."""
    file = descriptor_pb2.FileDescriptorSet.FromString(files).file[-1]
    if not file.message_type:
        raise ValueError(f"{file.name} has no message")
    return f"{file.package}.{file.message_type[0].name}" if file.package else file.message_type[0].name


class Reader:
    def __init__(self, definition: Definition, header: Header | None = None) -> None:
        self._definition = definition
        self._header = header
        self._indexes = indexes_of(definition.descriptor())

    def __call__(self, value: bytes) -> dict[str, Any]:
        if self._header is not None:
            value = without_indexes(without_header(value, self._header), self._indexes)
        return _values(self._definition.message().FromString(value))


def _add_file(file: FileDescriptor, files: Any, known: set[str]) -> None:
    """A file behind those that it imports."""
    if file.name in known:
        return
    known.add(file.name)
    for imported in file.dependencies:
        _add_file(imported, files, known)
    file.CopyToProto(files.file.add())


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_one_type(key, inside), _one_type(value, inside))
    kind = _one_type(field, inside)
    return pa.list_(kind) if field.is_repeated else kind


def _one_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        return (
            pa.timestamp("us", "UTC")
            if field.message_type.full_name == TIMESTAMP
            else arrow_type(field.message_type, inside)
        )
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary()
    return _KINDS.get(field.cpp_type, pa.string())


def indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Where a message is in its file: among its messages, and those in each other."""
    outer = descriptor.containing_type
    names = [one.name for one in (outer.nested_types if outer else descriptor.file.message_types_by_name.values())]
    index = names.index(descriptor.name)
    return (*indexes_of(outer), index) if outer else (index,)


def _values(message: Message) -> dict[str, Any]:
    for unknown in UnknownFieldSet(message):
        field = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        # A value that an enum of proto2 has not comes to lie here as well.
        if field is not None and unknown.wire_type not in _wire_types(field):
            raise ValueError(f"{field.full_name} is written as another type: the value is another message")
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _wire_types(field: FieldDescriptor) -> tuple[int, ...]:
    one = _WIRE_TYPES.get(field.type, _VARINT)
    return (one, _LENGTH) if field.is_repeated else (one,)


def _value(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(key, _plain(found[key], inner)) for key in found]
    return [_plain(item, field) for item in found] if field.is_repeated else _plain(found, field)


def _plain(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return value.ToMicroseconds()
        return _values(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def is_map(field: FieldDescriptor) -> bool:
    """Whether a repeated field is a map, which Protobuf has as entries."""
    return bool(field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry)
