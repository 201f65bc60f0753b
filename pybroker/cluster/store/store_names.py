"""How names stand in the keys of the metadata store.

Owns: the quoting of names, how long they may be, and the keys of quotas, which name an entity of several parts.  What
is kept below the keys is ``store_codec``'s.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from pybroker.cluster.image.quota_entities import QuotaEntity, entity_of

# Names that clients choose and a key of the store has (a group's, a user's), percent-encoded: a key in ZooKeeper has
# 65,535 bytes at most.  A single name of letters, which is 32,767 bytes at most in a request, always fits.
STORE_NAMES_BYTES_MAX = 65_000

QUOTAS: Final = "/quotas/"
LINKS: Final = "/links/"
MIRRORS: Final = "/mirrors/"
_QUOTED_MAX: Final = 12  # bytes of one character: four of UTF-8, each as three


def quota_key(entity: QuotaEntity) -> str:
    """``/quotas/client-id=app,user=%``: "%" is the default, since no name is empty."""
    return QUOTAS + ",".join(f"{kind}={quoted(name or '')}" for kind, name in entity)


def entity_of_key(key: str) -> QuotaEntity:
    """Whose quotas are kept below a key that ``quota_key`` made."""
    parts = (part.split("=") for part in key[len(QUOTAS) :].split(","))
    return entity_of((kind, unquoted(name) or None) for kind, name in parts)


def quoted(name: str) -> str:
    """Percent-encoding of everything that might not please a path; "" becomes "%", which nothing else encodes to."""
    return quote(name, safe="").replace("~", "%7E") or "%"


def refusal_of_length(*names: str) -> str | None:
    """Why ``names`` cannot stand in one key; None when they can.  Of what is there already nobody asks."""
    if sum(map(len, names)) * _QUOTED_MAX <= STORE_NAMES_BYTES_MAX:
        return None
    if sum(len(quoted(name)) for name in names) <= STORE_NAMES_BYTES_MAX:
        return None
    return f"The name, percent-encoded, is longer than {STORE_NAMES_BYTES_MAX} bytes"


def unquoted(text: str) -> str:
    return "" if text == "%" else unquote(text, errors="strict")
