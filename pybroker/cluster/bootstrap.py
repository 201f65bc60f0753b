"""Which store and which cluster a broker starts with.

Owns: choosing the store, its place, and what a new one is founded on: a data directory of Apache Kafka's that is taken
over, or nothing.  Everything after that is the controller's.
"""

from __future__ import annotations

from pathlib import Path

from pybroker.cluster import sqlite_store
from pybroker.cluster.controller import Controller
from pybroker.cluster.founding import Founding, new_cluster, new_cluster_id
from pybroker.cluster.meta_properties import MetaProperties, read_meta_properties, settle_node_id
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.cluster.metadata_store import StoreError
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env

KRAFT_LOG_DIR = "__cluster_metadata-0"


def open_controller(env: Env, config: BrokerConfig, cache: MetadataCache, metadata_dir: str) -> Controller:
    """The controller over the store in ``metadata_dir``; StoreError when the directory is another node's.

    Nothing is opened yet: ``Controller.load`` and ``register`` do that.
    """
    meta = read_meta_properties(metadata_dir)
    node_id = settle_node_id(meta, config)
    path = str(Path(metadata_dir) / sqlite_store.FILE_NAME)
    store = sqlite_store.SqliteStore(path, env, fsync=config.get_bool("pybroker.fsync.enable"))
    return Controller(env, config, cache, store, node_id, lambda: _found(env, metadata_dir, meta, node_id))


def _found(env: Env, metadata_dir: str, meta: MetaProperties, node_id: int) -> Founding:
    kraft_log_dir = Path(metadata_dir) / KRAFT_LOG_DIR
    if kraft_log_dir.is_dir():
        if meta.cluster_id is None:
            raise StoreError(f"{kraft_log_dir} is there, but no meta.properties that says whose it is")
        from pybroker.cluster.kraft_takeover import read_kraft_metadata

        return read_kraft_metadata(str(kraft_log_dir), meta.cluster_id, node_id)
    return new_cluster(meta.cluster_id or new_cluster_id(env.new_uuid))
