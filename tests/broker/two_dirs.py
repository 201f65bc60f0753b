"""A cluster of which each broker has two log dirs."""

from __future__ import annotations

from pathlib import Path

from pybroker.testing import Cluster
from pybroker.testing.cluster_node import ClusterNode


class TwoDirs(Cluster):
    """A broker's log dirs are ``a-<id>`` and ``b-<id>`` below the cluster's directory."""

    def _make_node(self, directory: Path, broker_id: int) -> ClusterNode:
        node = super()._make_node(directory, broker_id)
        node._given_dir = Path(",".join(str(directory / f"{name}-{broker_id}") for name in ("a", "b")))
        return node
