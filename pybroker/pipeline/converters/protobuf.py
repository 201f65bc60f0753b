"""Protobuf, by Google's library: a generated class, or a file of descriptors (``protoc --include_imports -o``).

Owns which type of Spark's a field has.  A field that a message has not is null where Protobuf can tell (``optional``,
messages, a ``oneof``), and its default otherwise, as in every other language.

Bytes that are no message are told; bytes of another message often are one, with fields that this one does not know.
Those are an error where they are all that there is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql import Column
from pyspark.sql import types as T

from pybroker.pipeline.converters.arrow_decoding import decoder_of, encoder_of
from pybroker.pipeline.converters.decoding import Decoder

# A generated class; or a file of descriptors, and the message's full name.
MessageSource: TypeAlias = type[Message] | tuple[Path, str]

_TIMESTAMP = "google.protobuf.Timestamp"

_KINDS: dict[int, T.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: T.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: T.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: T.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: T.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: T.DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: T.FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: T.BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: T.StringType(),
}


def protobuf_of(message: MessageSource) -> Decoder:
    """Values that are messages; raises ValueError for a message that contains itself, which has no type of Spark's."""
    definition = _Definition(message)
    return decoder_of(_Reader(definition), spark_type(definition.descriptor()))


def to_protobuf(message: MessageSource) -> Callable[[Column], Column]:
    """An encoder: of a column of structs, their messages; null stays null."""
    return encoder_of(_Writer(_Definition(message)))


def spark_type(descriptor: Descriptor, inside: tuple[str, ...] = ()) -> T.StructType:
    """The type of Spark's for a message; raises ValueError where it contains itself."""
    if descriptor.full_name in inside:
        raise ValueError(f"{descriptor.full_name} contains itself, which no type of Spark's does")
    inside = (*inside, descriptor.full_name)
    return T.StructType([T.StructField(field.name, _field_type(field, inside)) for field in descriptor.fields])


class _Definition:
    """A message's definition, as it goes to tasks: by its files, not by its class."""

    def __init__(self, source: MessageSource) -> None:
        if isinstance(source, tuple):
            path, self._name = source
            self._files = path.read_bytes()
        else:
            self._name = source.DESCRIPTOR.full_name
            files = descriptor_pb2.FileDescriptorSet()
            _add_file(source.DESCRIPTOR.file, files, set())
            self._files = files.SerializeToString()
        self._made: type[Message] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def message(self) -> type[Message]:
        if self._made is None:
            pool = descriptor_pool.DescriptorPool()
            for file in descriptor_pb2.FileDescriptorSet.FromString(self._files).file:
                pool.Add(file)
            self._made = message_factory.GetMessageClass(pool.FindMessageTypeByName(self._name))
        return self._made

    def descriptor(self) -> Descriptor:
        found: Descriptor = self.message().DESCRIPTOR
        return found


class _Reader:
    def __init__(self, definition: _Definition) -> None:
        self._definition = definition

    def __call__(self, value: bytes) -> dict[str, Any]:
        message = self._definition.message().FromString(value)
        if value and not message.ListFields() and len(UnknownFieldSet(message)):
            raise ValueError(f"no field is one of {message.DESCRIPTOR.full_name}")
        return _values(message)


class _Writer:
    def __init__(self, definition: _Definition) -> None:
        self._definition = definition

    def __call__(self, value: dict[str, Any]) -> bytes:
        message = self._definition.message()()
        _fill(message, value)
        written: bytes = message.SerializeToString(deterministic=True)
        return written


def _add_file(file: FileDescriptor, files: Any, known: set[str]) -> None:
    """A file behind those that it imports."""
    if file.name in known:
        return
    known.add(file.name)
    for imported in file.dependencies:
        _add_file(imported, files, known)
    file.CopyToProto(files.file.add())


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> T.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return T.MapType(_one_type(key, inside), _one_type(value, inside))
    kind = _one_type(field, inside)
    return T.ArrayType(kind) if field.is_repeated else kind


def _one_type(field: FieldDescriptor, inside: tuple[str, ...]) -> T.DataType:
    if field.message_type is not None:
        return (
            T.TimestampType() if field.message_type.full_name == _TIMESTAMP else spark_type(field.message_type, inside)
        )
    if field.type == FieldDescriptor.TYPE_BYTES:
        return T.BinaryType()
    return _KINDS.get(field.cpp_type, T.StringType())


def _values(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(key, _plain(found[key], inner)) for key in found]
    return [_plain(item, field) for item in found] if field.is_repeated else _plain(found, field)


def _plain(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToMicroseconds()
        return _values(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def _fill(message: Message, value: dict[str, Any]) -> None:
    for name, cell in value.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name}")
        if cell is None:
            continue
        if _is_map(field):
            _fill_map(getattr(message, name), dict(cell), field.message_type.fields_by_name["value"])
        elif field.is_repeated:
            for item in cell:
                _append(getattr(message, name), item, field)
        elif field.message_type is not None:
            _fill_one(getattr(message, name), cell, field)
        else:
            setattr(message, name, _enum_number(cell, field))


def _append(items: Any, item: Any, field: FieldDescriptor) -> None:
    if field.message_type is not None:
        _fill_one(items.add(), item, field)
    else:
        items.append(_enum_number(item, field))


def _fill_map(items: Any, cells: dict[Any, Any], field: FieldDescriptor) -> None:
    for key, cell in cells.items():
        if field.message_type is not None:
            _fill_one(items[key], cell, field)
        else:
            items[key] = _enum_number(cell, field)


def _fill_one(message: Any, cell: Any, field: FieldDescriptor) -> None:
    message.SetInParent()
    if field.message_type.full_name == _TIMESTAMP:
        message.FromDatetime(cell)
    else:
        _fill(message, cell)


def _enum_number(cell: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is None:
        return int(cell) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else cell
    return field.enum_type.values_by_name[cell].number


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry)
