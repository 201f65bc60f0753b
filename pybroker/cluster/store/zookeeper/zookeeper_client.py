"""A client of ZooKeeper as this broker wants it, and what kazoo's errors mean.

Owns: how a url of ``pybroker.metadata`` is read, when a connection is tried again, and that the client goes on where
kazoo gives up. Kazoo's thread ends for good when the servers refuse its credentials, or by an error that it does not
expect, such as no descriptor left for a socket. Owns no request, but for those that make the folders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from pybroker.cluster.store.metadata_store import StoreError
from pybroker.cluster.store.zookeeper import zookeeper_codec as codec
from pybroker.env import Cancellable, Env
from pybroker.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # a line per attempt to connect; that the store is away is logged once, by the store

PORT: Final = 2181
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_RESTART_PAUSE_MS: Final = 1_000


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's threads; ``error`` is what the last one that failed has ended by."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:
                self.error = error

        return super().spawn(run)


class ClientRestart:
    """Starts a client again whose connection's thread has ended.  Runs on the loop."""

    def __init__(self, client: Any, env: Env, name: str) -> None:
        self._client = client
        self._timers = env.timers
        self._name = name
        self._limited_log = RateLimitedLog(log, env.timers, logging.ERROR)
        self._timer: Cancellable | None = None

    def watch(self) -> None:
        """The session is lost: see to it that a try to connect is under way, until one has succeeded."""
        if self._timer is None:
            self._timer = self._timers.call_later(_RESTART_PAUSE_MS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limited_log.close()

    def _look(self) -> None:
        self._timer = None
        if self._client.connected:
            return
        thread = self._client._connection._connection_routine
        if thread is None or not thread.is_alive():
            self._start(self._client.handler.error)
        self.watch()

    def _start(self, error: Exception | None) -> None:
        self._client.handler.error = None
        reason = "the servers refused the credentials" if error is None else reason_of(error)
        line = "the connection to %s had ended for good: %s; it is made anew"
        self._limited_log.warning(self._name, reason, line, self._name, reason)
        try:
            self._client.start_async()
        except Exception as failure:  # no thread could be started: there is another try
            self._client.handler.error = failure


def new_client(url: str, timeout_ms: int, digest: str | None) -> Any:
    """A client that tries to connect for ever, with ZooKeeper's own port where an address has none."""
    parts = urlsplit(url)
    hosts = ",".join(_with_port(host) for host in parts.netloc.split(",") if host)
    return KazooClient(
        hosts + parts.path.rstrip("/"),
        timeout=timeout_ms / 1000,
        connection_retry=KazooRetry(**_RECONNECT),
        handler=_Handler(),
        logger=_kazoo_log,
        auth_data=[("digest", digest)] if digest else None,
        default_acl=CREATOR_ALL_ACL if digest else None,
    )


def make_folders(client: Any, url: str) -> None:
    """Make what every store has, at its first opening; StoreError where a digest would protect nothing."""
    if client.default_acl is not None:
        _refuse_open_znodes(client, url)
    chroot, client.chroot = client.chroot, ""
    if chroot:  # kazoo makes no more than its last part
        client.ensure_path(chroot)
    client.chroot = chroot
    for path in (codec.CHANGES, codec.PARTS, codec.SNAPSHOTS, codec.EPHEMERALS):
        client.ensure_path(path)
    for path in (codec.SNAPSHOT, codec.HEAD):
        with suppress(NodeExistsError):
            client.create(path, b"")


def _refuse_open_znodes(client: Any, url: str) -> None:
    with suppress(NoNodeError):  # it is new
        acl, _ = client.get_acls(codec.HEAD)
        if any(entry.id.scheme == "world" for entry in acl):
            raise StoreError(
                f"the metadata store {url} is open to everybody, since it was made without "
                "pybroker.metadata.zookeeper.digest. Stop all brokers and set the ACLs of all its znodes with "
                "ZooKeeper's own tool, or begin a new cluster below another path"
            )


def _with_port(host: str) -> str:
    return host if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else f"{host}:{PORT}"


def is_failure(result: object) -> bool:
    """Whether a part of a transaction is why all of it failed."""
    return isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency)


def failure(error: Exception | None) -> StoreError:
    """What the port's users get of an error."""
    if isinstance(error, StoreError):
        return error
    return StoreError(f"the metadata store failed: {reason_of(error)}")


def reason_of(error: BaseException | None) -> str:
    """What is wrong, where most errors of kazoo's have nothing but a name."""
    if isinstance(error, NoAuthError):
        return "NoAuth: its znodes belong to who has another pybroker.metadata.zookeeper.digest"
    return str(error) or type(error).__name__
