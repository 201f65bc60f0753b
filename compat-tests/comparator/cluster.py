"""What a scenario of a cluster talks to: each of its brokers by id, with all exchanges in one transcript.

Owns: the brokers' connections, topics whose leaders are known beforehand, and stopping and starting one broker.  Does
not own what is asked of a broker and how it is recorded (``broker``), nor the processes (``harness.broker_cluster``).

Invariants: ids are 1 and up on both sides, and whatever leads to a broker is placed by hand, coordinators' partitions
too, so that ids are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from harness.broker_cluster import BrokerCluster
from harness.waiting import wait_until

from comparator.broker import PREPARATION_TIMEOUT_S, Broker, Step
from comparator.encoding import Tree

BROKERS = 3
HEAP_MB = 384  # of each of Kafka's
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
# Partition 0 of either topic is led by broker 1, partition 1 by broker 2, …
INTERNAL_PARTITIONS = 3
GROUP, TRANSACTION = 0, 1  # what FindCoordinator calls a key's type
# The same on both sides: a minimum that one stopped broker breaks, no leaders that come back by themselves, and a rack
# for each broker.
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "auto.leader.rebalance.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


def properties_of(directory: Path, broker_id: int) -> dict[str, str]:
    """What is one broker's alone: its rack, and two log dirs below the cluster's directory, where it has its first."""
    first = directory / f"node-{broker_id}" / "data"
    return {"broker.rack": f"rack-{broker_id}", "log.dirs": f"{first},{first.with_name('more')}"}


Replicas = Sequence[Sequence[int]]


class Cluster:
    """``steps`` is what all brokers have answered so far, in the order of asking."""

    def __init__(self, processes: BrokerCluster[Any]) -> None:
        self.steps: list[Step] = []
        self._processes = processes
        self.brokers = {
            number: Broker((process.host, process.port), self.steps)
            for number, process in enumerate(processes.brokers, start=1)
        }

    @property
    def ids(self) -> list[int]:
        return list(self.brokers)

    def versions(self, api: str) -> range:
        """The versions that pybroker serves."""
        return self.brokers[1].versions(api)

    def call(self, broker_id: int, api: str, version: int, note: str, **fields: Tree) -> Any:
        """Ask one broker; the step's note says which."""
        return self.brokers[broker_id].call(api, version, f"{note}, at {broker_id}", **fields)

    def call_each(self, api: str, version: int, note: str, **fields: Tree) -> None:
        """Ask each broker the same."""
        for broker_id in self.ids:
            self.call(broker_id, api, version, note, **fields)

    def note(self, what: str, observed: Tree) -> None:
        """Record something that the scenario has observed itself."""
        self.brokers[1].note(what, observed)

    def prepare_topic(self, name: str, replicas: Replicas, **configs: str) -> bytes:
        """Create a topic with these replicas of its partitions; returns its id when their first ones lead.

        Underscores in ``configs`` stand for dots.
        """
        self._create(name, replicas, configs)
        self.wait_for(name, [each[0] for each in replicas], [set(each) for each in replicas])
        return self.topic_id(name)

    def prepare_coordinators(self) -> None:
        """Make the coordinators' topics as ``INTERNAL_PARTITIONS`` says; does nothing where they are there."""
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        for name in (OFFSETS, TRANSACTIONS):
            if not self._partitions(1, name):
                self._create(name, replicas, {"cleanup_policy": "compact"})
            wait_until(self._all_in_sync, "all replicas in sync", PREPARATION_TIMEOUT_S)
            self.wait_for(name, [1, 2, 3], [{1, 2, 3}] * INTERNAL_PARTITIONS, elect=True)

    def names_by_coordinator(self, prefix: str, key_type: int) -> dict[int, str]:
        """A name of a group, or of a transaction, for each broker, which coordinates it."""
        names: dict[int, str] = {}
        for number in count():
            if len(names) == len(self.ids):
                break
            name = f"{prefix}-{number}"
            found = self.brokers[1].quietly("FindCoordinator", 3, key=name, key_type=key_type)
            names.setdefault(found["node_id"], name)
        return dict(sorted(names.items()))

    def topic_id(self, name: str) -> bytes:
        reply = self.brokers[1].quietly("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        topic_id: bytes = reply["topics"][0]["topic_id"]
        return topic_id

    def wait_for(
        self, name: str, leaders: Sequence[int], in_sync: Sequence[set[int] | None], elect: bool = False
    ) -> None:
        """Wait until every broker that runs knows these leaders and in-sync replicas (None: any), and they lead.

        ``elect``: they are the preferred ones, and do not come by themselves.  A broker may have been stopped, or on a
        busy machine be silent for too long, after its election, too: so that is asked for until they lead.
        """
        seen: dict[int, list[Any]] = {}

        def is_so() -> bool:
            for broker_id in self.running():
                seen[broker_id] = found = self._partitions(broker_id, name)
                if [each["leader_id"] for each in found] != list(leaders):
                    if elect:
                        self._elect(name, len(leaders))
                    return False
                if any(
                    wanted not in (None, set(each["isr_nodes"])) for each, wanted in zip(found, in_sync, strict=True)
                ):
                    return False
            return all(self._leads(leader, name, index) for index, leader in enumerate(leaders) if leader >= 0)

        try:
            wait_until(is_so, name, PREPARATION_TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"{name} is not led by {leaders} with {in_sync} in sync: {seen}") from None

    def wait_for_replicas(self, name: str, replicas: Sequence[list[int] | set[int]]) -> None:
        """Wait until every broker that runs knows these replicas of the partitions: in this order, or a set in any."""

        def is_known_to(broker_id: int) -> bool:
            known = [each["replica_nodes"] for each in self._partitions(broker_id, name)]
            return all(type(wanted)(each) == wanted for each, wanted in zip(known, replicas, strict=True))

        def is_so() -> bool:
            return all(is_known_to(broker_id) for broker_id in self.running())

        wait_until(is_so, f"replicas of {name} on {replicas}", PREPARATION_TIMEOUT_S)

    def running(self) -> list[int]:
        """The brokers that run."""
        return [number for number in self.ids if self._processes.brokers[number - 1].is_running]

    @contextmanager
    def stopped(self, broker_id: int) -> Iterator[None]:
        """One broker is stopped cleanly meanwhile; at the end it is back, and in sync everywhere."""
        self._processes.stop_one(broker_id - 1)
        self.brokers[broker_id].forget()
        left = [number for number in self.ids if number != broker_id]
        try:
            wait_until(
                lambda: all(self._knows(number, left) for number in left), f"{left} alone", PREPARATION_TIMEOUT_S
            )
            yield
        finally:
            self._processes.start_one(broker_id - 1)
            wait_until(
                lambda: all(self._knows(number, self.ids) for number in self.ids), "all brokers", PREPARATION_TIMEOUT_S
            )
            wait_until(self._all_in_sync, "all replicas in sync", PREPARATION_TIMEOUT_S)

    @contextmanager
    def opened(self) -> Iterator[Cluster]:
        """Connections last as long as the scenario."""
        with ExitStack() as stack:
            for broker in self.brokers.values():
                stack.enter_context(broker.opened())
            yield self

    def _create(self, name: str, replicas: Replicas, configs: dict[str, str]) -> None:
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": index, "broker_ids": list(ids)} for index, ids in enumerate(replicas)],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        reply = self.brokers[1].quietly("CreateTopics", 7, topics=[topic], timeout_ms=10_000)
        assert reply["topics"][0]["error_code"] == 0, f"cannot create {name}: {reply}"

    def _elect(self, name: str, partitions: int) -> None:
        asked = [{"topic": name, "partitions": list(range(partitions))}]
        self.brokers[1].quietly("ElectLeaders", 2, election_type=0, topic_partitions=asked, timeout_ms=10_000)

    def _partitions(self, broker_id: int, name: str) -> list[Any]:
        asked = self.brokers[broker_id].quietly(
            "Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False
        )
        return sorted(asked["topics"][0]["partitions"], key=lambda each: each["partition_index"])

    def _leads(self, broker_id: int, name: str, index: int) -> bool:
        topics = [{"name": name, "partitions": [{"partition_index": index, "timestamp": -1}]}]
        reply = self.brokers[broker_id].quietly("ListOffsets", 7, replica_id=-1, topics=topics)
        return bool(reply["topics"][0]["partitions"][0]["error_code"] == 0)

    def _knows(self, broker_id: int, ids: list[int]) -> bool:
        reply = self.brokers[broker_id].quietly("Metadata", 12, topics=[])
        return sorted(each["node_id"] for each in reply["brokers"]) == ids

    def _all_in_sync(self) -> bool:
        topics = self.brokers[1].quietly("Metadata", 12, topics=None)["topics"]
        return all(
            set(partition["isr_nodes"]) == set(partition["replica_nodes"])
            for topic in topics
            for partition in topic["partitions"]
        )
