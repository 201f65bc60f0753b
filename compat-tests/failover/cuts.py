"""How long partitions stand still when two brokers are cut from each other: ``python -m failover.cuts``, as root.

Three brokers with their own default settings and ZooKeeper, each in a network namespace (``histories.hosts``), a topic
of three partitions with each broker as the leader of one, ``min.insync.replicas`` 2.  librdkafka writes to each
partition with acks=all every 20 ms.  What a cut-off host sends is lost without a word.  The result is a line for each
cut: the longest time without an acknowledgement, by partition, named after who led it when the cut began.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until
from histories.hosts import Namespaces, enter
from histories.stores import ZooKeeperServers, names

TOPIC: Final = "cuts"
PORT: Final = 9092
BROKERS: Final = (1, 2, 3)
SEND_EVERY_S: Final = 0.02
COMES_BACK_S: Final = 120.0
CUTS: Final = ("both ways", "from the controller", "to the controller", "other brokers")


class PlacedBroker(PybrokerProcess):
    """A broker in its namespace."""

    def __init__(self, directory: Path, number: int, hosts: Namespaces, url: str) -> None:
        self._hosts, self._number = hosts, number
        super().__init__(directory, {}, ["--set", f"node.id={number}", "--metadata", url], PORT)
        self.host = hosts.address(f"broker{number}")

    def _command(self) -> list[str]:
        return [*self._hosts.command(f"broker{self._number}"), *super()._command()]

    def start(self, timeout_s: float = 60.0) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return super().start(timeout_s)


class Writer:
    """Writes steadily, and knows the longest pause of each partition since it was asked last."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self.begin()

    def begin(self) -> None:
        now = time.monotonic()
        self._last = dict.fromkeys(range(len(BROKERS)), now)
        self.longest_s = dict.fromkeys(range(len(BROKERS)), 0.0)

    def _note(self, partition: int) -> None:
        now = time.monotonic()
        self.longest_s[partition] = max(self.longest_s[partition], now - self._last[partition])
        self._last[partition] = now

    def _told(self, partition: int) -> Callable[[Any, Any], None]:
        return lambda error, _: None if error else self._note(partition)

    def write_for(self, seconds: float) -> None:
        """Write for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for partition in range(len(BROKERS)):
                with contextlib.suppress(BufferError):
                    self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._told(partition))
            self._producer.poll(SEND_EVERY_S)

    def pauses_s(self) -> dict[int, float]:
        """The longest pauses, those that last still among them."""
        now = time.monotonic()
        return {each: max(longest, now - self._last[each]) for each, longest in self.longest_s.items()}


@contextlib.contextmanager
def cluster(directory: Path, hosts: Namespaces) -> Iterator[str]:
    """Three brokers and their store; the bootstrap addresses."""
    store = ZooKeeperServers(directory / "zookeeper", 1, hosts)
    with contextlib.ExitStack() as stack:
        stack.callback(store.kill)
        store.start()
        brokers = [PlacedBroker(directory / str(number), number, hosts, store.url) for number in BROKERS]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        yield ",".join(f"{broker.host}:{PORT}" for broker in brokers)


def leaders(admin: AdminClient) -> tuple[int, list[int], bool]:
    """The controller, each partition's leader, and whether all replicas are in sync."""
    found = admin.list_topics(TOPIC, timeout=10)
    partitions = [found.topics[TOPIC].partitions[each] for each in sorted(found.topics[TOPIC].partitions)]
    in_sync = len(partitions) == len(BROKERS) and all(len(each.isrs) == len(BROKERS) for each in partitions)
    return found.controller_id, [each.leader for each in partitions], in_sync


def all_lead(admin: AdminClient) -> bool:
    """Whether each broker leads a partition, and all are in sync."""
    controller, found, in_sync = leaders(admin)
    return in_sync and controller in BROKERS and sorted(found) == sorted(BROKERS)


def measure(hosts: Namespaces, admin: AdminClient, writer: Writer, cut: str, lasts_s: float) -> str:
    """One cut, and the line of the result."""
    controller, found, _ = leaders(admin)
    one, other = [each for each in BROKERS if each != controller]
    ways = [(one, other), (other, one)]
    if cut != "other brokers":
        ways = [(controller, one), (one, controller)]
        ways = ways[:1] if cut == "from the controller" else ways[1:] if cut == "to the controller" else ways
    writer.write_for(2)
    writer.begin()
    for sender, receiver in ways:
        hosts.block(f"broker{sender}", f"broker{receiver}")
    writer.write_for(lasts_s)
    pauses = writer.pauses_s()
    for sender, receiver in ways:
        hosts.unblock(f"broker{sender}", f"broker{receiver}")
    by_leader = {leader: pauses[partition] for partition, leader in enumerate(found)}
    who = {controller: "controller", one: "cut-off broker", other: "other cut-off" if cut == CUTS[3] else "third"}
    return f"{cut} {lasts_s:.0f} s: " + ", ".join(f"{who[each]} {by_leader[each]:.1f} s" for each in who)


def come_back(admin: AdminClient, writer: Writer) -> None:
    """Until all is as it was: preferred leaders are elected by request, since brokers do so every five minutes."""
    from confluent_kafka import ElectionType, TopicPartition

    def is_back() -> bool:
        writer.write_for(0.5)
        if leaders(admin)[2]:
            asked = [TopicPartition(TOPIC, partition) for partition in range(len(BROKERS))]
            with contextlib.suppress(Exception):
                admin.elect_leaders(ElectionType.PREFERRED, asked).result(10)
        return all_lead(admin)

    wait_until(is_back, "the cluster is whole again", COMES_BACK_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="failover.cuts", description=__doc__)
    parser.add_argument("--cut", action="append", choices=CUTS, help="which cuts; all when unset")
    parser.add_argument("--lasts", type=float, default=40.0, help="seconds of each cut")
    options = parser.parse_args()
    hosts = enter([*(f"broker{number}" for number in BROKERS), *names(1)], os.environ)
    try:
        with tempfile.TemporaryDirectory(prefix="cuts-") as name, cluster(Path(name), hosts) as bootstrap:
            admin, writer = AdminClient({"bootstrap.servers": bootstrap}), Writer(bootstrap)
            assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
            settings = {"min.insync.replicas": "2"}
            topic = NewTopic(TOPIC, len(BROKERS), replica_assignment=assignment, config=settings)
            admin.create_topics([topic])[TOPIC].result(30)
            for cut in options.cut or CUTS:
                come_back(admin, writer)
                sys.stdout.write(measure(hosts, admin, writer, cut, options.lasts) + "\n")
                sys.stdout.flush()
    finally:
        hosts.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
