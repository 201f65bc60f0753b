"""``pybroker serve --workers``: several brokers as one command, one address, one signal."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from harness.process_pause import pause, resume
from harness.pybroker_process import COMMAND, Serving, serving
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cli.serve import supervisor as supervisor_module
from pybroker.cli.serve.hidden_arguments import in_environment, take_from_environment
from pybroker.cli.serve.serve_command import build_parser
from pybroker.cli.serve.supervisor import Member, Supervisor
from pybroker.cli.serve.workers import METADATA_FILE, _own_arguments, require_ports_apart, shifted
from pybroker.cluster.store.sqlite.shared_sqlite_worker import Writer, is_locked, read_writer
from pybroker.config.broker import BrokerConfig
from pybroker.config.schema import ConfigError
from pybroker.storage.dirs.start_rollback import LOCK_FILE
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient

# Said by a worker that a busy machine keeps from running, and no fault of its own.
STOOD_STILL = "this broker stood still; clients wait until it knows what it has missed"
TAKEN = "Address already in use; end what listens there, or choose another port"

TOPIC_RESOURCE = 2
BROKER = 4
ALTERATIONS_MAX = 3_000


@contextmanager
def workers(data_dir: Path, count: int | str = 2, *arguments: str) -> Iterator[tuple[Serving, list[psutil.Process]]]:
    """The command, and its workers' processes."""
    command = [str(COMMAND), "serve", "--workers", str(count), "--data-dir", str(data_dir), "--dev", *arguments]
    listen = () if "--listen" in arguments else ("--listen", "127.0.0.1:0")
    with (
        open(data_dir.parent / "stderr.log", "w") as stderr,
        serving([*command, *listen, "--set", "pybroker.metadata.session.timeout.ms=1000"], stderr) as served,
    ):
        yield served, psutil.Process(served.process.pid).children()


def write(bootstrap: str, count: int) -> None:
    """Values into all partitions of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("t", b"%d" % number, partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def read(bootstrap: str, count: int) -> list[int]:
    """As many values of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", partition, OFFSET_BEGINNING) for partition in range(4)])
    values: list[int] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            values.append(int(message.value() or b""))
    consumer.close()
    return sorted(values)


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_workers_are_one_cluster_behind_one_address_and_sigterm_stops_all(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, "--set", "num.partitions=4") as (served, processes):
        write(served.bootstrap, 20)
        assert read(served.bootstrap, 20) == list(range(20))
        assert served.stop() == 0
        assert all(map(is_gone, processes))
    for number in (0, 1):
        directory = tmp_path / "data" / f"worker-{number}"
        assert (directory / ".kafka_cleanshutdown").exists()
        assert f"node.id={number + 1}" in (directory / "meta.properties").read_text()
        assert list(directory.glob("t-*"))
        assert list(directory.glob("__consumer_offsets-*")), "what the group has committed has as many replicas"


def test_no_setting_and_no_user_of_all_workers_is_an_argument_of_their_processes(tmp_path: Path) -> None:
    secrets = ("--set", "ssl.key.password=se=cret", "--add-scram", "SCRAM-SHA-256=[name=alice,password=alices-secret]")
    with workers(tmp_path / "data", 2, "--set", "num.partitions=4", *secrets) as (served, processes):
        arguments = [word for process in processes for word in process.cmdline()]
        assert "--data-dir" in arguments
        assert not any("cret" in word or "num.partitions" in word for word in arguments)
        with WireClient((served.host, served.port)) as client:
            users = client.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
            broker = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
            (told,) = client.ask(DescribeConfigsRequest(resources=[broker], include_synonyms=False), 4).results
    assert [each.user for each in users] == ["alice"]
    values = {each.name: (each.value, each.is_sensitive) for each in told.configs}
    assert (values["num.partitions"], values["ssl.key.password"]) == (("4", False), (None, True))


def test_arguments_that_were_handed_over_unseen_come_in_front_and_are_not_handed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed = in_environment(["--set=a=b c", "--add-scram=ü"])
    for name, value in handed.items():
        monkeypatch.setenv(name, value)
    assert take_from_environment() == ["--set=a=b c", "--add-scram=ü"]
    assert not handed.keys() & os.environ.keys()
    assert take_from_environment() == []


def test_worker_that_dies_is_started_again_on_its_own_data(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, "--set", "num.partitions=4") as (served, processes):
        write(served.bootstrap, 20)
        former = {process.pid for process in processes}
        processes[1].kill()
        command = psutil.Process(served.process.pid)
        wait_until(lambda: {each.pid for each in command.children()} - former, "another process in its place")
        assert read(served.bootstrap, 20) == list(range(20))
        assert served.stop() == 0
    assert "was ended by SIGKILL" in (tmp_path / "stderr.log").read_text()


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with workers(tmp_path / "data") as (served, processes):
        served.process.kill()
        wait_until(lambda: all(map(is_gone, processes)), "the workers end")


@pytest.mark.slow
def test_workers_start_again_at_once_after_their_supervisor_was_killed(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, "--set", "num.partitions=4") as (served, _):
        write(served.bootstrap, 20)
        served.process.kill()
        served.process.wait()
        with workers(tmp_path / "data", 2, "--set", "num.partitions=4") as (again, _):
            assert read(again.bootstrap, 20) == list(range(20))
            assert again.stop() == 0


HOLDER = """
    import fcntl, sys
    file = open(sys.argv[1], "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""
NEEDS_THE_LOCK = """
    import fcntl, signal, sys
    fcntl.lockf(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("pybroker ready on 127.0.0.1:1", flush=True)
    signal.pause()
"""


def test_broker_whose_data_another_one_has_still_is_started_when_that_one_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = str(tmp_path / LOCK_FILE)
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    member = Member("worker 0", [sys.executable, "-c", textwrap.dedent(NEEDS_THE_LOCK), lock], data_dirs=[tmp_path])
    ready: list[str] = []

    def stop() -> None:
        ready.append(member.address)
        os.kill(os.getpid(), signal.SIGTERM)

    async def scenario() -> int:
        running = asyncio.ensure_future(Supervisor([member], "zookeeper://nowhere", 6_000, restarts=True).run(stop))
        while "worker 0 waits" not in caplog.text and not running.done():
            await asyncio.sleep(0.01)
        holder.communicate()
        return await running

    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert asyncio.run(scenario()) == 0
    assert ready == ["127.0.0.1:1"]


def test_worker_i_has_the_port_plus_i_and_a_port_in_use_ends_all(tmp_path: Path) -> None:
    assert shifted("PLAINTEXT://:9092", 2) == "PLAINTEXT://:9094"
    assert shifted("[::1]:9092", 1) == "[::1]:9093"
    assert shifted("127.0.0.1:0", 1) == "127.0.0.1:0"
    # Of an address that no other test listens on, so that the port before the taken one is free.
    with socket.create_server(("127.0.0.3", 0)) as taken:
        port = taken.getsockname()[1]
        listen = ("--listen", f"127.0.0.3:{port - 1}")
        done = subprocess.run(
            [str(COMMAND), "serve", "--workers", "2", "--data-dir", str(tmp_path / "data"), *listen],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.3:{port}: {TAKEN}" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("addresses", "apart"),
    [
        (["127.0.0.1:9092", "127.0.0.1:9093"], False),
        (["PLAINTEXT://:9094", "SASL_SSL://127.0.0.1:9092"], False),
        (["A://[::]:9092", "B://[::1]:9094"], False),
        (["localhost:9092", "127.0.0.1:9093"], False),
        (["no..name:9092", "127.0.0.1:9093"], True),
        (["127.0.0.1:9092", "127.0.0.1:9095"], True),
        (["127.0.0.1:9092", "127.0.0.2:9093"], True),
        (["127.0.0.1:0", "127.0.0.1:0"], True),
    ],
)
def test_listeners_of_a_host_are_further_apart_than_there_are_workers(addresses: list[str], apart: bool) -> None:
    if apart:
        require_ports_apart(addresses, 3)
    else:
        with pytest.raises(ConfigError, match="must be at least 3 apart"):
            require_ports_apart(addresses, 3)


def test_listeners_that_are_too_close_for_the_workers_are_told_in_a_line_before_anything_starts(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    listen = [word for port in (9092, 9093) for word in ("--listen", f"127.0.0.1:{port}")]
    command = [str(COMMAND), "serve", "--workers", "2", "--data-dir", str(data_dir), *listen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("pybroker: 127.0.0.1:9092 and 127.0.0.1:9093 are too close for 2 workers")
    assert not data_dir.exists()


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_worker_i_has_the_node_id_plus_i_by_whichever_name_a_file_gives_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=7\n")
    config = BrokerConfig.load(config_file=str(file), settings=[], listen=[], data_dir=str(tmp_path), dev=False)
    options = build_parser().parse_args(["--config", str(file), *_own_arguments(config, [], 2)])
    own = BrokerConfig.load(
        config_file=options.config, settings=options.settings, listen=[], data_dir=options.data_dir, dev=False
    )
    assert (own.node_id, own.get_int("broker.id")) == (9, 9)


def test_directory_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    command = [str(COMMAND), "serve", "--workers", "2", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds the data of a single broker" in done.stderr


STOPPED_WRITER = """
    import json, os, signal, sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    open(sys.argv[1] + "-writer", "w").write(json.dumps((os.getpid(), 1, 7)).ljust(64))
    print("pybroker ready on 127.0.0.1:1", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("holds_the_lock", [True, False])
def test_only_a_process_that_was_stopped_in_the_middle_of_a_write_is_killed(
    tmp_path: Path, holds_the_lock: bool
) -> None:
    program = textwrap.dedent(STOPPED_WRITER)
    if not holds_the_lock:
        program = program.replace("BEGIN IMMEDIATE", "PRAGMA user_version")
    database = tmp_path / "metadata.db"

    async def scenario() -> int | None:
        member = Member("broker-1", [sys.executable, "-c", program, str(database)])
        supervisor = Supervisor([member], f"sqlite://{database}", 200, restarts=False)
        running = asyncio.ensure_future(supervisor.run(lambda: None))
        for _ in range(200 if holds_the_lock else 20):
            await asyncio.sleep(0.05)
            if member.exit_code is not None:
                break
        code = member.exit_code
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        return code

    assert asyncio.run(scenario()) == (-signal.SIGKILL if holds_the_lock else None)


DEAF = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("pybroker ready on 127.0.0.1:1", flush=True)
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("patience_s", [0.2, 120.0])
def test_broker_that_does_not_stop_is_killed_by_a_second_signal_or_after_the_patience_and_it_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, patience_s: float
) -> None:
    monkeypatch.setattr(supervisor_module, "_STOP_TIMEOUT_S", patience_s)
    monkeypatch.setattr(supervisor_module, "_SAME_SIGNAL_S", 0.0)
    member = Member("broker-1", [sys.executable, "-c", textwrap.dedent(DEAF)])

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def scenario() -> None:
        supervisor = Supervisor([member], "zookeeper://nowhere", 6_000, restarts=True)
        running = asyncio.ensure_future(supervisor.run(stop))
        await supervisor.stopping.wait()
        if patience_s > 1:
            stop()
        await running

    asyncio.run(scenario())
    assert member.exit_code == -signal.SIGKILL
    (line,) = [record.getMessage() for record in caplog.records if "killed" in record.getMessage()]
    assert line.endswith("killed: before it had stopped" if patience_s > 1 else "killed: not stopped after 0 s")


def test_exit_code_is_known_of_a_process_that_ends_before_it_is_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member("broker-1", [sys.executable, "-c", "exit(3)"])
    is_signalled = Event()
    waitpid = os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        """The wait of Python 3.11, whose thread nearly always comes first."""
        if not options:
            is_signalled.wait(PATIENCE_S)
        return waitpid(pid, options)

    monkeypatch.setattr(os, "waitpid", late)

    async def scenario() -> None:
        began = asyncio.Event()
        living = asyncio.ensure_future(member.live(began.set))
        await began.wait()
        assert member.pid is not None
        # Without a turn of the loop, which would hear of the end.
        wait_until(lambda: psutil.Process(member.pid).status() == psutil.STATUS_ZOMBIE, "its end")
        member.signal(signal.SIGTERM)
        is_signalled.set()
        await living

    asyncio.run(scenario())
    assert member.exit_code == 3


def test_two_signals_at_once_are_one_wish_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    program = textwrap.dedent(DEAF).replace("signal.SIG_IGN", "lambda *_: exit(0)")
    member = Member("broker-1", [sys.executable, "-c", program])

    def stop_twice() -> None:
        monkeypatch.setattr(member, "signal", lambda number: numbers.append(number) or signal_it(number))  # type: ignore[func-returns-value]
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)

    signal_it, numbers = member.signal, list[int]()
    asyncio.run(Supervisor([member], "zookeeper://nowhere", 6_000, restarts=True).run(stop_twice))
    assert (member.exit_code, signal.SIGKILL in numbers) == (0, False)


def alteration(number: int) -> IncrementalAlterConfigsRequest:
    """A write to the store that leaves nothing to be done behind it."""
    config = AlterableConfig(name="retention.ms", config_operation=0, value=str(1_000_000 + number))
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def writes(pid: int, database: str) -> bool:
    """Whether this process has the lock for writing; the other worker may be writing meanwhile."""
    inodes = {str(os.stat(path).st_ino) for path in (database, f"{database}-shm") if os.path.exists(path)}
    locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(
        kind == "WRITE" and owner == str(pid) and place.rpartition(":")[2] in inodes
        for _, _, _, kind, owner, place, *_ in (fields for fields in locks if fields[1] != "->")
    )


def stopped_while_it_writes(address: tuple[str, int], database: str) -> Writer:
    """Stop whoever writes metadata in the middle of that; those who were not are let go on, and tried again."""
    with WireClient(address) as client:
        for number in range(ALTERATIONS_MAX):
            client.send(alteration(number), 1)
            writer = read_writer(database)
            assert writer is not None
            pause(writer.pid)
            if is_locked(database) and writes(writer.pid, database):
                return writer
            resume(writer.pid)
            assert client.receive().responses[0].error_code == 0
    raise AssertionError("nobody was ever stopped in the middle of a write")


@pytest.mark.slow
def test_worker_that_is_stopped_in_the_middle_of_a_write_is_killed_and_started_again(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, "--set", "num.partitions=4") as (served, processes):
        write(served.bootstrap, 20)
        with WireClient((served.host, served.port)) as client:
            brokers = client.ask(MetadataRequest(topics=[]), 9).brokers
        former = {process.pid for process in processes}
        writer = stopped_while_it_writes((served.host, served.port), str(tmp_path / "data" / METADATA_FILE))
        (stopped,) = (process for process in processes if process.pid == writer.pid)
        ((host, port),) = ((each.host, each.port) for each in brokers if each.node_id != writer.broker_id)
        wait_until(lambda: is_gone(stopped), "it is killed")
        command = psutil.Process(served.process.pid)
        wait_until(lambda: {each.pid for each in command.children()} - former, "another process in its place")
        with WireClient((host, port)) as client:
            client.create_topic("after")
        write(f"{host}:{port}", 20)
        assert read(f"{host}:{port}", 40) == sorted([*range(20), *range(20)])
        assert served.stop() == 0
    line = rf"worker {writer.broker_id - 1} \(process {writer.pid}\) was stopped while it writes metadata: killed"
    assert len(re.findall(line, (tmp_path / "stderr.log").read_text())) == 1


def test_a_clean_start_and_end_of_workers_warns_of_nothing(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 3) as (served, _):
        assert served.stop(signal.SIGINT) == 0
    said = (tmp_path / "stderr.log").read_text()
    assert said.count(" serves as node ") == 3
    assert [line for line in said.splitlines() if " INFO " not in line and not line.endswith(STOOD_STILL)] == []
