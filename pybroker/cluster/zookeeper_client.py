"""A client of ZooKeeper as this broker wants it, and what kazoo's errors mean.

Owns: how a url of ``pybroker.metadata`` is read, and when a connection is tried again.  Owns no request.
"""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from pybroker.cluster.metadata_store import StoreError

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # a line per attempt to connect; that the store is away is told once, by the store

PORT: Final = 2181
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}


def new_client(url: str, timeout_ms: int, digest: str | None) -> Any:
    """A client that tries to connect for ever, with ZooKeeper's own port where an address has none."""
    parts = urlsplit(url)
    hosts = ",".join(_with_port(host) for host in parts.netloc.split(",") if host)
    return KazooClient(
        hosts + parts.path.rstrip("/"),
        timeout=timeout_ms / 1000,
        connection_retry=KazooRetry(**_RECONNECT),
        logger=_kazoo_log,
        auth_data=[("digest", digest)] if digest else None,
        default_acl=CREATOR_ALL_ACL if digest else None,
    )


def _with_port(host: str) -> str:
    return host if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else f"{host}:{PORT}"


def is_failure(result: object) -> bool:
    """Whether a part of a transaction is why all of it failed."""
    return isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency)


def failure(error: Exception | None) -> StoreError:
    """What the port's users are told of an error."""
    if isinstance(error, StoreError):
        return error
    return StoreError(f"the metadata store failed: {reason_of(error)}")


def reason_of(error: BaseException | None) -> str:
    """What is wrong, where most errors of kazoo's have nothing but a name."""
    return str(error) or type(error).__name__
