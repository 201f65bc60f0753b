"""The broker that the scenarios run against: pybroker, Apache Kafka, or whatever answers at an address.

Owns: which make was asked for, and starting brokers of that make that a test wants for itself: as many as the run has,
as one cluster.  The make and, where brokers run already, their addresses come from ``scripts/conformance`` by the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import ApacheKafka
from harness.broker_cluster import BrokerCluster
from harness.broker_probe import host_and_port
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess

from pybroker.testing import Broker

MAKE = "PYBROKER_CONFORMANCE_MAKE"
BOOTSTRAP = "PYBROKER_CONFORMANCE_BOOTSTRAP"
BROKERS = "PYBROKER_CONFORMANCE_BROKERS"
DATA_DIRECTORY = "PYBROKER_CONFORMANCE_DATA"

# What tests would wait for otherwise.
APACHE_KAFKA_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
# Of three brokers: whatever a scenario makes has a replica on each of them, and two have to have what is acknowledged.
CLUSTER_PROPERTIES = {
    **APACHE_KAFKA_PROPERTIES,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
CLUSTER_HEAP_MB = 384


class BrokerUnderTest(NamedTuple):
    """Where the brokers of the run listen, in the order of their ids; ``data_dirs`` is empty where their files are not
    at hand."""

    addresses: tuple[tuple[str, int], ...]
    data_dirs: tuple[Path, ...]

    @property
    def host(self) -> str:
        """The first broker's."""
        return self.addresses[0][0]

    @property
    def port(self) -> int:
        """The first broker's."""
        return self.addresses[0][1]

    @property
    def bootstrap(self) -> str:
        """All addresses, as clients take them."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)


class OwnBroker(Protocol):
    """A broker of a test's own, or several; ``bootstrap`` has all addresses."""

    @property
    def bootstrap(self) -> str: ...

    def restart(self) -> None:
        """Stop and start it, cleanly, where it was; several one after another, while the others serve."""

    def stop(self) -> None: ...


class _OwnPybroker:
    """In the process of the tests."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._settings, self._directory = settings, directory
        self._broker = self._start(0)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def restart(self) -> None:
        port = self._broker.port
        self.stop()
        self._broker = self._start(port)

    def stop(self) -> None:
        self._broker.stop()

    def _start(self, port: int) -> Broker:
        return Broker(self._settings, data_dir=self._directory, listen=f"127.0.0.1:{port}").start()


class _OwnKafka:
    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._broker = ApacheKafka(directory, {**APACHE_KAFKA_PROPERTIES, **settings}).start()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def restart(self) -> None:
        self.stop()
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()


class _OwnCluster:
    def __init__(self, cluster: BrokerCluster[ApacheKafka] | BrokerCluster[PybrokerProcess]) -> None:
        self._cluster = cluster.start()

    @property
    def bootstrap(self) -> str:
        return ",".join(self._cluster.bootstraps)

    def restart(self) -> None:
        for number in range(len(self._cluster.brokers)):
            self._cluster.stop_one(number)
            self._cluster.start_one(number)
            self._cluster.wait_until_whole()

    def stop(self) -> None:
        self._cluster.stop()


def brokers_of_the_run() -> int:
    """How many brokers the broker under test is."""
    return int(os.environ.get(BROKERS, "1"))


def make_cluster(
    make: str, directory: Path, brokers: int, settings: Mapping[str, str] | None = None
) -> BrokerCluster[ApacheKafka] | BrokerCluster[PybrokerProcess]:
    """Brokers of a make, ``pybroker`` or ``apache``, that are one cluster; not started yet."""
    properties = {**CLUSTER_PROPERTIES, **(settings or {})}
    if make == "apache":
        return ApacheCluster(directory, properties, brokers, heap_mb=CLUSTER_HEAP_MB)
    return PybrokerCluster(directory, properties, brokers)


def first_address(bootstrap: str) -> tuple[str, int]:
    """Host and port of the first of several addresses."""
    return host_and_port(bootstrap.partition(",")[0])


def running_broker() -> BrokerUnderTest | None:
    """The broker that was started before the tests, if one was."""
    bootstrap = os.environ.get(BOOTSTRAP)
    if not bootstrap:
        return None
    directories = os.environ.get(DATA_DIRECTORY, "")
    addresses = tuple(host_and_port(address) for address in bootstrap.split(","))
    return BrokerUnderTest(addresses, tuple(map(Path, filter(None, directories.split(os.pathsep)))))


def start_own_broker(directory: Path, settings: Mapping[str, str] | None = None) -> OwnBroker:
    """Start a broker of the run's make on a directory; as many as the run has."""
    make = os.environ.get(MAKE, "pybroker")
    if make not in ("pybroker", "apache"):
        pytest.skip("the suite owns no broker that it could start or stop")
    if brokers_of_the_run() > 1:
        return _OwnCluster(make_cluster(make, directory, brokers_of_the_run(), settings))
    if make == "pybroker":
        return _OwnPybroker(directory, settings or {})
    return _OwnKafka(directory, settings or {})
