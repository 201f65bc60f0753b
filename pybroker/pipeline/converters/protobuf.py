"""Protobuf, by Google's library: a generated class, or a file of descriptors (``protoc --include_imports -o``).

Owns which type of Spark's a field has.  A field that a message has not is null where Protobuf can tell (``optional``,
messages, a ``oneof``), and its default otherwise, as in every other language.

Fields that a message does not know are passed over, as newer versions of it have some, be they all that there is.  A
field of a number that it knows, written as another type, is an error: the bytes are another message's.

What is written is what is read: nothing is rounded, cut, or chosen among the members of a ``oneof``.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
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
from pybroker.pipeline.converters.registry import checked_header, without_header, without_indexes

# A generated class; or a file of descriptors, and the message's full name.
MessageSource: TypeAlias = type[Message] | tuple[Path | str, str]

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

_NUMBER = r"-?[0-9]+"
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


def protobuf_of(message: MessageSource, *, registry_header: bool | int = False) -> Decoder:
    """Values that are messages.

    ``registry_header`` is the id in a schema registry that the values' header has to have, or True for any.  By either,
    the header has to say that the value is this message of its file.

    Raises ValueError for a message that contains itself, which has no type of Spark's, or that the file has not, and
    OSError for a file that cannot be read.
    """
    definition = _Definition(message)
    return decoder_of(_Reader(definition, checked_header(registry_header)), spark_type(definition.descriptor()))


def to_protobuf(message: MessageSource) -> Callable[[Column], Column]:
    """An encoder: of a column of structs, their messages; null stays null.

    What does not fit ends the query with the name of the field.
    """
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
            self._files = Path(path).read_bytes()
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
            try:
                found = pool.FindMessageTypeByName(self._name)
            except KeyError as error:
                raise ValueError(f"{self._name} is no message of the file's") from error
            self._made = message_factory.GetMessageClass(found)
        return self._made

    def descriptor(self) -> Descriptor:
        found: Descriptor = self.message().DESCRIPTOR
        return found


class _Reader:
    def __init__(self, definition: _Definition, registry_header: bool | int = False) -> None:
        self._definition = definition
        self._registry_header = registry_header
        self._indexes = _indexes(definition.descriptor())

    def __call__(self, value: bytes) -> dict[str, Any]:
        if self._registry_header is not False:
            value = without_indexes(without_header(value, self._registry_header), self._indexes)
        return _values(self._definition.message().FromString(value))


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


def _indexes(descriptor: Descriptor) -> tuple[int, ...]:
    """Where a message is in its file: among its messages, and those in each other."""
    outer = descriptor.containing_type
    names = [one.name for one in (outer.nested_types if outer else descriptor.file.message_types_by_name.values())]
    index = names.index(descriptor.name)
    return (*_indexes(outer), index) if outer else (index,)


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
    chosen: dict[str, str] = {}
    for name, cell in value.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name}")
        if cell is None:
            continue
        if field.containing_oneof is not None:
            first = chosen.setdefault(field.containing_oneof.full_name, name)
            if first != name:
                raise ValueError(f"of {field.containing_oneof.full_name} two are set: {first} and {name}")
        with _told(field):
            _fill_field(message, cell, field)


@contextmanager
def _told(field: FieldDescriptor) -> Iterator[None]:
    """Has the library's refusals name the field."""
    try:
        yield
    except _Refused:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise _Refused(f"{field.full_name}: {error}") from error


class _Refused(ValueError):
    """Says which field it is about."""


def _fill_field(message: Message, cell: Any, field: FieldDescriptor) -> None:
    if _is_map(field):
        key, inner = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        _fill_map(getattr(message, field.name), dict(cell), key, inner)
    elif field.is_repeated:
        for item in cell:
            _append(getattr(message, field.name), item, field)
    elif field.message_type is not None:
        _fill_one(getattr(message, field.name), cell, field)
    else:
        setattr(message, field.name, _written(cell, field))


def _append(items: Any, item: Any, field: FieldDescriptor) -> None:
    if item is None:
        raise ValueError("null among the items, which Protobuf does not have")
    if field.message_type is not None:
        _fill_one(items.add(), item, field)
    else:
        items.append(_written(item, field))


def _fill_map(items: Any, cells: dict[Any, Any], key_field: FieldDescriptor, field: FieldDescriptor) -> None:
    for key, cell in cells.items():
        if cell is None:
            raise ValueError(f"null for the key {key!r}, which Protobuf does not have")
        if field.message_type is not None:
            _fill_one(items[_written(key, key_field)], cell, field)
        else:
            items[_written(key, key_field)] = _written(cell, field)


def _fill_one(message: Any, cell: Any, field: FieldDescriptor) -> None:
    message.SetInParent()
    if field.message_type.full_name == _TIMESTAMP:
        message.FromDatetime(cell)
    else:
        _fill(message, cell)


def _written(cell: Any, field: FieldDescriptor) -> Any:
    """What the library takes for a cell: of an enum the number, which is itself the text where no name is its."""
    if field.enum_type is not None:
        named = field.enum_type.values_by_name.get(cell)
        if named is not None:
            return named.number
        if not re.fullmatch(_NUMBER, str(cell)):
            raise ValueError(f"{cell!r} is none of {field.enum_type.full_name}")
        return int(cell)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 and isinstance(cell, Decimal):
        if cell != int(cell):
            raise ValueError(f"{cell} is no integer")
        return int(cell)
    return cell


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry)
