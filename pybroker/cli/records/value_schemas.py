"""Values of records read by a schema that lies in a file: Avro (``.avsc``), and Protobuf (descriptors, by ``protoc``).

Owns: what becomes of such a value as a JSON document, and the sentence for one that the schema does not fit.  The
libraries (the extra ``values``) are imported at their first use.  Owns no registry: with ``registry_header`` the bytes
that its serializers put in front are passed over, and the id in them is not looked up.

JSON has neither bytes nor dates nor decimals, and no number that is none: bytes are base64, and the others text.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final

from pybroker.cli.terminal.failure import CommandFailed, reason_of
from pybroker.extras import how_to_install

ValueReader = Callable[[bytes], Any]

_MAGIC: Final = b"\0"
_HEADER_BYTES: Final = 5
_MORE: Final = 0x80
# As Protobuf's JSON has them.
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NO_HEADER: Final = "the value does not begin as a schema registry's serializers have it"
_TOO_DEEP: Final = "the value is nested too deeply"


def value_reader(
    avro: Path | None, protobuf: Path | None, message: str | None, *, registry_header: bool
) -> ValueReader | None:
    """What makes a document of a value, None without a schema; ``CommandFailed`` for a file that is none.

    It raises ``ValueError`` for bytes that are no value of the schema.
    """
    try:
        if avro is not None:
            return _avro_reader(avro, registry_header)
        if protobuf is not None:
            assert message is not None
            return _protobuf_reader(protobuf, message, registry_header)
    except ModuleNotFoundError as error:
        raise CommandFailed(f"a schema needs {error.name}: {how_to_install('values')}") from error
    return None


def _avro_reader(path: Path, registry_header: bool) -> ValueReader:
    from fastavro import parse_schema, schemaless_reader
    from fastavro._read_py import schemaless_reader as careful_reader

    try:
        schema = parse_schema(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CommandFailed(f"--avro {path}: {reason_of(error)}") from error
    except Exception as error:
        # The library has no common base for what a schema may lack.
        raise CommandFailed(f"{path} is no Avro schema: {error}") from error
    # The compiled one ends the process where a value is nested more deeply than its stack.
    read_document = careful_reader if _is_recursive(schema, ()) else schemaless_reader

    def read(value: bytes) -> Any:
        stream = io.BytesIO(_without_header(value) if registry_header else value)
        try:
            document = _plain(read_document(stream, schema, None))
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
        except Exception as error:
            raise ValueError(f"the value is not of the schema {path} ({type(error).__name__}: {error})") from error
        # Avro's encoding has no marks: a value of another schema often reads well up to somewhere.
        if left := len(value) - _HEADER_BYTES * registry_header - stream.tell():
            raise ValueError(f"the value is not of the schema {path}: {left} bytes are left over")
        return document

    return read


def _is_recursive(schema: Any, around: tuple[str, ...]) -> bool:
    """Whether a type of a parsed schema is named inside of itself; ``around`` are the names it lies in."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        return any(_is_recursive(each, around) for each in schema)
    inside = (*around, schema["name"]) if "name" in schema else around
    parts = [field["type"] for field in schema.get("fields", ())]
    parts += [schema[part] for part in ("type", "items", "values") if isinstance(schema.get(part), (dict, list, str))]
    return any(_is_recursive(each, inside) for each in parts)


def _protobuf_reader(path: Path, message: str, registry_header: bool) -> ValueReader:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    advice = "make it by: protoc --include_imports -o FILE.desc FILE.proto"
    try:
        files.ParseFromString(path.read_bytes())
        for file in files.file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except OSError as error:
        raise CommandFailed(f"--protobuf {path}: {reason_of(error)}") from error
    except (DecodeError, TypeError) as error:
        raise CommandFailed(f"{path} is no file of Protobuf descriptors; {advice}") from error
    except KeyError as error:
        raise CommandFailed(f"{path} has no message {message}, by its full name") from error

    def read(value: bytes) -> Any:
        found = kind()
        try:
            found.ParseFromString(_without_indexes(_without_header(value)) if registry_header else value)
        except DecodeError as error:
            raise ValueError(f"the value is no {message} of {path}") from error
        try:
            return MessageToDict(found, preserving_proto_field_name=True, descriptor_pool=pool)
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
        except Exception as error:
            # An Any of a message that the file lacks, a time out of range, a number that is none.
            raise ValueError(f"the {message} has no form in JSON: {error}") from error

    return read


def _without_header(value: bytes) -> bytes:
    if value[:1] != _MAGIC or len(value) < _HEADER_BYTES:
        raise ValueError(_NO_HEADER)
    return value[_HEADER_BYTES:]


def _without_indexes(value: bytes) -> bytes:
    """The message behind the numbers that say which one of its file it is; the first is one byte of zero."""
    stream = io.BytesIO(value)
    for _ in range(_number(stream) // 2):
        _number(stream)
    return stream.read()


def _number(stream: io.BytesIO) -> int:
    """A varint of 32 bits."""
    number = 0
    for shift in range(0, 35, 7):
        byte = stream.read(1)
        if not byte:
            break
        number |= (byte[0] & ~_MORE) << shift
        if byte[0] < _MORE:
            return number
    raise ValueError(_NO_HEADER)


def _plain(value: Any) -> Any:
    """A decoded value as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
