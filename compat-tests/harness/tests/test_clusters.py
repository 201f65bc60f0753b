"""A cluster of either kind starts whole, misses who was killed, and is whole again when that is back on its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import apache_kafka
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import ApacheKafka
from harness.broker_cluster import BrokerCluster
from harness.broker_probe import brokers_known, free_port
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until


def check_cluster(cluster: BrokerCluster[ApacheKafka] | BrokerCluster[PybrokerProcess]) -> None:
    """Lose a broker and have it back."""
    with cluster:
        assert cluster.is_whole()
        assert len(set(cluster.pids)) == 3
        cluster.kill(0)
        second = cluster.brokers[1]
        assert cluster.bootstrap == second.bootstrap
        wait_until(lambda: brokers_known(second.host, second.port) == 2, "two brokers without the third")
        cluster.start_one(0)
        cluster.wait_until_whole()
        cluster.pause(2)
        # What was paused is stopped with the others.
    assert not cluster.pids


def check_more_listeners(make: type[PybrokerCluster] | type[ApacheCluster], directory: Path) -> None:
    """Each broker of two has a port of its own more."""
    ports = {1: free_port(), 2: free_port()}
    both = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    with make(directory, both, 2, more_listeners=lambda number: [f"MORE://127.0.0.1:{ports[number]}"]):
        wait_until(lambda: all(brokers_known("127.0.0.1", port) == 2 for port in ports.values()), "both brokers", 20)


@pytest.mark.slow
def test_a_pybroker_cluster_loses_a_broker_and_has_it_back(tmp_path: Path) -> None:
    check_cluster(PybrokerCluster(tmp_path))


@pytest.mark.jvm
@pytest.mark.skipif(apache_kafka.missing_requirement() is not None, reason="Apache Kafka is not there")
def test_an_apache_cluster_loses_a_broker_and_has_it_back(tmp_path: Path) -> None:
    check_cluster(ApacheCluster(tmp_path, {"broker.session.timeout.ms": "2000"}))


@pytest.mark.slow
def test_brokers_of_a_pybroker_cluster_listen_where_they_are_told_to(tmp_path: Path) -> None:
    check_more_listeners(PybrokerCluster, tmp_path)


@pytest.mark.jvm
@pytest.mark.skipif(apache_kafka.missing_requirement() is not None, reason="Apache Kafka is not there")
def test_brokers_of_an_apache_cluster_listen_where_they_are_told_to(tmp_path: Path) -> None:
    check_more_listeners(ApacheCluster, tmp_path)
