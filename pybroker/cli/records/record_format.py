"""Records as bytes and back: kcat's format strings, and the JSON envelope of ``produce`` and ``consume``.  Pure.

Tokens of a format string: ``%s`` value, ``%S`` its length (-1: null), ``%k`` key, ``%K`` its length, ``%t`` topic,
``%p`` partition, ``%o`` offset. ``%T`` is the timestamp in epoch ms, ``%h`` headers as ``name=value,…``, ``%R`` the
value's length as four big-endian bytes, ``%%`` a percent sign. ``\\n \\r \\t \\\\ \\0 \\xNN`` as in C.

The JSON envelope has ``topic partition offset timestamp key value headers``.  Bytes that are not UTF-8 go into
``key_base64``, ``value_base64`` instead, so that ``consume --json | produce --json`` gives the same bytes back.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Header = tuple[str, bytes | None]


class Record(Protocol):
    """What is read of a consumed record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


@dataclass(slots=True)
class NewRecord:
    """A record to produce; ``None`` for key or value is Kafka's null, for the rest "not given"."""

    value: bytes | None
    key: bytes | None = None
    headers: list[Header] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


Piece = Callable[[Record], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_TOKEN = re.compile(r"%(?P<token>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)", re.DOTALL)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def format_headers(headers: Sequence[Header]) -> bytes:
    """``name=value`` pairs between commas; a null value is ``NULL``."""
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


TOKENS: dict[str, Piece] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: format_headers(record.headers),
    "R": lambda record: struct.pack(">i", _length(record.value)),
}


def unescape(text: str) -> bytes:
    """A delimiter as the user typed it (``\\t``, ``\\x00``, ``:``) as bytes; raises ``ValueError``."""
    parts: list[bytes] = []
    position = 0
    for match in _TOKEN.finditer(text):
        if match["token"] is not None:
            continue
        parts.append(text[position : match.start()].encode())
        parts.append(_escaped(match))
        position = match.end()
    parts.append(text[position:].encode())
    return b"".join(parts)


def _escaped(match: re.Match[str]) -> bytes:
    if match["hex"] is not None:
        return bytes([int(match["hex"], 16)])
    if match["escape"] not in _ESCAPES:
        raise ValueError(f"unknown escape \\{match['escape']}")
    return _ESCAPES[match["escape"]]


def compile_format(text: str) -> Callable[[Record], bytes]:
    """A function that writes a record in the given format; raises ``ValueError`` for an unknown token."""
    pieces: list[bytes | Piece] = []
    position = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[position : match.start()].encode())
        position = match.end()
        token = match["token"]
        if token is None:
            pieces.append(_escaped(match))
        elif token == "%":
            pieces.append(b"%")
        elif token in TOKENS:
            pieces.append(TOKENS[token])
        else:
            raise ValueError(f"unknown token %{token}")
    pieces.append(text[position:].encode())
    return lambda record: b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)


def compact_json(document: Any) -> str:
    """JSON on one line, readable in any alphabet."""
    return json.dumps(document, ensure_ascii=False)


def put_bytes(document: dict[str, Any], name: str, data: bytes | None) -> None:
    """Add ``name`` to the document as text, or ``name_base64`` where the bytes are not UTF-8."""
    try:
        document[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        document[f"{name}_base64"] = base64.b64encode(data).decode()


def to_json(record: Record, read_value: Callable[[bytes], Any] | None = None) -> bytes:
    """One record as one line of JSON; ``read_value`` makes a document of its value."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    put_bytes(document, "key", record.key)
    if read_value is None or record.value is None:
        put_bytes(document, "value", record.value)
    else:
        document["value"] = read_value(record.value)
    headers: list[dict[str, Any]] = []
    for name, data in record.headers:
        header: dict[str, Any] = {"key": name}
        put_bytes(header, "value", data)
        headers.append(header)
    document["headers"] = headers
    return compact_json(document).encode() + b"\n"


def _take_bytes(document: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in document:
        try:
            return base64.b64decode(document[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name}_base64 is no base64") from None
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # A number or an object is what somebody who writes events by hand means as a JSON value.
    return compact_json(value).encode()


def _take_integer(document: dict[str, Any], name: str, bits: int) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a number that is not negative, got {value!r}")
    if value >> (bits - 1):
        # The client library would write it without end, or not find its partition.
        raise ValueError(f"{name} must be less than 2^{bits - 1}")
    return value


def from_json(line: bytes) -> NewRecord:
    """A record from the JSON envelope; ``topic`` and ``offset`` are not looked at.  Raises ``ValueError``."""
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("no JSON that can be read: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("a record must be a JSON object")
    headers: list[Header] = []
    given = document.get("headers") or []
    for header in given if isinstance(given, list) else [None]:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise ValueError('headers must be a list of {"key": …, "value": …}')
        headers.append((header["key"], _take_bytes(header, "value")))
    return NewRecord(
        value=_take_bytes(document, "value"),
        key=_take_bytes(document, "key"),
        headers=headers,
        partition=_take_integer(document, "partition", 32),
        timestamp_ms=_take_integer(document, "timestamp", 64),
    )
