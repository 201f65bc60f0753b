"""Transactions over partitions of several leaders, by both protocols, and what committed readers see of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from comparator.broker import Broker
from comparator.cluster import GROUP, OFFSETS, TRANSACTION, TRANSACTIONS, Cluster
from comparator.cluster_scenarios.losses import ABSENT
from comparator.registry import cluster_scenario
from comparator.scenarios.produce import produce
from comparator.scenarios.transactional_data import fetch, latest, producers, transactional
from comparator.scenarios.transactions import V1, V2, add, describe, end, init, prepare, topics, who

# By protocol: the versions of Produce, AddPartitionsToTxn, and TxnOffsetCommit.  The second adds without being asked.
PRODUCE = {V1: 11, V2: 12}
COMMIT_OFFSETS = {V1: 4, V2: 5}
ADD, ADD_OFFSETS = 3, 3
# A broker that is stopped and started on a busy machine takes its time; 15 minutes is the most that brokers allow.
PATIENT_MS = 900_000


@dataclass
class Topic:
    """One partition, and the brokers that have it: first the one that leads."""

    name: str
    replicas: list[int]

    @property
    def leader(self) -> int:
        return self.replicas[0]


@dataclass
class Producer:
    """A transactional id at its coordinator, with what a client remembers between requests."""

    cluster: Cluster
    coordinator: Broker
    name: str
    protocol: int
    known: Any = None
    sequences: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        prepare(self.coordinator, self.name)
        self.known = init(self.coordinator, 5, "begins", self.name, transaction_timeout_ms=PATIENT_MS)
        self.sequences.clear()

    def write(self, *to: Topic) -> None:
        """A record into each topic, at its leader."""
        if self.protocol == V1:
            wanted = topics(*((topic.name, 0) for topic in to))
            add(self.coordinator, ADD, "where it writes", self.name, self.known, wanted)
        for topic in to:
            sequence = self.sequences.get(topic.name, 0)
            records = transactional(self.known, sequence, b"x" * 300)
            leader, version = self.cluster.brokers[topic.leader], PRODUCE[self.protocol]
            produce(leader, version, f"of {self.name}", topic.name, records, transactional_id=self.name)
            self.sequences[topic.name] = sequence + 1

    def commit_offsets(self, group: str, coordinator: Broker, topic: Topic, offset: int) -> None:
        identity = {"transactional_id": self.name, "group_id": group, **who(self.known)}
        if self.protocol == V1:
            self.coordinator.call("AddOffsetsToTxn", ADD_OFFSETS, f"of {self.name}", **identity)
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        offsets = [{"name": topic.name, "partitions": partitions}]
        fields = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets}
        version = COMMIT_OFFSETS[self.protocol]
        coordinator.call("TxnOffsetCommit", version, f"of {self.name}", **identity, **fields)

    def end(self, committed: bool) -> None:
        note = "commits" if committed else "aborts"
        ended = end(self.coordinator, self.protocol, f"{self.name} {note}", self.name, self.known, committed)
        if self.protocol == V2:
            # The epoch is the next one, which begins at sequence 0.
            self.known = ended
            self.sequences.clear()


def prepared(cluster: Cluster, prefix: str, *placed: list[int]) -> list[Topic]:
    found = [Topic(f"{prefix}-at-{replicas[0]}", replicas) for replicas in placed]
    for topic in found:
        cluster.prepare_topic(topic.name, [topic.replicas])
    return found


def read(cluster: Cluster, note: str, *to: Topic, offsets: tuple[int, ...] = (0,)) -> None:
    """By committed readers and by others at the leader, and at the followers when they are as far."""
    for topic in to:
        leader = cluster.brokers[topic.leader]
        marks = watermarks(leader, topic)
        for broker_id in topic.replicas:
            if broker_id not in cluster.running():
                continue
            broker = cluster.brokers[broker_id]
            broker.wait_until(partial(is_as_far, broker, topic, marks), f"{topic.name}, {note}")
            for offset in (each for each in offsets if each <= marks[0]):
                fetch(broker, f"{note}, from {offset}, at {broker_id}", topic.name, offset)
        fetch(leader, f"{note}, everything", topic.name, isolation_level=0)
        latest(leader, note, topic.name)
        producers(leader, note, topic.name)


def is_as_far(broker: Broker, topic: Topic, marks: tuple[int, int]) -> bool:
    return watermarks(broker, topic) == marks


def watermarks(broker: Broker, topic: Topic) -> tuple[int, int]:
    """The high watermark and the last stable offset."""
    asked = [{"topic": topic.name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
    reply = broker.quietly("Fetch", 11, max_wait_ms=0, min_bytes=1, isolation_level=1, topics=asked)
    partition = reply["responses"][0]["partitions"][0]
    return partition["high_watermark"], partition["last_stable_offset"]


def fetch_offsets(broker: Broker, note: str, group: str, topic: Topic) -> None:
    for stable in (False, True):
        asked = {"name": topic.name, "partition_indexes": [0]}
        broker.call("OffsetFetch", 7, f"{note}, stable {stable}", group_id=group, topics=[asked], require_stable=stable)
        groups = [{"group_id": group, "topics": [asked]}]
        broker.call("OffsetFetch", 9, f"{note}, stable {stable}", groups=groups, require_stable=stable)


def list_everywhere(cluster: Cluster, note: str, *named: Producer) -> None:
    ids = [producer.known["producer_id"] for producer in named]
    for broker_id in cluster.running():
        for version in cluster.versions("ListTransactions"):
            fields = {"state_filters": [], "producer_id_filters": ids, "duration_filter": -1}
            cluster.call(broker_id, "ListTransactions", version, note, **fields)


def transactions_over_two_leaders(cluster: Cluster, protocol: int) -> None:
    prefix = f"written-v{protocol}"
    cluster.prepare_coordinators()
    first, second = written = prepared(cluster, prefix, [1, 2, 3], [2, 3])
    groups = cluster.names_by_coordinator(f"reads-v{protocol}", GROUP)
    for broker_id, name in cluster.names_by_coordinator(prefix, TRANSACTION).items():
        cluster.call_each("FindCoordinator", 6, name, key_type=TRANSACTION, coordinator_keys=[name])
        producer = Producer(cluster, cluster.brokers[broker_id], name, protocol)
        # The group's coordinator is the next broker.
        group_id = broker_id % 3 + 1
        group, group_coordinator = groups[group_id], cluster.brokers[group_id]
        group_coordinator.wait_for_coordinator(group)
        producer.begin()
        for number, committed in enumerate((True, False, True), start=1):
            note = f"{number}, {'committed' if committed else 'aborted'}"
            producer.write(first, second)
            producer.write(second)
            producer.commit_offsets(group, group_coordinator, first, 10 * number)
            describe(producer.coordinator, f"open, {note}", name)
            list_everywhere(cluster, f"open, {note}", producer)
            read(cluster, f"open, {note}", *written)
            fetch_offsets(group_coordinator, f"open, {note}", group, first)
            producer.end(committed)
            describe(producer.coordinator, note, name)
            read(cluster, note, *written)
            fetch_offsets(group_coordinator, note, group, first)
        list_everywhere(cluster, "ended", producer)


@cluster_scenario
def the_first_protocol_over_two_leaders(cluster: Cluster) -> None:
    transactions_over_two_leaders(cluster, V1)


@cluster_scenario
def the_second_protocol_over_two_leaders(cluster: Cluster) -> None:
    transactions_over_two_leaders(cluster, V2)


@cluster_scenario
def transactions_of_two_coordinators_in_one_partition(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    written = prepared(cluster, "mixed", [1, 2], [2, 3, 1])
    names = cluster.names_by_coordinator("mixed", TRANSACTION)
    one, other = (Producer(cluster, cluster.brokers[at], names[at], how) for at, how in ((1, V1), (3, V2)))
    one.begin()
    other.begin()
    offsets = (0, 1, 2, 3, 4)
    one.write(*written)
    other.write(*written)
    read(cluster, "both open", *written, offsets=offsets)
    other.end(committed=False)
    read(cluster, "one aborted", *written, offsets=offsets)
    other.write(*written)
    one.write(*written)
    one.end(committed=True)
    read(cluster, "one committed", *written, offsets=offsets)
    one.write(*written)
    other.end(committed=False)
    one.end(committed=False)
    read(cluster, "all ended", *written, offsets=(*offsets, 5, 8, 9))


@cluster_scenario
def transactions_outlive_their_brokers(cluster: Cluster) -> None:
    """The broker that is stopped coordinates both transactions and their group, and leads one of the partitions."""
    cluster.prepare_coordinators()
    written = prepared(cluster, "outlived", [2, 1], [ABSENT, 1, 2])
    kept, lost = written
    group = cluster.names_by_coordinator("outliving", GROUP)[ABSENT]
    producers_of = {
        protocol: Producer(
            cluster,
            cluster.brokers[ABSENT],
            cluster.names_by_coordinator(f"outliving-v{protocol}", TRANSACTION)[ABSENT],
            protocol,
        )
        for protocol in (V1, V2)
    }
    cluster.brokers[ABSENT].wait_for_coordinator(group)
    for producer in producers_of.values():
        producer.begin()
        producer.write(*written)
        producer.commit_offsets(group, cluster.brokers[ABSENT], kept, producer.protocol)
    with cluster.stopped(ABSENT):
        for name in (OFFSETS, TRANSACTIONS):
            cluster.wait_for(name, [1, 2, 1], [{1, 2}] * 3)
        cluster.wait_for(lost.name, [1], [{1, 2}])
        lost.replicas = [1, 2]
        coordinator = cluster.brokers[1]
        coordinator.wait_for_coordinator(group)
        for producer in producers_of.values():
            producer.coordinator = coordinator
            prepare(coordinator, producer.name)
            describe(coordinator, "its state came along", producer.name)
        list_everywhere(cluster, "its state came along", *producers_of.values())
        read(cluster, "its state came along", *written)
        fetch_offsets(coordinator, "its state came along", group, kept)
        for producer in producers_of.values():
            producer.write(*written)
        read(cluster, "goes on", *written)
        for producer in producers_of.values():
            producer.end(committed=producer.protocol == V2)
            describe(coordinator, "ended", producer.name)
            read(cluster, f"{producer.name} ended", *written)
        fetch_offsets(coordinator, "ended", group, kept)
        for producer in producers_of.values():
            producer.write(*written)
    cluster.prepare_coordinators()
    for producer in producers_of.values():
        producer.coordinator = cluster.brokers[ABSENT]
        prepare(producer.coordinator, producer.name)
        describe(producer.coordinator, "back at the first coordinator", producer.name)
        producer.end(committed=True)
    read(cluster, "all ended", *written)
