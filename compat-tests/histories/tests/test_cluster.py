"""Clusters under faults: hosts that can be cut off, what cannot be had is said, mistakes are plantable, and a run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from aiokafka.protocol.commit import OffsetFetchRequest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants.mutant import check_applicable

from histories.aiokafka_clients import see_errors_of_groups
from histories.checker import check
from histories.cluster import Cluster, properties_of_a_cluster
from histories.cluster_nemesis import KINDS, ClusterNemesis, missing
from histories.cluster_run import SQLITE, ClusterPlan, started
from histories.history import Journal, read_events
from histories.hosts import (
    CLIENTS,
    NAMESPACES,
    PREFIX,
    Loopback,
    Namespaces,
    remove_those_of_the_dead,
    why_no_namespaces,
)
from histories.mistakes import MISTAKES
from histories.nemesis import CLIENT_KINDS, Fault
from histories.stores import SqliteFile
from histories.workload import CAST, Workload
from pybroker.cluster.failure_detection.liveness import LIVENESS_OVERLOAD_FACTOR
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.security.client_access import ClientAccess

NO_NAMESPACES = why_no_namespaces()
needs_namespaces = pytest.mark.skipif(NO_NAMESPACES is not None, reason=f"no network namespaces: {NO_NAMESPACES}")
LISTEN = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind((sys.argv[1], 9000))
heard.settimeout(float(sys.argv[2]))
print("listening", flush=True)
try:
    print(heard.recv(10).decode(), flush=True)
except TimeoutError:
    print("nothing", flush=True)
"""
SEND = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"word", (sys.argv[1], 9000))
"""


@needs_namespaces
def test_a_run_keeps_what_lies_on_its_disks_and_leaves_a_directory_that_can_be_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cluster = Cluster(run, 3, Loopback(), SqliteFile(run / "metadata.db"), {}, own_disks=True)
    for broker in cluster.brokers.values():
        broker.mount_disk()
        (broker.data_directory / "log").write_bytes(b"%d" % broker.number)
    cluster.end_disks()
    assert [path.read_bytes() for path in sorted(run.glob("*/data-kept/log"))] == [b"1", b"2", b"3"]
    shutil.rmtree(run)


@pytest.fixture
def hosts() -> Iterator[Namespaces]:
    made = Namespaces(f"{PREFIX}-{os.getpid()}", ["one", "two"])
    made.make()
    yield made
    made.close()


def hears(hosts: Namespaces, sender: str, receiver: str, patience_s: float = 5) -> bool:
    """Whether a datagram gets from one host to the other."""
    address = hosts.address(receiver)
    listen = [*hosts.command(receiver), sys.executable, "-c", LISTEN, address, str(patience_s)]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        subprocess.run([*hosts.command(sender), sys.executable, "-c", SEND, address], check=True)
        return listener.stdout.readline() == "word\n"


@needs_namespaces
def test_a_link_that_is_cut_loses_what_goes_one_way_alone(hosts: Namespaces) -> None:
    assert hears(hosts, "one", "two")
    hosts.block("one", "two")
    hosts.block("one", "two")
    assert not hears(hosts, "one", "two", patience_s=0.5)
    assert hears(hosts, "two", "one")
    assert hears(hosts, CLIENTS, "two")
    hosts.unblock("one", "two")
    assert not hears(hosts, "one", "two", patience_s=0.5), "another fault has cut it, too"
    hosts.unblock("one", "two")
    assert hears(hosts, "one", "two")


@needs_namespaces
def test_a_narrow_link_is_wide_again_when_it_is_mended(hosts: Namespaces) -> None:
    hosts.slow("one", 64)
    shown = ["tc", "-n", f"{PREFIX}-{os.getpid()}-one", "qdisc", "show", "dev", "eth0"]
    assert "tbf" in subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert hears(hosts, "two", "one")
    hosts.quicken("one")
    assert "tbf" not in subprocess.run(shown, capture_output=True, text=True, check=True).stdout


@needs_namespaces
def test_namespaces_of_a_run_that_is_dead_are_removed_and_no_others(hosts: Namespaces) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left_behind = Namespaces(f"{PREFIX}-{ended.pid}", ["one"])
    left_behind.make()
    remove_those_of_the_dead()
    assert list(NAMESPACES.glob(f"{PREFIX}-{ended.pid}-*")) == []
    assert len(list(NAMESPACES.glob(f"{PREFIX}-{os.getpid()}-*"))) == 3


def test_namespaces_do_not_see_the_machine_s_network() -> None:
    """What is not made needs no root, and has addresses of its own all the same."""
    hosts = Namespaces("unmade", ["one", "two"])
    addresses = {hosts.address(name) for name in (CLIENTS, "one", "two")}
    assert len(addresses) == 3
    assert all(socket.inet_aton(address)[0] == 10 for address in addresses)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_is_planted_fits_the_code(name: str) -> None:
    check_applicable(MISTAKES[name])


def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, 3, Loopback(), SqliteFile(tmp_path / "metadata.db"), {})


@given(seed=st.integers(), seconds=st.floats(1, 1_000))
@settings(database=None, deadline=None)
def test_faults_of_a_cluster_are_mended_before_the_end(
    tmp_path_factory: pytest.TempPathFactory, seed: int, seconds: float
) -> None:
    nemesis = ClusterNemesis(cluster(tmp_path_factory.getbasetemp()), KINDS, every_s=2)
    faults = [fault for fault in nemesis.plan(Random(seed), seconds) if fault.kind not in CLIENT_KINDS]
    assert len(faults) == round(0.4 * seconds)
    assert all(fault.at_s + fault.lasts_s <= 0.92 * seconds + 1e-6 for fault in faults)


def test_a_broker_is_paused_for_less_time_than_the_others_wait_for_it() -> None:
    timeout_ms: int = BROKER_SETTINGS["pybroker.liveness.timeout.ms"].default
    assert "pybroker.liveness.timeout.ms" not in properties_of_a_cluster({})
    assert 1_000 * KINDS["pause"].lasts_s[1] < timeout_ms * LIVENESS_OVERLOAD_FACTOR


def test_what_cannot_fail_here_is_said(tmp_path: Path) -> None:
    lacks = missing(cluster(tmp_path))
    assert {"links", "disks", "ZooKeeper", "links and ZooKeeper"} <= lacks.keys()
    assert all(kind.needs in {"", *lacks} for kind in KINDS.values())


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (ClusterPlan(2, SQLITE, 1, None, 8, None), "a cluster has 3 brokers or more"),
        (ClusterPlan(3, SQLITE, 1, ["kill", "flood"], 8, None), "no faults: flood"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(plan: ClusterPlan, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan.check()


# One of each kind: the processes of all take longer to start than a short run lasts.
FEW = list({(part.role, part.client.producer, part.client.isolation, part.protocol): part for part in CAST}.values())


def test_a_broker_that_ends_because_its_store_is_away_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = cluster(tmp_path)
    nemesis = ClusterNemesis(brokers, ["kill"], every_s=1)
    answers = [RuntimeError("cannot open the metadata store"), None]

    def start(_timeout_s: float) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(brokers.brokers[1], "start", start)
    nemesis._start(brokers.brokers[1])
    assert answers == []
    nemesis.close()


def test_aiokafka_is_told_a_group_s_error_where_it_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a coordinator that moves makes it lose its place, and the checker blames the broker for a lost commit."""
    monkeypatch.setattr(OffsetFetchRequest, "_CLASSES", OffsetFetchRequest._CLASSES)  # and as it was afterwards
    see_errors_of_groups()
    assert OffsetFetchRequest("group", []).prepare({9: (1, 10)}).API_VERSION == 1


@pytest.mark.slow
def test_a_broker_that_is_forgotten_comes_back_as_a_new_one(tmp_path: Path) -> None:
    with started(ClusterPlan(3, SQLITE, 1, ["forget"], 8, None), Loopback(), tmp_path, print) as (brokers, nemesis):
        journal = Journal(tmp_path / "faults.journal")
        mend = nemesis.strike(Fault(0, "forget"), journal, Random(1))
        assert mend is not None
        mend()
        nemesis.come_to_rest()
        journal.close()
        struck, _ = read_events(tmp_path / "faults.journal")
        (whom,) = struck.value["whom"]
        assert not brokers.unregister(whom), "it is registered, and lives"


@pytest.mark.slow
@pytest.mark.alone
def test_a_history_of_a_cluster_with_kills_has_no_anomaly(tmp_path: Path) -> None:
    plan = ClusterPlan(3, SQLITE, 1, ["kill"], every_s=5, mistake=None)
    with started(plan, Loopback(), tmp_path, print) as (brokers, nemesis):
        history = Workload(
            tmp_path, ClientAccess(brokers.bootstrap), nemesis, seconds=15, seed=20, rest_s=0.2, cast=FEW
        ).run()
    report = check(read_events(history))
    assert report.anomalies == {}, f"{report.examples}; the history is {history}"
    happened = report.statistics
    assert happened["faults of the cluster"] > 0
    assert happened["transactions committed"] > 0
    assert happened["records read to the end"] >= happened["writes acknowledged"] > 0
