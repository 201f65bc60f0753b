"""How names stand in the keys of the metadata store.

Owns: the quoting of names, how long they may be, and the keys of quotas, which name an entity of several parts.  What
is kept below the keys is ``store_codec``'s.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from pybroker import cluster_limits
from pybroker.cluster.client_quotas import QuotaEntity, entity_of

QUOTAS: Final = "/quotas/"


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


def refusal_of_length(name: str) -> str | None:
    """Why ``name`` cannot stand in a key; None when it can.  Of what is there already nobody asks."""
    longest = cluster_limits.STORE_NAME_BYTES_MAX
    if len(name.encode(errors="surrogatepass")) <= longest:
        return None
    return f"The name is longer than {longest} bytes"


def unquoted(text: str) -> str:
    return "" if text == "%" else unquote(text, errors="strict")
