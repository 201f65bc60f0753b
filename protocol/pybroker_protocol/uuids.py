"""Kafka's uuids: 16 bytes on the wire, 22 characters of URL-safe base64 where people read them.

Owns: the text form and the reserved ids.  Owns no chance: random ids come from ``pybroker.env``.

Kafka counterpart: org.apache.kafka.common.Uuid.
"""

import base64

ZERO_UUID = bytes(16)

_RESERVED_MAX = 99  # as a number: zero, the metadata topic, lost and unassigned log dirs, and space for more


def uuid_text(value: bytes) -> str:
    """Kafka's text form of a uuid."""
    return base64.urlsafe_b64encode(value).decode()[:22]


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of Kafka's text form; ValueError if it is none."""
    try:
        value = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        value = b""
    if len(value) != 16:
        raise ValueError(f"{text!r} is no uuid")
    return value


def is_reserved(value: bytes) -> bool:
    """Whether Kafka keeps the id for a meaning of its own (``Uuid.RESERVED``)."""
    return int.from_bytes(value, "big") <= _RESERVED_MAX
