"""``pybroker cluster``: brokers as processes of one command, and faults for them by name."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness.pybroker_process import COMMAND, Serving, serving
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from pybroker.cli.serve.cluster_state import Known, read_state, write_state
from pybroker.cli.serve.processes import start_time
from pybroker.cli.terminal.failure import CommandFailed
from tests.cli.command import CommandLine

CLI = CommandLine("127.0.0.1:1")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Serving]:
    """Three brokers, in ``tmp_path``."""
    command = [str(COMMAND), "cluster", "up", "--brokers", "3", "--port", "0", "--dev", "--data-dir", str(tmp_path)]
    with serving([*command, "--set", "pybroker.metadata.session.timeout.ms=1000"]) as served:
        yield served
        if served.process.poll() is None:
            assert served.stop(signal.SIGINT) == 0


def states(directory: Path) -> dict[str, str]:
    shown: list[dict[str, Any]] = CLI.json("cluster", "status", "--data-dir", str(directory))
    return {each["name"]: each["state"] for each in shown}


def control(directory: Path, *arguments: str) -> str:
    """The line that says what happened."""
    (line,) = CLI.lines("cluster", *arguments, "--data-dir", str(directory))
    return line


def test_clients_use_a_cluster_and_interrupt_ends_all_of_it(tmp_path: Path, cluster: Serving) -> None:
    processes = psutil.Process(cluster.process.pid).children()
    assert len(processes) == 3
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    producer.send("t", b"value").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    assert next(consumer).value == b"value"
    consumer.close()
    assert cluster.stop(signal.SIGINT) == 0
    assert not any(process.is_running() for process in processes)
    for number in (1, 2, 3):
        assert (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()
        assert (tmp_path / "logs" / f"broker-{number}.log").exists()
    assert b"no cluster runs" in CLI.run("cluster", "status", "--data-dir", str(tmp_path)).stderr


def test_brokers_are_killed_paused_resumed_and_restarted_by_name(tmp_path: Path, cluster: Serving) -> None:
    assert states(tmp_path) == dict.fromkeys(("broker-1", "broker-2", "broker-3"), "serving")
    assert control(tmp_path, "kill", "broker-2") == "broker-2 was killed"
    assert control(tmp_path, "pause", "3") == "broker-3 is paused"
    assert control(tmp_path, "pause", "3") == "broker-3 was paused before"
    assert states(tmp_path) == {"broker-1": "serving", "broker-2": "dead", "broker-3": "paused"}
    assert control(tmp_path, "restart", "broker-2") == "broker-2 serves again"
    assert control(tmp_path, "resume", "3") == "broker-3 goes on"
    assert control(tmp_path, "resume", "3") == "broker-3 was not paused"
    control(tmp_path, "restart", "1")
    assert states(tmp_path) == dict.fromkeys(("broker-1", "broker-2", "broker-3"), "serving")
    admin = KafkaAdminClient(bootstrap_servers=read_state(tmp_path).broker("2").address)
    wait_until(lambda: len(admin.describe_cluster()["brokers"]) == 3, "all are members again")
    admin.close()


@pytest.mark.parametrize("was_paused", [False, True], ids=["running", "paused"])
def test_stopped_broker_ends_cleanly_and_stays_down_until_it_is_restarted(
    tmp_path: Path, cluster: Serving, was_paused: bool
) -> None:
    if was_paused:
        control(tmp_path, "pause", "2")
    assert control(tmp_path, "stop", "2") == "broker-2 has stopped"
    assert (tmp_path / "broker-2" / ".kafka_cleanshutdown").exists()
    assert states(tmp_path) == {"broker-1": "serving", "broker-2": "stopped", "broker-3": "serving"}
    refused = CLI.run("cluster", "stop", "2", "--data-dir", str(tmp_path))
    assert (refused.returncode, refused.stderr) == (1, b"pybroker: broker-2 is not running\n")
    control(tmp_path, "restart", "2")
    assert states(tmp_path) == dict.fromkeys(("broker-1", "broker-2", "broker-3"), "serving")


def test_groups_work_in_a_cluster_of_fewer_brokers_than_internal_topics_have_replicas_by_default(
    tmp_path: Path,
) -> None:
    command = [str(COMMAND), "cluster", "up", "--brokers", "1", "--port", "0", "--dev", "--data-dir", str(tmp_path)]
    with serving(command) as served:
        producer = KafkaProducer(bootstrap_servers=served.bootstrap)
        producer.send("t", b"value").get(PATIENCE_S)
        producer.close()
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=served.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=1000 * PATIENCE_S,
        )
        assert next(consumer).value == b"value"
        consumer.close()
        assert served.stop(signal.SIGINT) == 0


def test_broker_that_is_not_registered_any_more_is_not_called_dead(tmp_path: Path, cluster: Serving) -> None:
    control(tmp_path, "stop", "3")
    control(tmp_path, "kill", "2")
    asked = CommandLine(read_state(tmp_path).broker("1").address)
    wait_until(lambda: asked.run("brokers", "unregister", "3").returncode == 0, "its end is known")
    assert states(tmp_path) == {"broker-1": "serving", "broker-2": "dead", "broker-3": "not registered"}
    control(tmp_path, "restart", "3")
    assert states(tmp_path)["broker-3"] == "serving"


def test_broker_that_has_not_begun_yet_is_starting() -> None:
    assert Known("broker-1", None, None, "", False).state == "starting"


def test_no_setting_of_all_brokers_is_an_argument_of_their_processes(tmp_path: Path) -> None:
    command = [str(COMMAND), "cluster", "up", "--brokers", "2", "--port", "0", "--dev", "--data-dir", str(tmp_path)]
    with serving([*command, "--set", "ssl.key.password=se=cret", "--set", "num.partitions=3"]) as served:
        arguments = [word for each in psutil.Process(served.process.pid).children() for word in each.cmdline()]
        assert arguments
        assert not any("cret" in word or "num.partitions" in word for word in arguments)
        CommandLine(served.bootstrap).ok("topics", "create", "t")
        (topic,) = CommandLine(served.bootstrap).json("topics", "describe", "t")
        assert topic["partition_count"] == 3
        assert served.stop(signal.SIGINT) == 0


def test_paused_broker_ends_with_the_others(tmp_path: Path, cluster: Serving) -> None:
    control(tmp_path, "pause", "1")
    assert cluster.stop(signal.SIGTERM) == 0


def test_second_cluster_on_the_same_directory_is_refused(tmp_path: Path, cluster: Serving) -> None:
    refused = CLI.run("cluster", "up", "--data-dir", str(tmp_path))
    assert refused.returncode == 1
    assert b"runs a cluster on" in refused.stderr


def misuse(directory: Path, *arguments: str) -> str:
    """What a cluster that must not come to be ends with, in one line; it leaves no directory."""
    refused = CLI.run("cluster", "up", "--port", "0", "--data-dir", str(directory), *arguments)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert not directory.exists()
    return " ".join(refused.stderr.decode().replace("│", "").split())


def test_directory_whose_path_a_broker_would_take_for_several_is_wrong_use(tmp_path: Path) -> None:
    assert "the path of a cluster's directory must have no comma" in misuse(tmp_path / "c,d")


def test_broker_that_cannot_start_ends_all_and_the_reason_is_the_last_line(tmp_path: Path) -> None:
    mistake = ("--set", "log.retention.ms=soon")
    refused = CLI.run("cluster", "up", "--brokers", "1", "--port", "0", *mistake, "--data-dir", str(tmp_path))
    assert refused.returncode == 1
    assert b"cluster | broker-1 ended with exit code 1 before it served" in refused.stdout
    reason = "Invalid value soon for configuration log.retention.ms: Not a number of type LONG"
    assert refused.stderr.decode() == f"pybroker: broker-1 did not start: {reason}\n"
    assert b"no cluster runs" in CLI.run("cluster", "status", "--data-dir", str(tmp_path)).stderr


def test_end_of_a_broker_is_told_among_the_logs(tmp_path: Path, cluster: Serving) -> None:
    control(tmp_path, "kill", "broker-2")
    assert cluster.process.stdout is not None
    assert any(line == "cluster | broker-2 was ended by SIGKILL\n" for line in cluster.process.stdout)


def test_unknown_broker_is_named_with_those_that_are_there(tmp_path: Path, cluster: Serving) -> None:
    refused = CLI.run("cluster", "kill", "broker-9", "--data-dir", str(tmp_path))
    assert refused.stderr == b"pybroker: there is no broker broker-9; there are broker-1, broker-2, broker-3\n"


def test_pid_that_another_process_has_now_is_not_signalled(tmp_path: Path) -> None:
    own = os.getpid()
    began = start_time(own)
    assert began is not None
    supervisor = Known("cluster up", own, began, "", True)
    write_state(tmp_path, supervisor, [Known("broker-1", own, began - 1, "", True)])
    state = read_state(tmp_path)
    assert state.broker("1").state == "dead"
    with pytest.raises(CommandFailed, match="not running"):
        state.broker("1").signal(signal.SIGKILL)
    write_state(tmp_path, supervisor._replace(began=began - 1), [])
    with pytest.raises(CommandFailed, match="does not run any more"):
        read_state(tmp_path)
    (tmp_path / "cluster.json").write_text(json.dumps({"brokers": 3}))
    with pytest.raises(CommandFailed, match="no cluster runs"):
        read_state(tmp_path)


@pytest.mark.parametrize("setting", ["advertised.listeners", "listeners", "log.dirs", "metadata.log.dir", "node.id"])
def test_setting_that_is_each_brokers_own_is_wrong_use_for_all(tmp_path: Path, setting: str) -> None:
    said = f"--set is for all brokers; each has its own {setting}, by --port and --data-dir"
    assert said in misuse(tmp_path / "cluster", "--set", f"{setting}=any")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("nonsense", "--set: expected KEY=VALUE, got 'nonsense'"),
        ("log.retenton.ms=1", "--set: unknown setting 'log.retenton.ms'; did you mean 'log.retention.ms'?"),
        ("leader.replication.throttled.rate=1", "can only be set while the broker runs"),
        ("pybroker.metadata.session.timeout.ms=soon", "pybroker.metadata.session.timeout.ms: 'soon' is no number"),
    ],
)
def test_setting_that_no_broker_takes_is_wrong_use_before_one_begins(tmp_path: Path, setting: str, reason: str) -> None:
    assert reason in misuse(tmp_path / "cluster", "--set", setting)
