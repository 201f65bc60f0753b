"""What the znodes of a ``ZooKeeperStore`` hold, and what they are called; pure.

Owns: the paths, and the bytes of a change (one transaction) and of a snapshot (all keys).  Either may be longer than
ZooKeeper lets one znode be: it is cut into parts then.

All numbers are big-endian.  A change is a byte of flags, 16 bytes of the transaction's id, and then either its writes
or, where those are cut, the names of their parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from pybroker.cluster.store.metadata_store import Entry, RefusedWriteError

HEAD: Final = "/head"  # its version is the revision; setting it is what makes a transaction the next one
CHANGES: Final = "/changes"
PARTS: Final = "/parts"
SNAPSHOT: Final = "/snapshot"  # which snapshot counts: revision, name, how many parts
SNAPSHOTS: Final = "/snapshots"
EPHEMERALS: Final = "/ephemerals"

# ZooKeeper takes requests of 1 MB less a byte, with path and ACL.
PART_BYTES: Final = 1_000_000

_CUT: Final = 1
_TOUCHES_EPHEMERALS: Final = 2
_KEY_LENGTH: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_VERSION_AND_LENGTH: Final = struct.Struct(">II")


class Change(NamedTuple):
    """One transaction as its znode has it; ``parts`` is where ``writes`` lie if they are not here."""

    ident: bytes
    touches_ephemerals: bool
    writes: bytes
    parts: tuple[str, ...] = ()


def change_path(revision: int) -> str:
    return f"{CHANGES}/{revision:010}"


def ephemeral_path(key: str) -> str:
    return f"{EPHEMERALS}/{quote(key, safe='')}"


def ephemeral_key(name: str) -> str:
    """The key of a child of ``EPHEMERALS``."""
    return unquote(name)


def part_name(position: int, ident: bytes, number: int) -> str:
    """Of a change's or snapshot's part that was written when the store was at ``position``."""
    return f"{position:010}-{ident.hex()}-{number}"


def position_of(name: str) -> int:
    """The number that a child of any of the folders begins with; -1 for a stranger."""
    digits = name.partition("-")[0]
    return int(digits) if digits.isdecimal() else -1


def cut(data: bytes) -> list[bytes]:
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


# ---------------------------------------------------------------- changes


def encode_writes(puts: Mapping[str, bytes], deletes: Sequence[str]) -> bytes:
    chunks = [_LENGTH.pack(len(puts))]
    for key, value in puts.items():
        chunks += (_text(key), _LENGTH.pack(len(value)), value)
    chunks += (_text(key) for key in deletes)
    return b"".join(chunks)


def decode_writes(data: bytes) -> tuple[dict[str, bytes], tuple[str, ...]]:
    (count,) = _LENGTH.unpack_from(data)
    at, puts, deletes = _LENGTH.size, {}, []
    for _ in range(count):
        key, at = _read_text(data, at)
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        puts[key] = data[at : at + length]
        at += length
    while at < len(data):
        key, at = _read_text(data, at)
        deletes.append(key)
    return puts, tuple(deletes)


def encode_change(change: Change) -> bytes:
    flags = _TOUCHES_EPHEMERALS if change.touches_ephemerals else 0
    if not change.parts:
        return bytes([flags]) + change.ident + change.writes
    return bytes([flags | _CUT]) + change.ident + ",".join(change.parts).encode()


def decode_change(data: bytes) -> Change:
    flags, ident, rest = data[0], data[1:17], data[17:]
    touches_ephemerals = bool(flags & _TOUCHES_EPHEMERALS)
    if flags & _CUT:
        return Change(ident, touches_ephemerals, b"", tuple(rest.decode().split(",")))
    return Change(ident, touches_ephemerals, rest)


# ---------------------------------------------------------------- snapshots


def encode_entry(key: str, entry: Entry) -> bytes:
    """One key of a snapshot, which is these one behind another."""
    return b"".join((_text(key), _VERSION_AND_LENGTH.pack(entry.version, len(entry.value)), entry.value))


def decode_snapshot(data: bytes) -> Iterator[tuple[str, Entry]]:
    at = 0
    while at < len(data):
        key, at = _read_text(data, at)
        version, length = _VERSION_AND_LENGTH.unpack_from(data, at)
        at += _VERSION_AND_LENGTH.size
        yield key, Entry(data[at : at + length], version)
        at += length


def encode_pointer(revision: int, parts: Sequence[str]) -> bytes:
    return " ".join((str(revision), *parts)).encode()


def decode_pointer(data: bytes) -> tuple[int, list[str]]:
    """Revision and parts of the snapshot that counts; without one, 0 and none."""
    revision, *parts = data.decode().split() or ["0"]
    return int(revision), parts


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0xFFFF:
        raise RefusedWriteError(f"a key of {len(data)} bytes is too long for the metadata store")
    return _KEY_LENGTH.pack(len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _KEY_LENGTH.unpack_from(data, at)
    at += _KEY_LENGTH.size
    return data[at : at + length].decode(), at + length
