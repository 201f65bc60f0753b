"""The two clusters, started alike: three nodes each on this machine, Kafka's defaults, one cluster at a time.

Owns: how a cluster is made and a replicated topic of it, and what is counted of all its brokers together.

Unlike brokers that are alone, a cluster does not stand still (SIGSTOP) while the other is measured: its brokers would
take each other for dead.  So each round starts its own, and a JVM is warmed up anew.  Of a combined KRaft node the
controller is counted, too, as pybroker's is: neither works without.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import SERVER_JVM_OPTIONS
from harness.pybroker_cluster import PybrokerCluster

from bench.contestants import KAFKA, PROPERTIES, print_log_tail, pybroker_command
from bench.context import Context, settle
from bench.process_stats import cpu_seconds, memory, proportional_mb
from bench.wire import Client

Cluster = ApacheCluster | PybrokerCluster

NODES = REPLICAS = 3
HEAP_MB = 512
MIN_IN_SYNC = {"min.insync.replicas": "2"}
_PAUSE_S = 0.02
_WHOLE_S = 60.0


@dataclass(frozen=True, slots=True)
class ReplicatedTopic:
    """``leaders``: ``HOST:PORT`` by partition."""

    name: str
    leaders: list[str]


@contextmanager
def running(context: Context, name: str, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster on fresh directories, alone on the machine; killed and removed afterwards."""
    directory = context.root / uuid.uuid4().hex[:8]
    settings = {**PROPERTIES, **(properties or {})}
    settle()
    cluster: Cluster
    if name == KAFKA:
        cluster = ApacheCluster(directory, settings, NODES, HEAP_MB, SERVER_JVM_OPTIONS)
    else:
        cluster = PybrokerCluster(directory, settings, NODES, command=pybroker_command(name))
    try:
        yield cluster.start()
    except Exception:
        for broker in cluster.brokers:
            print_log_tail(broker)
        raise
    finally:
        cluster.kill_all()
        shutil.rmtree(directory, ignore_errors=True)


def alternate(context: Context, measure: Callable[[Context, str], None]) -> None:
    """Measure each contestant once per round, in alternating order; ``measure`` starts and ends its cluster."""
    for number in range(context.fewer_rounds):
        for name in context.brokers if number % 2 == 0 else reversed(context.brokers):
            measure(context, name)


def replicated_topic(cluster: Cluster, partitions: int) -> ReplicatedTopic:
    """A fresh topic with three replicas of each partition, two of which acks=all takes, once all are in sync."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Client(cluster.bootstrap) as client:
        client.begin_topic(name, partitions, REPLICAS, MIN_IN_SYNC)
    return ReplicatedTopic(name, await_in_sync(addresses(cluster), name, partitions))


def addresses(cluster: Cluster) -> list[str]:
    """``HOST:PORT`` of each broker that runs."""
    return [broker.bootstrap for broker in cluster.brokers if broker.is_running]


def await_in_sync(brokers: list[str], name: str, partitions: int, in_sync: int = REPLICAS) -> list[str]:
    """Wait until so many replicas of each partition are in sync, as every broker has it; who leads each partition.

    A broker whose image is behind would answer UNKNOWN_TOPIC_OR_PARTITION, which a load does not ask again.
    """
    deadline_s = time.monotonic() + _WHOLE_S
    for broker in brokers:
        with Client(broker) as client:
            while True:
                states = client.states(name)
                if len(states) == partitions and all(state.in_sync == in_sync for state in states):
                    break
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"{name} is not in sync after {_WHOLE_S:.0f} s: {states}")
                time.sleep(_PAUSE_S)
    leaders = [state.leader for state in states]
    for leader in set(leaders):
        with Client(leader) as client:
            client.await_leaders(name, led_by(leader, leaders))
    return leaders


def led_by(leader: str, leaders: list[str]) -> list[int]:
    """The partitions that one broker leads."""
    return [partition for partition, each in enumerate(leaders) if each == leader]


def end_offsets(topic: ReplicatedTopic) -> dict[int, int]:
    """The offset up to which each partition can be read, asked of its leader."""
    ends: dict[int, int] = {}
    for leader in set(topic.leaders):
        with Client(leader) as client:
            ends |= client.end_offsets(topic.name, led_by(leader, topic.leaders))
    return ends


class ClusterCpu:
    """CPU seconds of all brokers of a cluster since this meter was made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._started = self._all()

    def seconds(self) -> float:
        """CPU seconds so far."""
        return self._all() - self._started

    def _all(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._cluster.pids)


def resident_mb(cluster: Cluster) -> float:
    """Resident memory of all brokers; a page that several of them map counts for each."""
    return sum(memory(pid).rss_mb for pid in cluster.pids)


def proportional_memory_mb(cluster: Cluster) -> float:
    """The same with each shared page counted once (PSS)."""
    return sum(proportional_mb(pid) for pid in cluster.pids)


def allocated_mb(cluster: Cluster) -> float:
    """What all brokers have allocated and touched, without files."""
    return sum(memory(pid).anon_mb for pid in cluster.pids)
