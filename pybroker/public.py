"""The broker's public face: with ``config``, ``security`` and ``extras`` all that commands and pipeline import of it.

Owns: which parts of the broker others may name.  A name is imported at its first use, because a command that asks for a
file's name is to load no broker.

Invariant: ``cli`` and ``pipeline`` import no other module of the broker (``tests/test_layers.py``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybroker.cluster.image.coordinator_table import COORDINATORS
    from pybroker.cluster.membership.too_few_brokers import too_few_brokers_message
    from pybroker.cluster.store.metadata_store import StoreError
    from pybroker.cluster.store.sqlite.shared_sqlite_worker import is_locked, read_writer
    from pybroker.net.peer_requests import PeerApi
    from pybroker.net.token_endpoint import (
        TOKEN_ENDPOINT_URL,
        TOKEN_FRESH_FOR,
        TOKEN_SETTINGS,
        checked_token,
        token_endpoint,
    )
    from pybroker.server import AdvertisedListener, BrokerServer
    from pybroker.storage.dirs.start_rollback import CLEAN_SHUTDOWN_FILE, LOCK_FILE
    from pybroker.storage.files.checkpoints import META_PROPERTIES
    from pybroker.storage.results import StorageError

__all__ = [
    "CLEAN_SHUTDOWN_FILE",
    "COORDINATORS",
    "LOCK_FILE",
    "META_PROPERTIES",
    "TOKEN_ENDPOINT_URL",
    "TOKEN_FRESH_FOR",
    "TOKEN_SETTINGS",
    "AdvertisedListener",
    "BrokerServer",
    "PeerApi",
    "StorageError",
    "StoreError",
    "checked_token",
    "is_locked",
    "read_writer",
    "token_endpoint",
    "too_few_brokers_message",
]
_MODULES = {
    "cluster.image.coordinator_table": ("COORDINATORS",),
    "cluster.membership.too_few_brokers": ("too_few_brokers_message",),
    "cluster.store.metadata_store": ("StoreError",),
    "cluster.store.sqlite.shared_sqlite_worker": ("is_locked", "read_writer"),
    "net.peer_requests": ("PeerApi",),
    "net.token_endpoint": (
        "TOKEN_ENDPOINT_URL",
        "TOKEN_FRESH_FOR",
        "TOKEN_SETTINGS",
        "checked_token",
        "token_endpoint",
    ),
    "server": ("AdvertisedListener", "BrokerServer"),
    "storage.dirs.start_rollback": ("CLEAN_SHUTDOWN_FILE", "LOCK_FILE"),
    "storage.files.checkpoints": ("META_PROPERTIES",),
    "storage.results": ("StorageError",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"pybroker.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
