"""Batches whose header and checksum are sound, and whose records are not what the header says.

Owns: the bytes of each lie, by what it lies about; three records where it says nothing else.  What a broker makes of
them is the scenarios' to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.batches import GZIP, LZ4, SNAPPY, ZSTD, Batch, Record, compress, records_section, varint

INT_MAX = 2**31 - 1
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

_COUNT = 3
_RECORDS = [Record(key=b"k", value=b"v%d" % i) for i in range(_COUNT)]
_SOUND = records_section(_RECORDS)


def body(
    *,
    attributes: bytes = b"\0",
    timestamp_delta: bytes = b"\0",
    offset_delta: bytes = b"\0",
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\0",
    behind: bytes = b"",
) -> bytes:
    """A record behind its length; each part is already encoded, lengths in front."""
    return attributes + timestamp_delta + offset_delta + key + value + headers + behind


def one(length: bytes | None = None, **parts: bytes) -> bytes:
    """A record whose length is right unless it is given."""
    content = body(**parts)
    return (varint(len(content)) if length is None else length) + content


def three(make: Callable[[int], bytes]) -> bytes:
    return b"".join(make(i) for i in range(_COUNT))


def _with_deltas(*deltas: int) -> bytes:
    return b"".join(one(offset_delta=varint(delta)) for delta in deltas)


_LONG = len(body())
# Sections in the place of three records, uncompressed and to be compressed.
_SECTIONS: dict[str, bytes] = {
    "no records": b"",
    "the last record cut": _SOUND[:-1],
    "a record less": _SOUND[: len(_SOUND) // _COUNT * 2],
    "a record more": _SOUND + one(offset_delta=varint(3)),
    "a byte behind the records": _SOUND + b"\0",
    "text": b"these are no records at all, but text",
    "zeros": bytes(100),
    "high bytes": b"\xff" * 100,
    "a record of length 0": three(lambda _: b"\0"),
    "a record of negative length": three(lambda i: one(varint(-3), offset_delta=varint(i))),
    "a record that is longer than the batch": three(lambda i: one(varint(1000), offset_delta=varint(i))),
    "a record that is longer than said": three(lambda i: one(varint(_LONG - 1), offset_delta=varint(i))),
    "a record that is shorter than said": three(lambda i: one(varint(_LONG + 1), offset_delta=varint(i))),
    "bytes behind the headers": three(lambda i: one(offset_delta=varint(i), behind=b"\0\0")),
    "a record without headers' count": three(lambda i: one(offset_delta=varint(i), headers=b"")),
    "a key behind its record": three(lambda i: one(offset_delta=varint(i), key=varint(40) + b"k")),
    "a key of length -2": three(lambda i: one(offset_delta=varint(i), key=varint(-2))),
    "a value behind its record": three(lambda i: one(offset_delta=varint(i), value=varint(40) + b"v")),
    "a value of length -2": three(lambda i: one(offset_delta=varint(i), value=varint(-2))),
    "a negative count of headers": three(lambda i: one(offset_delta=varint(i), headers=varint(-1))),
    "two billion headers": three(lambda i: one(offset_delta=varint(i), headers=varint(INT_MAX))),
    "a header too many": three(lambda i: one(offset_delta=varint(i), headers=varint(2) + b"\x02h\x02v")),
    "a header too few": three(lambda i: one(offset_delta=varint(i), headers=varint(0) + b"\x02h\x02v")),
    "a header without a key": three(lambda i: one(offset_delta=varint(i), headers=varint(1) + varint(-1) + b"\x02v")),
    "a header's key behind its record": three(
        lambda i: one(offset_delta=varint(i), headers=varint(1) + varint(40) + b"h\x02v")
    ),
    "a header's value behind its record": three(
        lambda i: one(offset_delta=varint(i), headers=varint(1) + b"\x02h" + varint(40))
    ),
    "a header's value of length -2": three(
        lambda i: one(offset_delta=varint(i), headers=varint(1) + b"\x02h" + varint(-2))
    ),
    "a header's key that is no text": three(
        lambda i: one(offset_delta=varint(i), headers=varint(1) + b"\x02\xff\x02v")
    ),
    "attributes that nobody uses": three(lambda i: one(offset_delta=varint(i), attributes=b"\xff")),
    "a length of more bytes than it needs": three(
        lambda i: one(bytes([2 * _LONG | 0x80, 0x80, 0]), offset_delta=varint(i))
    ),
    "a length of six bytes": three(lambda i: one(bytes([2 * _LONG | 0x80]) + b"\x80" * 4 + b"\0")),
    "a timestamp of eleven bytes": three(lambda i: one(offset_delta=varint(i), timestamp_delta=b"\x80" * 10 + b"\0")),
    "a timestamp of ten bytes": three(lambda i: one(offset_delta=varint(i), timestamp_delta=b"\x80" * 9 + b"\0")),
    "an offset of six bytes": three(lambda i: one(offset_delta=b"\x80" * 5 + b"\0")),
    "one offset for all": _with_deltas(0, 0, 0),
    "offsets that descend": _with_deltas(2, 1, 0),
    "offsets with a gap": _with_deltas(0, 2, 4),
    "offsets behind the last one": _with_deltas(7, 8, 9),
    "offsets from one on": _with_deltas(1, 2, 3),
    "negative offsets": _with_deltas(-3, -2, -1),
    "an offset of int32's end": _with_deltas(0, 1, INT_MAX),
}


def _header_lies() -> dict[str, dict[str, Any]]:
    last = {"record_count": INT_MAX, "last_offset_delta": INT_MAX - 1}
    return {
        "two billion records": last,
        "a count too high": {"record_count": _COUNT + 1, "last_offset_delta": _COUNT},
        "a count too low": {"record_count": _COUNT - 1, "last_offset_delta": _COUNT - 2},
        "a maximum time too early": {"max_timestamp_ms": 5},
        "a maximum time too late": {"max_timestamp_ms": 1_700_000_000_999},
    }


def lying_batches(codec: int) -> dict[str, bytes]:
    """All of them in one codec, 0 for none."""
    fields: dict[str, Any] = {"records": _RECORDS, "codec": codec}
    lies = {note: Batch(**fields).encode(section=section) for note, section in _SECTIONS.items()}
    lies |= {note: Batch(**fields, **lie).encode() for note, lie in _header_lies().items()}
    if not codec:
        return lies
    payload = compress(_SOUND, codec)
    wrong = compress(_SOUND, GZIP if codec != GZIP else ZSTD)
    payloads = {
        "nothing where compressed bytes should be": b"",
        "plain bytes where compressed ones should be": _SOUND,
        "garbage where compressed bytes should be": bytes(range(3, 90)),
        "another codec's bytes": wrong,
        "compressed bytes cut short": payload[:-5],
        "compressed bytes cut in half": payload[: len(payload) // 2],
        "bytes behind the compressed ones": payload + b"behind",
        "compressed bytes twice": payload + payload,
    }
    return lies | {note: Batch(**fields).encode(payload=payload) for note, payload in payloads.items()}
