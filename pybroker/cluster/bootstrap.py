"""Which store and which cluster a broker starts with.

Owns: choosing the store and its place, settling the node id, and what a new store is founded on. That is a data
directory of Apache Kafka's that is taken over, or nothing. Everything after that is the controller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.cluster_member import ClusterMember
from pybroker.cluster.membership.standalone import Standalone
from pybroker.cluster.store.initial_metadata import NO_USERS, InitialMetadata, new_cluster, new_cluster_id
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.cluster.store.sqlite import sqlite_store
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env
from pybroker.extras import how_to_install
from pybroker.storage.files.checkpoints import read_meta_properties

if TYPE_CHECKING:
    from pybroker.cluster.membership.peers import Peers
    from pybroker.cluster.store.initial_metadata import Users
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.cluster.store.metadata_store import MetadataStore

KRAFT_LOG_DIR: Final = "__cluster_metadata-0"
SQLITE_URL: Final = "sqlite://"  # and the absolute path behind it
ZOOKEEPER_URL: Final = "zookeeper://"

log = logging.getLogger(__name__)


def open_membership(
    env: Env,
    config: BrokerConfig,
    cache: MetadataCache,
    metadata_dir: str,
    partition_count: int,
    connect: Callable[[MetadataFollower, int, bytes], Peers] | None,
    first_users: Users = NO_USERS,
) -> ClusterMember:
    """This broker's place in its cluster, which may be the broker alone; StoreError when the directory is another's.

    ``partition_count`` partitions were found in the log dirs: a cluster that is new has none.
    ``connect(follower, node_id, secret)`` makes the way to the other brokers, and is None for a broker that is alone;
    ``first_users`` are a new cluster's.
    Nothing is opened yet: ``load`` does.
    """
    if connect is None:
        return open_standalone(env, config, cache, metadata_dir, partition_count, first_users)
    url = config["pybroker.metadata"]
    meta = read_meta_properties(Path(metadata_dir)) or {}
    node_id, cluster_id = _node_id(meta, config), _cluster_id(meta, config)

    def found() -> InitialMetadata:
        if not (Path(metadata_dir) / KRAFT_LOG_DIR).is_dir():
            _check_nothing_is_left_behind(config, metadata_dir, url, partition_count)
        return _found(env, metadata_dir, meta, node_id, first_users, cluster_id)

    return ClusterMember(
        env,
        config,
        cache,
        shared_store(url, env, config, cache, node_id),
        node_id,
        found,
        lambda follower, secret: connect(follower, node_id, secret),
        config.get_int("pybroker.metadata.session.timeout.ms"),
        cluster_id,
    )


def shared_store(url: str, env: Env, config: BrokerConfig, cache: MetadataCache, node_id: int) -> MetadataStore:
    """The store that brokers share, not opened yet; StoreError for what is no url of one."""

    def broker_epoch() -> int:
        registration = cache.image.brokers.get(node_id)
        return -1 if registration is None else registration.epoch

    timeout_ms = config.get_int("pybroker.metadata.session.timeout.ms")
    if url.startswith(SQLITE_URL):
        from pybroker.cluster.store.sqlite.shared_sqlite_worker import Sharing

        sharing = Sharing(timeout_ms, node_id, broker_epoch)
        fsync = config.get_bool("pybroker.fsync.enable")
        return sqlite_store.SqliteStore(url[len(SQLITE_URL) :], env, fsync=fsync, sharing=sharing)
    if url.startswith(ZOOKEEPER_URL):
        try:
            from pybroker.cluster.store.zookeeper.zookeeper_store import ZooKeeperStore
        except ModuleNotFoundError as error:
            raise StoreError(f"{url} needs the extra: {how_to_install('zookeeper')} ({error})") from error
        return ZooKeeperStore(url, env, timeout_ms=timeout_ms, digest=config["pybroker.metadata.zookeeper.digest"])
    raise StoreError(f"pybroker.metadata: {url} is of no kind of store that brokers share")


def open_standalone(
    env: Env,
    config: BrokerConfig,
    cache: MetadataCache,
    metadata_dir: str,
    partition_count: int = 0,
    first_users: Users = NO_USERS,
) -> Standalone:
    """The broker with the store in ``metadata_dir``; see ``open_membership``.

    Nothing is opened yet: ``load`` and ``register`` do that.
    """
    meta = read_meta_properties(Path(metadata_dir)) or {}
    node_id, cluster_id = _node_id(meta, config), _cluster_id(meta, config)
    path = str(Path(metadata_dir) / sqlite_store.FILE_NAME)
    store = sqlite_store.SqliteStore(path, env, fsync=config.get_bool("pybroker.fsync.enable"))

    def found() -> InitialMetadata:
        if not (Path(metadata_dir) / KRAFT_LOG_DIR).is_dir():
            _check_nothing_is_forgotten(config, metadata_dir, partition_count)
        return _found(env, metadata_dir, meta, node_id, first_users, cluster_id)

    return Standalone(env, config, cache, store, node_id, found)


def check_nothing_is_lost(config: BrokerConfig, metadata_dir: str, revision: int, seen: int) -> None:
    """StoreError where the store ends at a ``revision`` before the newest that a log dir has ``seen``.

    Whatever was acknowledged in between is not there: topics of that time would be taken for strays.
    """
    if revision >= seen:
        return
    store = config["pybroker.metadata"] or Path(metadata_dir) / sqlite_store.FILE_NAME
    lost = (
        f"the metadata store {store} ends at revision {revision}, but the log dirs have seen revision {seen}: "
        "acknowledged changes of topics or settings are missing"
    )
    if not config.get_bool("pybroker.accept.lost.metadata"):
        raise StoreError(f"{lost}; put its files back, or go on without them by --accept-lost-metadata")
    log.warning("%s; the broker goes on without them", lost)


def _node_id(meta: Mapping[str, str], config: BrokerConfig) -> int:
    """The node id: the directory's, which a ``node.id`` of the settings must not contradict."""
    stored = meta.get("node.id", meta.get("broker.id"))
    if stored is None:
        return config.node_id
    if not stored.isdecimal():
        raise StoreError(f"meta.properties says that the node id is {stored!r}")
    is_set = config.is_set("node.id") or config.is_set("broker.id")
    if is_set and config.node_id != int(stored):
        raise StoreError(f"node.id is {config.node_id}, but the data directory belongs to node {stored}")
    return int(stored)


def _cluster_id(meta: Mapping[str, str], config: BrokerConfig) -> str | None:
    """The cluster id: the directory's, which ``pybroker.cluster.id`` must not contradict; None for any."""
    stored, wanted = meta.get("cluster.id"), config["pybroker.cluster.id"]
    if stored is not None and wanted not in (None, stored):
        raise StoreError(f"pybroker.cluster.id is {wanted}, but the data directory belongs to the cluster {stored}")
    return stored or wanted


def _check_nothing_is_forgotten(config: BrokerConfig, metadata_dir: str, partition_count: int) -> None:
    """A new cluster knows no topics: beside partitions of an old one it would take them for strays."""
    for log_dir in config.log_dirs:
        path = Path(log_dir).absolute()
        if path != Path(metadata_dir).absolute() and (path / sqlite_store.FILE_NAME).exists():
            raise StoreError(f"the cluster's metadata lies in {log_dir}: set metadata.log.dir to it")
    if partition_count:
        raise StoreError(
            f"the log dirs hold {partition_count} partitions, but {metadata_dir} has no metadata that knows them: "
            "set metadata.log.dir to where it lies, or move the partitions away"
        )


def _check_nothing_is_left_behind(config: BrokerConfig, metadata_dir: str, url: str, partition_count: int) -> None:
    """The same of a store that brokers share and that is new."""
    if not partition_count or config.get_bool("pybroker.accept.lost.metadata"):
        return
    alone = Path(metadata_dir).absolute() / sqlite_store.FILE_NAME
    known = f" ({SQLITE_URL}{alone} is that of the broker that was alone here)" if alone.exists() else ""
    raise StoreError(
        f"the log dirs hold {partition_count} partitions, but the metadata store {url} is new and knows none of them. "
        f"Name the store that knows them{known}, or go on without them by --accept-lost-metadata"
    )


def _found(
    env: Env, metadata_dir: str, meta: Mapping[str, str], node_id: int, first_users: Users, cluster_id: str | None
) -> InitialMetadata:
    kraft_log_dir = Path(metadata_dir) / KRAFT_LOG_DIR
    if not kraft_log_dir.is_dir():
        return new_cluster(cluster_id or new_cluster_id(env.new_uuid), first_users)
    if cluster_id is None or "cluster.id" not in meta:
        raise StoreError(f"{kraft_log_dir} is there, but no meta.properties that says whose it is")
    from pybroker.cluster.kraft.kraft_takeover import read_kraft_metadata

    return read_kraft_metadata(str(kraft_log_dir), cluster_id, node_id)
