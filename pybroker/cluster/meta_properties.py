"""Who this node is, according to the data directory.

Owns: reading ``meta.properties`` (version 1) for the cluster id and the node id, and settling them with the settings.
Not owned: writing it and the directory ids, which is the log manager's.

Counterpart in Kafka: ``org.apache.kafka.metadata.properties.MetaProperties``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from pybroker.cluster.metadata_store import StoreError
from pybroker.config.broker import BrokerConfig
from pybroker.config.properties import parse_properties

FILE_NAME: Final = "meta.properties"


class MetaProperties(NamedTuple):
    """What a formatted data directory says; None for what it does not."""

    cluster_id: str | None = None
    node_id: int | None = None


def read_meta_properties(metadata_dir: str) -> MetaProperties:
    """The properties of the directory; empty when it was never formatted.  StoreError when they make no sense."""
    path = Path(metadata_dir) / FILE_NAME
    try:
        properties = parse_properties(path.read_text(encoding="utf-8"))
        version = properties.get("version", "1")
        if version not in ("0", "1"):
            raise StoreError(f"{path} has version {version}, which is not known")
        # Version 0 is a directory from the days of ZooKeeper, where the node id was called so.
        node_id = properties.get("node.id", properties.get("broker.id"))
        return MetaProperties(properties.get("cluster.id"), None if node_id is None else int(node_id))
    except FileNotFoundError:
        return MetaProperties()
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def settle_node_id(meta: MetaProperties, config: BrokerConfig) -> int:
    """The node id: the directory's, which a ``node.id`` that somebody set must not contradict (StoreError)."""
    if meta.node_id is None:
        return config.node_id
    if (config.is_set("node.id") or config.is_set("broker.id")) and config.node_id != meta.node_id:
        raise StoreError(f"node.id is {config.node_id}, but the data directory belongs to node {meta.node_id}")
    return meta.node_id
