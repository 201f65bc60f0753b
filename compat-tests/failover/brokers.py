"""Three brokers as processes, and what they say of themselves.

Owns: which clusters there are, kill and pause of one broker, and the questions whose answers the
measurement needs: who leads, who is in sync, who is the controller, what the logs say of fencing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import KAFKA_VERSION, SERVER_JVM_OPTIONS
from harness.broker_cluster import BrokerCluster
from harness.broker_process import BrokerProcess
from harness.pybroker_cluster import PybrokerCluster
from harness.waiting import wait_until
from harness.wire import Client
from harness.zookeeper import ZooKeeper

from pybroker_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pybroker_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC: Final = "failover"
OFFSETS: Final = "__consumer_offsets"
BROKERS: Final = 3
# ZooKeeper's own default, from which the shortest session follows.
TICK_MS: Final = 2_000
_METADATA_VERSION, _CREATE_VERSION, _ELECT_VERSION, _FIND_VERSION, _QUORUM_VERSION = 12, 7, 2, 4, 1
_FENCING = re.compile(r"^(?P<at>\S+ \S+) \S+ pybroker\.cluster\.controller\.controller_election: fencing brokers: ")
_ACTIVE = re.compile(
    r"^(?P<at>\S+ \S+) \S+ pybroker\.cluster\.controller\.controller_election: broker \d+ is the active controller"
)


class Leadership(NamedTuple):
    """Of one partition, as a broker tells it."""

    leader: int
    epoch: int
    in_sync: frozenset[int]
    preferred: int


class Brokers:
    """The processes, by their ids, which are 1 and up."""

    name = "pybroker"

    def __init__(self, cluster: BrokerCluster[Any]) -> None:
        self._cluster = cluster
        self.processes: dict[int, BrokerProcess] = dict(enumerate(cluster.brokers, start=1))

    @property
    def bootstrap(self) -> str:
        return ",".join(self._cluster.bootstraps)

    @property
    def alive(self) -> list[int]:
        return [broker_id for broker_id, process in self.processes.items() if process.is_running]

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id - 1)

    def restart(self, broker_id: int) -> None:
        self._cluster.start_one(broker_id - 1)

    def pause(self, broker_id: int) -> None:
        self._cluster.pause(broker_id - 1)

    def resume(self, broker_id: int) -> None:
        self._cluster.resume(broker_id - 1)

    # --- questions ---------------------------------------------------------------------------------------------------

    def client(self, broker_id: int) -> Client:
        return Client((self.processes[broker_id].host, self.processes[broker_id].port), client_id="failover")

    def _any(self) -> Client:
        return self.client(self.alive[0])

    def controller(self) -> int:
        """The active controller; -1 while nobody is."""
        with self._any() as client:
            answer: MetadataResponse = client.ask(MetadataRequest(topics=[]), _METADATA_VERSION)
        return answer.controller_id

    def coordinator(self, group: str) -> int:
        """The broker of the group's coordinator."""
        with self._any() as client:
            answer = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), _FIND_VERSION)
        return int(answer.coordinators[0].node_id)

    def create_topic(self) -> None:
        """A partition for each broker to lead, each on all brokers."""
        ids = sorted(self.processes)
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids[index:] + ids[:index])
            for index in range(len(ids))
        ]
        config = CreatableTopicConfig(name="min.insync.replicas", value="2")
        topic = CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[config]
        )
        with self._any() as client:
            answer = client.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), _CREATE_VERSION
            )
        assert not answer.topics[0].error_code, answer

    def elect_preferred(self) -> None:
        """Have each partition led by the first of its replicas again."""
        with self._any() as client:
            client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=30_000), _ELECT_VERSION)

    def leaderships(self, *topics: str) -> dict[tuple[str, int], Leadership]:
        with self._any() as client:
            return ask_leaderships(client, *topics)

    def wait_in_sync(self, patience_s: float = 60) -> None:
        """Until every partition has all its replicas in sync, and the first of them leads."""

        def settled() -> bool:
            found = self.leaderships(TOPIC, OFFSETS)
            if any(len(each.in_sync) < len(self.processes) for each in found.values()):
                return False
            if any(each.leader != each.preferred for each in found.values()):
                self.elect_preferred()
                return False
            return len(self.alive) == len(self.processes) and self.controller() in self.alive

        wait_until(settled, "all replicas to be in sync", patience_s)

    # --- logs --------------------------------------------------------------------------------------------------------

    def fencing_since(self, positions: Mapping[int, int]) -> float | None:
        """When a log of those alive first says, behind these positions, that somebody is given up: wall clock, s."""
        found = [
            _seconds(fencing["at"])
            for broker_id in self.alive
            for line in self._log_lines(broker_id, positions[broker_id])
            if (fencing := _FENCING.match(line))
        ]
        return min(found, default=None)

    def log_positions(self) -> dict[int, int]:
        return {broker_id: each.log_path.stat().st_size for broker_id, each in self.processes.items()}

    def fencings_and_elections(self, positions: Mapping[int, int]) -> list[str]:
        """The lines of the logs behind these positions that tell of either."""
        return [
            line
            for broker_id in self.processes
            for line in self._log_lines(broker_id, positions[broker_id])
            if _FENCING.match(line) or _ACTIVE.match(line)
        ]

    def _log_lines(self, broker_id: int, position: int) -> list[str]:
        with self.processes[broker_id].log_path.open("rb") as lines:
            lines.seek(position)
            return lines.read().decode(errors="replace").splitlines()


def ask_leaderships(client: Client, *topics: str) -> dict[tuple[str, int], Leadership]:
    """Who leads what, by one broker's Metadata."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
    )
    answer: MetadataResponse | None = client.ask(request, _METADATA_VERSION)
    if answer is None:
        raise ConnectionError("the broker closed the connection")
    return {
        (topic.name or "", partition.partition_index): Leadership(
            partition.leader_id, partition.leader_epoch, frozenset(partition.isr_nodes), partition.replica_nodes[0]
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()


class ApacheBrokers(Brokers):
    """Apache Kafka's, whose active controller is the leader of the quorum."""

    name = f"Apache Kafka {KAFKA_VERSION}"

    def controller(self) -> int:
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        with self._any() as client:
            answer = client.ask(DescribeQuorumRequest(topics=[topic]), _QUORUM_VERSION)
        return int(answer.topics[0].partitions[0].leader_id)

    def fencing_since(self, positions: Mapping[int, int]) -> float | None:
        return None


@contextmanager
def pybrokers(directory: Path, store: str) -> Iterator[Brokers]:
    """Three of pybroker with the settings that they have by themselves; all are killed at the end."""
    with ExitStack() as stack:
        metadata = None
        if store == "zookeeper":
            zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper", tick_ms=TICK_MS))
            metadata = f"zookeeper://{zookeeper.hosts}"
        cluster = PybrokerCluster(directory, nodes=BROKERS, metadata=metadata)
        stack.callback(cluster.kill_all)
        cluster.start()
        yield Brokers(cluster)


@contextmanager
def apache_brokers(directory: Path) -> Iterator[Brokers]:
    """Three of Apache Kafka with its own defaults; all are killed at the end."""
    cluster = ApacheCluster(directory, nodes=BROKERS, jvm_options=SERVER_JVM_OPTIONS)
    try:
        yield ApacheBrokers(cluster.start())
    finally:
        cluster.kill_all()
