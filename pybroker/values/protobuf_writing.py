"""Values written as messages of Protobuf.

What is written is what is read: nothing is rounded, cut, or chosen among the members of a ``oneof``.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pybroker.values.protobuf_values import TIMESTAMP, Definition, is_map

_NUMBER = r"-?[0-9]+"


class Writer:
    """Writes messages, which are dicts; raises ValueError, which names the field, for what does not fit."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def __call__(self, value: dict[str, Any]) -> bytes:
        message = self._definition.message()()
        _fill(message, value)
        written: bytes = message.SerializeToString(deterministic=True)
        return written


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
    if is_map(field):
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
    if field.message_type.full_name == TIMESTAMP:
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
