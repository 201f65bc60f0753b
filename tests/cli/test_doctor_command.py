"""``pybroker doctor``: each check says what it has found, and what to do where that is bad."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.broker_probe import free_port, refusing_port
from harness.pybroker_process import PybrokerProcess

from pybroker.cli.commands import cluster_checks, doctor
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.serve import host_checks
from pybroker.cli.serve.host_checks import host_findings, lock_holder
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.findings import Finding, Status
from pybroker.cli.terminal.output import Output, show_size
from pybroker.security.certificate_authority import write_certificates
from pybroker.testing import Broker
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.schema import Request, Response
from tests.cli.command import CommandLine
from tests.cli.scripted_broker import scripted_broker

PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
CHECKS = [*cluster_checks.REACHED, *cluster_checks.INSIDE]
HOST_CHECKS = ["data directory", "disk", "descriptors", "limits"]


def diagnosis(bootstrap: str, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and each finding by its check."""
    finished = CommandLine(bootstrap).run("doctor", *arguments, "--json")
    assert finished.stderr == b""
    found = json.loads(finished.stdout)
    return finished.returncode, {each["check"]: each for each in found}


def statuses(found: dict[str, dict[str, Any]]) -> list[str]:
    return [each["status"] for each in found.values()]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("keys") / "keys"
    write_certificates(directory, servers={"broker": ["127.0.0.1"]}, clients=["alice"])
    return directory


@pytest.fixture(scope="module")
def secured(keys: Path) -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
    }
    with Broker(settings, listen="SASL_SSL://127.0.0.1:0") as broker:
        yield broker


def login(keys: Path, password: str) -> list[str]:
    given = ("security.protocol=SASL_SSL", f"ssl.ca.location={keys / 'ca.pem'}", "sasl.mechanism=PLAIN")
    user = ("sasl.username=alice", f"sasl.password={password}")
    return [option for setting in (*given, *user) for option in ("-X", setting)]


def test_a_cluster_that_is_well_passes_every_check(cli: CommandLine, name: str) -> None:
    cli.ok("topics", "create", name, "-p", "2")
    exit_code, found = diagnosis(cli.bootstrap)
    assert exit_code == 0
    assert list(found) == CHECKS
    assert statuses(found) == ["ok", "ok", "skipped", *["ok"] * 9]
    assert "describe-configs" in found["rights"]["message"]  # as `pybroker acls` takes and prints it
    assert "metadata.version" in found["versions"]["message"]
    assert found["clock"]["message"].startswith("the clock of the active controller differs by ")
    assert all(each["advice"] is None for each in found.values())


def test_the_address_may_be_an_argument_and_a_line_is_for_each_check(cli: CommandLine) -> None:
    lines = CommandLine("127.0.0.1:1").lines("doctor", cli.bootstrap)
    assert [line.split("\t")[0] for line in lines] == ["CHECK", *CHECKS]


def test_what_comes_behind_a_failed_step_is_skipped() -> None:
    with refusing_port() as port:
        address = f"127.0.0.1:{port}"
        exit_code, found = diagnosis("elsewhere:1", address)
    assert exit_code == 1
    assert list(found) == CHECKS
    assert statuses(found) == ["ok", "failed", *["skipped"] * 10]
    assert found["tcp"]["message"] == f"{address} refuses the connection; probably no broker listens there"
    assert "listeners" in found["tcp"]["advice"]


def test_tls_and_a_login_are_looked_at(secured: Broker, keys: Path) -> None:
    exit_code, found = diagnosis(secured.bootstrap, *login(keys, "alice-secret"))
    assert exit_code == 0
    assert statuses(found) == ["ok"] * len(CHECKS)
    assert found["tls"]["message"].startswith("chain, dates and host name are right; the certificate of 127.0.0.1 ends")
    assert found["login"]["message"] == "alice logs in by PLAIN"
    exit_code, found = diagnosis(secured.bootstrap, *login(keys, "wrong"))
    assert exit_code == 1
    assert statuses(found) == ["ok", "ok", "ok", "ok", "failed", *["skipped"] * 7]
    assert "pybroker users list" in found["login"]["advice"]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("sasl.pasword=x", "unknown client setting; sasl.password?"),
        ("ssl.cipher.suites=x", "produce and consume alone heed this setting"),
    ],
)
def test_a_setting_that_it_does_not_heed_is_wrong_use(setting: str, told: str) -> None:
    finished = CommandLine("127.0.0.1:1").run("doctor", "-X", setting)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert told in re.sub(r"[│\s]+", " ", finished.stderr.decode())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=GSSAPI"], "serves produce and consume alone: GSSAPI"),
        (["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER"], "and consume alone: OAUTHBEARER"),
        (["security.protocol=SSL", "ssl.ca.location=/no/such.pem"], "/no/such.pem cannot be read"),
    ],
)
def test_settings_by_which_it_cannot_get_in_are_a_finding(settings: list[str], told: str) -> None:
    exit_code, found = diagnosis("127.0.0.1:1", *(option for each in settings for option in ("-X", each)))
    assert (exit_code, list(found)) == (1, ["settings", *CHECKS])
    assert statuses(found) == ["failed", *["skipped"] * len(CHECKS)]
    assert told in found["settings"]["message"]


def test_a_host_name_that_is_not_looked_at_is_a_warning(secured: Broker, keys: Path) -> None:
    exit_code, found = diagnosis(secured.bootstrap, *login(keys, "alice-secret"), "-X", "ssl.check.hostname=false")
    assert (exit_code, found["tls"]["status"]) == (0, "warning")
    assert found["tls"]["message"].startswith("chain and dates are right, the host name is not looked at; ")


@pytest.mark.parametrize("refused", [DescribeClusterRequest, MetadataRequest])
def test_a_broker_that_refuses_to_tell_of_the_cluster_fails(refused: type[Request]) -> None:
    login_is_asked_for = iter([True])

    def script(request: Request) -> Response:
        code = 0 if next(login_is_asked_for, False) or not isinstance(request, refused) else 31
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(
                throttle_time_ms=0, error_code=code, error_message=None, cluster_id="c", controller_id=1, brokers=[]
            )
        return MetadataResponse(brokers=[], controller_id=1, topics=[], error_code=code)

    with scripted_broker(script, (MetadataRequest, DescribeClusterRequest)) as address:
        exit_code, found = diagnosis(address)
    assert (exit_code, found["rights"]["status"]) == (1, "failed")
    assert found["rights"]["message"].endswith(" is refused: CLUSTER_AUTHORIZATION_FAILED")
    assert statuses(found)[6:] == ["skipped"] * 6


def unserved(_: Request) -> None:
    """A script for a broker that is asked for what it does not serve."""


def test_a_listener_that_serves_no_clients_is_a_finding() -> None:
    with scripted_broker(unserved, ()) as address:
        exit_code, found = diagnosis(address)
    assert exit_code == 1
    assert statuses(found) == ["ok", "ok", "skipped", "ok", "failed", *["skipped"] * 7]
    assert found["login"]["message"].startswith(f"{address} does not serve Metadata in a version that is known here")


def test_a_broker_that_says_nothing_of_the_cluster_is_a_finding() -> None:
    def script(_: Request) -> Response:
        return MetadataResponse(brokers=[], controller_id=1, topics=[])

    with scripted_broker(script, (MetadataRequest,)) as address:
        exit_code, found = diagnosis(address)
    assert (exit_code, list(found)) == (1, CHECKS)
    assert statuses(found) == ["ok", "ok", "skipped", "ok", "ok", "failed", *["skipped"] * 6]


def test_a_finding_is_shown_before_the_next_check_begins() -> None:
    shown = BytesIO()

    def findings() -> Iterator[Finding]:
        yield Finding("first", Status.OK, "well")
        assert shown.getvalue().endswith(b"first\tok\twell\t-\n")
        yield Finding("second", Status.FAILED, "ill", "rest")

    assert doctor._show(findings(), Output(stream=shown))
    assert shown.getvalue().endswith(b"second\tfailed\till\trest\n")


def test_an_advertised_address_that_is_not_reached_fails() -> None:
    listening = f"127.0.0.1:{free_port()}"
    with refusing_port() as elsewhere:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{elsewhere}"}
        with Broker(settings, listen=listening):
            exit_code, found = diagnosis(listening)
    assert exit_code == 1
    assert found["advertised addresses"]["status"] == "failed"
    assert f"127.0.0.1:{elsewhere} refuses the connection" in found["advertised addresses"]["message"]
    assert "advertised.listeners" in found["advertised addresses"]["advice"]
    for check in ("internal topics", "hanging transactions"):
        assert found[check]["status"] == "skipped"
        assert found[check]["message"] == "not checked, since advertised addresses failed"


# --- single checks ---------------------------------------------------------------------------------------------------


class Controller:
    """Who answers DescribeQuorum, ``ahead_ms`` before or behind this machine."""

    def __init__(self, ahead_ms: int, error_code: int = 0) -> None:
        self._ahead_ms, self._error_code = ahead_ms, error_code

    def ask(self, _request: object) -> Any:
        now_ms = int(time.time() * 1_000) + self._ahead_ms
        voter = SimpleNamespace(replica_id=1, last_caught_up_timestamp=now_ms)
        partition = SimpleNamespace(leader_id=1, current_voters=[voter])
        return SimpleNamespace(error_code=self._error_code, topics=[SimpleNamespace(partitions=[partition])])


@pytest.mark.parametrize(
    ("ahead_ms", "status"), [(0, Status.OK), (3_600_000, Status.WARNING), (-3_600_000, Status.WARNING)]
)
def test_a_clock_that_differs_is_a_warning(ahead_ms: int, status: Status) -> None:
    found = cluster_checks._clock(Controller(ahead_ms))  # type: ignore[arg-type]
    assert found.status is status
    (differs_ms,) = map(int, re.findall(r"differs by (\d+) ms", found.message))
    # Of an hour what the answer took on a busy machine is next to nothing.
    assert abs(abs(ahead_ms) - differs_ms) < 120_000


def test_a_clock_that_may_not_be_asked_for_is_skipped() -> None:
    found = cluster_checks._clock(Controller(0, 31))  # type: ignore[arg-type]
    assert (found.status, "CLUSTER_AUTHORIZATION_FAILED" in found.message) == (Status.SKIPPED, True)


def test_brokers_of_different_versions_are_a_warning() -> None:
    older, newer = (SimpleNamespace(versions={3: (0, top)}, features={"metadata.version": 7}) for top in (12, 13))
    found = cluster_checks._versions({1: older, 2: newer})  # type: ignore[dict-item]
    assert found.status is Status.WARNING
    same = cluster_checks._versions({1: older, 2: older})  # type: ignore[dict-item]
    assert same == Finding(
        "versions", Status.OK, "all brokers serve the same 1 API; levels of features: metadata.version 7"
    )


@pytest.mark.parametrize(
    ("leader", "in_sync", "status", "message"),
    [
        (1, [1, 2], Status.OK, "1 partition, all with a leader and all replicas, as far as this user may see"),
        (1, [1], Status.FAILED, "1 of 1 partitions are under-replicated: t-0"),
        (-1, [1], Status.FAILED, "1 of 1 partitions have no leader: t-0"),
    ],
)
def test_partitions_that_lack_something_fail(leader: int, in_sync: list[int], status: Status, message: str) -> None:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=[1, 2], isr_nodes=in_sync
    )
    found = cluster_checks._partitions([MetadataResponseTopic(error_code=0, name="t", partitions=[partition])])
    assert (found.status, found.message) == (status, message)


def test_too_few_brokers_for_internal_topics_are_a_warning_and_what_may_not_be_asked_is_skipped() -> None:
    def refused() -> str:
        raise CommandFailed("broker 1: CLUSTER_AUTHORIZATION_FAILED")

    assert cluster_checks._internal_topics(lambda: "").status is Status.OK
    found = cluster_checks._internal_topics(lambda: "1 broker is registered")
    assert (found.status, found.message) == (Status.WARNING, "1 broker is registered")
    assert cluster_checks._internal_topics(refused).status is Status.SKIPPED


def test_hanging_transactions_fail_and_what_may_not_be_asked_is_skipped() -> None:
    def refused() -> tuple[list[str], int]:
        raise CommandFailed("t-0: TOPIC_AUTHORIZATION_FAILED")

    assert cluster_checks._hanging(lambda: ([], 0)).status is Status.OK
    found = cluster_checks._hanging(lambda: ([f"t-{number}" for number in range(7)], 0))
    assert found.status is Status.FAILED
    assert found.message == (
        "readers of committed records are held back by 7 transactions: t-0, t-1, t-2, t-3, t-4 and 2 more"
    )
    assert cluster_checks._hanging(refused).status is Status.SKIPPED
    found = cluster_checks._hanging(lambda: ([], 3))
    assert (found.status, "3 partitions could not be looked at" in found.message) == (Status.WARNING, True)


def test_partitions_without_an_answer_are_counted_but_for_topics_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {Partition("led-by-nobody", 0): 5, Partition("gone", 0): 3}
    monkeypatch.setattr(doctor, "admin_client", nullcontext)
    monkeypatch.setattr(doctor, "find_hanging", lambda *_: ([], failed))
    assert doctor.hanging_partitions(ClientOptions("")) == ([], 1)


# --- a broker's own machine ------------------------------------------------------------------------------------------


def test_a_data_directory_tells_how_its_broker_is(tmp_path: Path) -> None:
    broker = PybrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        data = broker.data_directory
        _, found = diagnosis("127.0.0.1:1", "--data-dir", str(data))
        assert list(found) == HOST_CHECKS
        assert found["data directory"]["message"] == f"{data} is used by process {broker.pid}"
        assert f"process {broker.pid} may open" in found["descriptors"]["message"]
        assert lock_holder(data / ".lock") == broker.pid, "looking did not take the lock away"
        broker.kill()
        assert next(host_findings(data)).status is Status.WARNING
        broker.start()
        broker.stop()
    finally:
        broker.kill()
    assert next(host_findings(data)).message == f"{data} is of a broker that stopped cleanly"


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("missing", Status.FAILED, "does not exist"),
        ("file", Status.FAILED, "is no directory"),
        ("foreign", Status.WARNING, "has files and no meta.properties"),
        ("empty", Status.OK, "is empty"),
    ],
)
def test_a_directory_that_is_no_brokers_is_told(tmp_path: Path, name: str, status: Status, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "photo.jpg").touch()
    first, *others = host_findings(tmp_path / name)
    assert (first.status, message in first.message) == (status, True)
    assert all((each.status is Status.SKIPPED) is (status is Status.FAILED) for each in others)


def test_a_directory_that_cannot_be_looked_at_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/data")

    monkeypatch.setattr(shutil, "disk_usage", refused)
    _, disk, *others = host_findings(tmp_path)
    assert (disk.status, disk.message) == (Status.FAILED, "/data cannot be looked at: Permission denied")
    assert all(each.status is not Status.SKIPPED for each in others)
    monkeypatch.setattr(Path, "exists", refused)
    first, *others = host_findings(tmp_path)
    assert (first.status, first.message) == (Status.FAILED, "/data cannot be looked at: Permission denied")
    assert all(each.status is Status.SKIPPED for each in others)


@pytest.mark.parametrize(
    ("free", "status"), [(200 << 30, Status.OK), (50 << 30, Status.WARNING), (1 << 20, Status.FAILED)]
)
def test_a_disk_without_room_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: Status
) -> None:
    usage = SimpleNamespace(total=1 << 40, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = host_checks._disk(tmp_path)
    assert found.status is status
    assert (show_size(free) or "") in found.message


@pytest.mark.parametrize(
    ("limit", "open_files", "status"),
    [(100_000, 50, Status.OK), (1_024, 50, Status.WARNING), (100_000, 90_000, Status.FAILED), (-1, 0, Status.OK)],
)
def test_too_few_descriptors_are_told(
    monkeypatch: pytest.MonkeyPatch, limit: int, open_files: int, status: Status
) -> None:
    monkeypatch.setattr(host_checks, "_limit_of", lambda *_: limit)
    monkeypatch.setattr(host_checks, "_open_files", lambda _: open_files)
    assert host_checks._descriptors(1, 100).status is status


def test_a_limit_of_the_size_of_files_below_a_segments_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"Max file size": 1 << 20, "Max address space": -1}
    monkeypatch.setattr(host_checks, "_limit_of", lambda _, name, __: limits[name])
    assert host_checks._limits(None, 1).status is Status.FAILED
    limits.update({"Max file size": -1, "Max address space": 1 << 33})
    assert host_checks._limits(None, 1).status is Status.WARNING
    limits["Max address space"] = -1
    assert host_checks._limits(None, 1).status is Status.OK
    assert host_checks._limits(None, 1 << 30).status is Status.WARNING, "more segments than maps"


def test_a_lock_is_asked_for_in_the_layout_of_its_system() -> None:
    of_linux = b"\1\0\0\0\0\0\0\0" + bytes(16) + (4242).to_bytes(4, "little") + bytes(4)
    of_macos = bytes(16) + (4242).to_bytes(4, "little") + b"\1\0\0\0"
    assert host_checks.LOCK_OF_LINUX.unpacked(of_linux) == (1, 4242)
    assert host_checks.LOCK_OF_MACOS.unpacked(of_macos) == (1, 4242)
    assert host_checks.LOCK_OF_LINUX.packed(1) == b"\1\0" + bytes(30)
    assert host_checks.LOCK_OF_MACOS.packed(3) == bytes(20) + b"\3\0\0\0"
