"""The entry point of the container image, as a process: variables, both listeners, the check of health, SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from harness.broker_probe import free_port
from harness.pybroker_process import Serving, serving
from harness.waiting import PATIENCE_S

from pybroker.cli.serve import image_entry, image_health
from pybroker.cli.serve.serve_command import build_parser
from pybroker.storage.files.checkpoints import read_meta_properties
from pybroker.testing import Broker
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.source_tree import ROOT

ENTRY = [sys.executable, "-m", "pybroker.cli.serve.image_entry"]
HEALTH = [sys.executable, "-m", "pybroker.cli.serve.image_health"]
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
BROKER = 4


def environment(**variables: str) -> dict[str, str]:
    """This process's variables without those that a broker would take, and ``variables``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**inherited, **variables}


@contextmanager
def started(tmp_path: Path, variables: Mapping[str, str], *arguments: str) -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch, open(tmp_path / "stderr.log", "w") as stderr:
        for name in [name for name in os.environ if name.startswith("KAFKA_")]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        with serving([*ENTRY, "--data-dir", str(tmp_path / "data"), *arguments], stderr) as served:
            yield served


def refused(*arguments: str, **variables: str) -> str:
    """What a start that ends at once says."""
    done = subprocess.run(
        [*ENTRY, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def health(**variables: str) -> int:
    done = subprocess.run(HEALTH, env=environment(**variables), capture_output=True, timeout=PATIENCE_S, check=False)
    return done.returncode


@pytest.fixture
def two_listeners() -> dict[str, str]:
    """The listeners of a container that is given none, on ports of this test alone."""
    host, inside = free_port(), free_port()
    return {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT_HOST://localhost:{host},PLAINTEXT://127.0.0.1:{inside}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT_HOST:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }


def ports(variables: Mapping[str, str]) -> list[int]:
    return [int(port) for port in re.findall(r":(\d+)", variables["KAFKA_ADVERTISED_LISTENERS"])]


def test_clients_of_each_listener_are_given_the_address_of_that_listener(
    tmp_path: Path, two_listeners: dict[str, str]
) -> None:
    with started(tmp_path, two_listeners):
        for host, port in zip(("localhost", "127.0.0.1"), ports(two_listeners), strict=True):
            with WireClient(("127.0.0.1", port)) as client:
                (broker,) = client.ask(MetadataRequest(topics=[]), 9).brokers
                assert (broker.host, broker.port) == (host, port)


def test_variables_are_settings_and_arguments_win_over_them(tmp_path: Path, two_listeners: dict[str, str]) -> None:
    variables = {**two_listeners, "KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_RETENTION_HOURS": "2", "KAFKA_NODE_ID": "7"}
    with started(tmp_path, variables, "--set", "num.partitions=4") as served:
        with WireClient((served.host, served.port)) as client:
            wanted = [DescribeConfigsResource(resource_type=BROKER, resource_name="7", configuration_keys=None)]
            (result,) = client.ask(DescribeConfigsRequest(resources=wanted, include_synonyms=False), 4).results
        values = {each.name: each.value for each in result.configs}
    assert (values["num.partitions"], values["log.retention.hours"]) == ("4", "2")


def test_compose_file_of_the_stock_image_is_served_with_a_line_for_what_has_no_effect(tmp_path: Path) -> None:
    """The single node of Apache Kafka's own examples, but for its ports."""
    host, inside, controller = free_port(), free_port(), free_port()
    variables = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_LISTENERS": f"CONTROLLER://:{controller},PLAINTEXT_HOST://:{host},PLAINTEXT://:{inside}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT_HOST://localhost:{host},PLAINTEXT://127.0.0.1:{inside}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@broker:{controller}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "CLUSTER_ID": CLUSTER_ID,
    }
    with started(tmp_path, variables) as served:
        assert (served.host, served.port) == ("localhost", host)
        assert health(**variables) == 0
    said = (tmp_path / "stderr.log").read_text()
    assert "pybroker: KAFKA_HEAP_OPTS: no effect" in said
    assert "controller.quorum.voters has no effect" in said
    assert [line for line in said.splitlines() if " WARNING " in line and "without a login" not in line] == []
    assert (read_meta_properties(tmp_path / "data") or {})["cluster.id"] == CLUSTER_ID


def test_sigterm_ends_it_cleanly(tmp_path: Path, two_listeners: dict[str, str]) -> None:
    with started(tmp_path, two_listeners) as served:
        assert served.stop(signal.SIGTERM) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_broker_heeds_it_ends_the_process(number: signal.Signals) -> None:
    """The kernel gives a container's first process no default: without a handler a stop would wait for its kill."""
    program = (
        "import signal\n"
        "from pybroker.cli.serve.image_entry import heed_early_stops\n"
        "heed_early_stops()\n"
        "print('heeds', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "heeds\n"
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 128 + number
        finally:
            process.kill()


def test_health_follows_the_broker(tmp_path: Path, two_listeners: dict[str, str]) -> None:
    with started(tmp_path, two_listeners) as served:
        assert health(**two_listeners) == 0
        served.stop()
        assert health(**two_listeners) == 1


def test_check_of_health_imports_no_part_of_the_broker() -> None:
    program = (
        "import sys, pybroker.cli.serve.image_health; print(*(name for name in sys.modules if 'pybroker' in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert set(done.stdout.split()) == {
        *("pybroker", "pybroker.cli"),
        *("pybroker.cli.serve", "pybroker.cli.serve.image_health", "pybroker.cli.serve.image_settings"),
    }


def test_health_of_a_listener_with_tls_is_its_handshake() -> None:
    with Broker(security="SSL") as secured, Broker() as plain:
        assert image_health.is_healthy(secured.host, secured.port, has_tls=True)
        assert not image_health.is_healthy(plain.host, plain.port, has_tls=True)
        assert not image_health.is_healthy(secured.host, secured.port)


def test_health_is_asked_of_the_listener_for_the_host_where_none_is_given() -> None:
    assert image_health.listener_to_ask({}) == ("127.0.0.1", 9092, False)


@pytest.mark.parametrize(
    ("listeners", "asked"),
    [
        ("CONTROLLER://:9093,PLAINTEXT://:19092", ("127.0.0.1", 19092, False)),
        ("SSL://0.0.0.0:9094", ("127.0.0.1", 9094, True)),
        ("SASL_SSL://10.0.0.7:9094", ("10.0.0.7", 9094, True)),
        ("PLAINTEXT://[::1]:9095", ("::1", 9095, False)),
        ("PLAINTEXT://[::]:9095", ("::1", 9095, False)),
    ],
)
def test_health_is_asked_of_the_first_listener_for_clients(listeners: str, asked: tuple[str, int, bool]) -> None:
    assert image_health.listener_to_ask({"KAFKA_LISTENERS": listeners}) == asked


def test_mounted_file_is_read_and_variables_win_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlisteners=PLAINTEXT://:19099\nlog.dirs=/elsewhere\n")
    monkeypatch.setattr(image_entry, "SETTINGS_FILE", str(file))
    options = build_parser().parse_args([])
    assert image_entry.serve_arguments([], options, {"KAFKA_NUM_PARTITIONS": "3"}) == [
        *("--config", str(file)),
        "--set=num.partitions=3",
    ]
    monkeypatch.setattr(image_health, "SETTINGS_FILE", str(file))
    assert image_health.listener_to_ask({}) == ("127.0.0.1", 19099, False)


def test_arguments_win_over_variables_that_answer_the_same_question(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--listen", "0.0.0.0:9099", "--data-dir", "here"]
    variables = {"KAFKA_LISTENERS": "PLAINTEXT://:1", "KAFKA_LOG_DIRS": "there", "KAFKA_NODE_ID": "2"}
    options = build_parser().parse_args(arguments)
    assert image_entry.serve_arguments(arguments, options, variables) == ["--set=node.id=2", *arguments]


def test_workers_have_the_settings_of_variables_and_listen_as_they_say(tmp_path: Path) -> None:
    arguments = ["--workers", "2", "--data-dir", str(tmp_path), "--set", "node.id=4"]
    options = build_parser().parse_args(arguments)
    variables = {"KAFKA_SSL_KEY_PASSWORD": "secret", "KAFKA_NUM_PARTITIONS": "6"}
    settings = ["--set=num.partitions=6", "--set=ssl.key.password=secret"]
    completed = image_entry.serve_arguments(arguments, options, variables)
    assert completed == ["--listen", "0.0.0.0:9092", *settings, *arguments]
    listeners = "PLAINTEXT://:9099"
    completed = image_entry.serve_arguments(arguments, options, {**variables, "KAFKA_LISTENERS": listeners})
    assert completed == [f"--set=listeners={listeners}", *settings, *arguments]


def test_no_value_of_a_variable_is_an_argument_of_a_process_also_with_workers(tmp_path: Path) -> None:
    with started(tmp_path, {"KAFKA_SSL_KEY_PASSWORD": "secret"}, "--workers", "2", "--listen", "127.0.0.1:0") as served:
        command = psutil.Process(served.process.pid)
        arguments = [word for process in (command, *command.children()) for word in process.cmdline()]
    assert arguments.count("--data-dir") == 3
    assert not any("secret" in word for word in arguments)


def test_variables_that_contradict_each_other_are_refused_in_a_line() -> None:
    said = refused(KAFKA_NUM_PARTITIONS="3", KAFKA_num_partitions="4")
    assert said == (
        "pybroker: KAFKA_NUM_PARTITIONS and KAFKA_num_partitions both set num.partitions, and not to the same: "
        "leave one away\n"
    )


def test_data_is_in_the_volume_where_nothing_else_is_said() -> None:
    options = build_parser().parse_args([])
    assert image_entry.serve_arguments([], options, {})[:2] == ["--data-dir", "/data"]


def test_secret_that_is_not_there_ends_the_start_in_a_line() -> None:
    said = refused(KAFKA_SSL_KEY_CREDENTIALS="nowhere")
    assert (
        said
        == "pybroker: KAFKA_SSL_KEY_CREDENTIALS: /etc/kafka/secrets/nowhere cannot be read: No such file or directory\n"
    )


def test_controller_alone_is_refused(tmp_path: Path) -> None:
    said = refused("--data-dir", str(tmp_path / "data"), KAFKA_PROCESS_ROLES="controller")
    assert said.startswith("pybroker: process.roles must name the broker role")


def test_dockerfile_starts_these_as_a_user_without_rights() -> None:
    """Commands are lists: a shell in between would take the signals."""
    image = (ROOT / "Dockerfile").read_text()
    commands = {name: json.loads(words) for name, words in re.findall(r"(ENTRYPOINT|CMD) (\[.*\])", image)}
    assert commands == {"ENTRYPOINT": ["python", *ENTRY[1:]], "CMD": ["python", *HEALTH[1:]]}
    assert re.findall(r"^USER (.*)$", image, re.MULTILINE) == ["10001"]


def test_what_the_dockerfile_copies_is_sent_to_the_engine() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert {name for line in copied for name in line.split()} == sent
    assert [name for name in sent if not (ROOT / name).exists()] == []
