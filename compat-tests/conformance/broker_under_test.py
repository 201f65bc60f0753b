"""The broker that the scenarios run against: pybroker, Apache Kafka, or whatever answers at an address.

Owns: which make was asked for, and starting brokers of that make that a test wants for itself.  The make and, where a
broker runs already, its address come from ``scripts/conformance`` by the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from harness.apache_kafka import ApacheKafka
from harness.broker_probe import host_and_port

from pybroker.testing import Broker

MAKE = "PYBROKER_CONFORMANCE_MAKE"
BOOTSTRAP = "PYBROKER_CONFORMANCE_BOOTSTRAP"
DATA_DIRECTORY = "PYBROKER_CONFORMANCE_DATA"

# What tests would wait for otherwise.
APACHE_KAFKA_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


class BrokerUnderTest(NamedTuple):
    """Where the broker of the run listens; ``data_dir`` is ``None`` where its files are not at hand."""

    host: str
    port: int
    data_dir: Path | None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


class OwnBroker(Protocol):
    """A broker of a test's own."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def port(self) -> int: ...

    def stop(self) -> None: ...


def running_broker() -> BrokerUnderTest | None:
    """The broker that was started before the tests, if one was."""
    bootstrap = os.environ.get(BOOTSTRAP)
    if not bootstrap:
        return None
    host, port = host_and_port(bootstrap)
    data_directory = os.environ.get(DATA_DIRECTORY)
    return BrokerUnderTest(host, port, Path(data_directory) if data_directory else None)


def start_own_broker(directory: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> OwnBroker:
    """Start a broker of the run's make on a directory, which may hold the data of an earlier one."""
    make = os.environ.get(MAKE, "pybroker")
    if make == "pybroker":
        return Broker(settings, data_dir=directory, listen=f"127.0.0.1:{port}").start()
    if make == "apache":
        return ApacheKafka(directory, {**APACHE_KAFKA_PROPERTIES, **(settings or {})}, port=port or None).start()
    pytest.skip("the suite owns no broker that it could start or stop")
