"""The brokers of the runs: one that is alone, or three of a cluster, which lose nothing with one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.broker_cluster import BrokerCluster
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess

CLUSTER: Final = 3
# Those of the coordinators' topics are Kafka's defaults: three replicas, too, of which two must have it.
_PROPERTIES: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def make_brokers(directory: Path, count: int) -> BrokerCluster[PybrokerProcess]:
    """So many, not started yet."""
    if count == 1:
        return BrokerCluster([PybrokerProcess(directory)])
    return PybrokerCluster(directory, _PROPERTIES, count)
