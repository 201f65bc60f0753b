"""Who is asked and who asks: the broker under test, the clients, the machine; as plain values for the report.

Owns: what a broker of any make tells of itself, and the versions of what runs.  Facts that nobody tells are ``None``.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comparator.wire import Connection
from harness.apache_kafka import KAFKA_VERSION
from harness.machine import machine
from harness.waiting import PATIENCE_S

from conformance.all_clients import chosen
from conformance.broker_under_test import MAKE, running_broker
from conformance.client_folder import ClientFolder, all_applications, all_folders
from pybroker.extras import DISTRIBUTION
from pybroker.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
SOFTWARE = {"client_software_name": "conformance", "client_software_version": "1"}
# The first version that tells of features.
API_VERSIONS, TELLS_FEATURES, DESCRIBE_CLUSTER = 18, 3, 60
# What PyPI calls the libraries that run in the tests' own process.
DISTRIBUTIONS = {"kafka-python": "kafka-python", "librdkafka": "confluent-kafka", "aiokafka": "aiokafka"}


def all_facts() -> dict[str, Any]:
    """Everything, as the report takes it."""
    return {
        "broker": broker_facts(),
        "clients": client_facts(),
        "applications": application_facts(),
        **machine_facts(),
    }


def commit() -> str | None:
    """The checkout's commit, with a plus sign where files differ from it; ``None`` outside of a checkout."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except OSError:
        return None
    return told.stdout.strip() or None


def machine_facts() -> dict[str, str | None]:
    """The machine and the software that the clients and pybroker run on."""
    return {"machine": machine(), "python": platform.python_version(), "commit": commit()}


def client_facts() -> list[dict[str, Any]]:
    """The clients of this run: name, version, language, and why one of them cannot be run here."""
    folders = {folder.name: folder for folder in all_folders()}
    return [_client(name, folders.get(name)) for name in chosen()]


def application_facts() -> list[dict[str, Any]]:
    """The applications that are built of clients: name, version, language, and why one of them cannot be run here."""
    return [_client(folder.name, folder) for folder in all_applications()]


def _client(name: str, folder: ClientFolder | None) -> dict[str, Any]:
    if folder is None:
        distribution = DISTRIBUTIONS[name]
        told = version(distribution)
        return {
            "name": name,
            "version": told if distribution == name else f"{distribution} {told}",
            "language": "Python",
            "missing": None,
        }
    return {
        "name": name,
        "version": folder.version,
        "language": folder.language,
        "missing": folder.missing_requirement(),
    }


def broker_facts() -> dict[str, Any]:
    """The broker of this run; where each test process starts its own, one like those is started for a moment."""
    if (running := running_broker()) is not None:
        return describe_broker(os.environ.get(MAKE, "other"), (running.host, running.port))
    with Broker() as broker:
        return describe_broker("pybroker", (broker.host, broker.port))


def describe_broker(make: str, address: tuple[str, int]) -> dict[str, Any]:
    """Make, version, served keys, features and cluster of the broker that listens there."""
    versions = {"pybroker": version(DISTRIBUTION), "apache": KAFKA_VERSION}
    connection = Connection(address)
    try:
        connection.send("ApiVersions", 0, {})
        told = connection.receive("ApiVersions", 0)
        served = {api["api_key"]: (api["min_version"], api["max_version"]) for api in told["api_keys"]}
        return {
            "make": make,
            "version": versions.get(make),
            "keys": [{"key": key, "min": low, "max": high} for key, (low, high) in sorted(served.items())],
            "features": _features(connection, served),
            **_cluster(connection, served),
        }
    finally:
        connection.close()


def _features(connection: Connection, served: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """The finalized features by name."""
    if served.get(API_VERSIONS, (0, 0))[1] < TELLS_FEATURES:
        return {}
    connection.send("ApiVersions", TELLS_FEATURES, SOFTWARE)
    told = connection.receive("ApiVersions", TELLS_FEATURES)
    return {feature["name"]: feature["max_version_level"] for feature in told["finalized_features"]}


def _cluster(connection: Connection, served: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """Cluster id and number of brokers."""
    if DESCRIBE_CLUSTER not in served:
        return {"cluster_id": None, "brokers": None}
    connection.send("DescribeCluster", 0, {"include_cluster_authorized_operations": False})
    told = connection.receive("DescribeCluster", 0)
    return {"cluster_id": told["cluster_id"] or None, "brokers": len(told["brokers"])}
