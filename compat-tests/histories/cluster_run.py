"""A cluster for a run, as the command line wants it: where it runs, its store, its faults.

Owns: what is missing here and said so, and the end of all that a run has made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.zookeeper import missing_requirement

from histories.cluster import Cluster, properties_of_a_cluster
from histories.cluster_nemesis import KINDS, ClusterNemesis, missing
from histories.hosts import Hosts, Loopback, enter, why_no_namespaces
from histories.stores import SqliteFile, Store, ZooKeeperServers, names
from histories.workload import BROKER_PROPERTIES

BROKERS_MIN = 3
SQLITE, ZOOKEEPER = "sqlite", "zookeeper"
STORES = (SQLITE, ZOOKEEPER)


@dataclass(frozen=True)
class ClusterPlan:
    """What is wanted.  ``faults``: names of ``KINDS``, ``None`` for all that can be had."""

    brokers: int
    store: str
    servers: int
    faults: Sequence[str] | None
    every_s: float
    mistake: str | None

    def check(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        if self.brokers < BROKERS_MIN:
            raise ValueError(f"a cluster has {BROKERS_MIN} brokers or more, because topics have so many replicas")
        if unknown := sorted(set(self.faults or ()) - KINDS.keys()):
            raise ValueError(f"no faults: {', '.join(unknown)}; there are {', '.join(KINDS)}")
        if self.store == ZOOKEEPER and (reason := missing_requirement()) is not None:
            raise ValueError(reason)

    @property
    def store_hosts(self) -> tuple[str, ...]:
        return names(self.servers) if self.store == ZOOKEEPER else ()


def find_hosts(plan: ClusterPlan, say: Callable[[str], object]) -> Hosts:
    """Namespaces where they can be had, which this process then has entered; it may begin anew for that."""
    if (reason := why_no_namespaces()) is not None:
        say(f"all runs on loopback, and links do not fail: no network namespaces ({reason})")
        return Loopback()
    brokers = [f"broker{number}" for number in range(1, plan.brokers + 1)]
    return enter([*brokers, *plan.store_hosts], os.environ)


@contextmanager
def started(
    plan: ClusterPlan, hosts: Hosts, directory: Path, say: Callable[[str], object]
) -> Iterator[tuple[Cluster, ClusterNemesis]]:
    """The cluster, which serves, and who strikes it."""
    store: Store = SqliteFile(directory / "metadata.db")
    if plan.store == ZOOKEEPER:
        store = ZooKeeperServers(directory / "zookeeper", plan.servers, hosts)
    properties = properties_of_a_cluster(BROKER_PROPERTIES)
    cluster = Cluster(directory, plan.brokers, hosts, store, properties, hosts.has_links, plan.mistake)
    nemesis = ClusterNemesis(cluster, _kinds(plan, cluster, say), plan.every_s)
    try:
        cluster.start()
        yield cluster, nemesis
        cluster.stop()
    finally:
        cluster.kill()
        nemesis.close()
        cluster.end_disks()


def _kinds(plan: ClusterPlan, cluster: Cluster, say: Callable[[str], object]) -> list[str]:
    lacks = missing(cluster)
    wanted = list(KINDS) if plan.faults is None else plan.faults
    for kind in wanted:
        if (reason := lacks.get(KINDS[kind].needs)) is not None:
            say(f"no fault {kind}: {reason}")
    return [kind for kind in wanted if KINDS[kind].needs not in lacks]
