"""Which names topics may have.

Counterpart in Kafka: ``org.apache.kafka.common.internals.Topic``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product
from typing import Final

from pybroker_protocol.errors import readable

NAME_LENGTH_MAX: Final = 249  # a directory is called <topic>-<partition>, and file systems allow 255 bytes

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_reason(name: str) -> str | None:
    """Why ``name`` cannot be a topic's, in the words that Kafka sends; None when it can."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return readable(f"Topic name is invalid: {reason}")


def colliding_name(name: str, existing: Collection[str]) -> str | None:
    """An existing topic other than ``name`` that differs from it only in '.' against '_', or None.

    Such pairs would share one metric name. The few spellings of a name are looked up one by one. Only a name with so
    many of these characters that the spellings outnumber the topics is compared with every topic.
    """
    parts = re.split("[._]", name)
    collision_chars = len(parts) - 1
    if collision_chars == 0:
        return None
    if collision_chars < 16 and 2**collision_chars <= len(existing):
        for chars in product("._", repeat=collision_chars):
            spelling = parts[0] + "".join(char + part for char, part in zip(chars, parts[1:], strict=True))
            if spelling != name and spelling in existing:
                return spelling
        return None
    unified = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == unified), None)
