"""The command contract of ``pybroker serve``: what scripts and outside checks rely on."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND, Serving, serving
from harness.waiting import PATIENCE_S, wait_until

from pybroker import __version__
from pybroker.cli.main import main
from pybroker.cli.serve import serve_command as serve
from pybroker.storage.files.checkpoints import read_meta_properties
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient

TAKEN = "Address already in use; end what listens there, or choose another port"
# What a broker that serves nobody yet, and has no internal topics, has no use for: packages with all that is in them.
NOT_AT_START = (
    *("typer", "rich", "click", "kazoo", "construct", "kafka", "cramjam", "lz4", "re2", "xxhash"),
    *("importlib.metadata", "email"),
    *(
        "pybroker.pipeline",
        "pybroker.testing",
        "pybroker.telemetry",
        "pybroker.coordinators",
        "pybroker.storage.cleaner",
    ),
    *("pybroker.replication.transaction_markers", "pybroker.replication.transaction_verification"),
)
# What it has no use for as long as nobody logs in, no listener has TLS, and there is no authorizer.
NOT_WITHOUT_SECURITY = (
    *("hashlib", "hmac", "secrets", "jwt", "cryptography"),
    *("pybroker.security", "pybroker.config.jaas", "pybroker.cluster.controller.token_operations"),
    *("pybroker.net.login_connection", "pybroker.net.tls_connection", "pybroker.net.key_fetch"),
)
# What it has no use for as long as it is alone.
NOT_WITHOUT_OTHERS = (
    *("pybroker.cluster_wiring", "pybroker.cluster.membership.too_few_brokers"),
    *(
        "pybroker.cluster.membership.broker_lifecycle",
        "pybroker.cluster.controller.controller_election",
        "pybroker.cluster.failure_detection.recently_fenced",
    ),
    *(
        "pybroker.cluster.store.sqlite.shared_sqlite_thread",
        "pybroker.cluster.store.sqlite.sqlite_sessions",
        "pybroker.cluster.failure_detection.live_brokers",
    ),
    *(
        "pybroker.cluster.store.zookeeper.zookeeper_store",
        "pybroker.net.peer_client",
        "pybroker.cluster.controller.leader_balancing",
    ),
    *("pybroker.replication.isr_changes", "pybroker.replication.followers", "pybroker.quotas"),
)
NOT_WITHOUT_LINKS = (
    *("pybroker.cluster.image.link_states", "pybroker.cluster.links", "pybroker.cluster.store.store_links"),
    *("pybroker.cluster.decisions.mirrored_topics", "pybroker.cluster.controller.link_operations"),
    *("pybroker.cluster.decisions.carried_access", "pybroker.coordinators.offsets_past_the_end"),
    "pybroker.replication.partition_ends",
    *("pybroker.config.link_config", "pybroker.config.link_settings"),
    *("pybroker.coordinators.carried_offsets", "pybroker.handlers.read_only_topics"),
    *("pybroker.net.source_client", "pybroker.net.source_login"),
    *("pybroker.replication.mirrors", "pybroker.replication.mirrored_link", "pybroker.replication.mirror_fetcher"),
    *("pybroker.replication.mirrored_partition", "pybroker.replication.source_transactions"),
)
# These are imported by the first request of their API.
HANDLERS, MESSAGES = "pybroker.handlers.", "pybroker_protocol.messages."
HANDLERS_AT_START = {"pybroker.handlers.context", "pybroker.handlers.services"}


@contextmanager
def serve_on(data_dir: Path, *arguments: str) -> Iterator[Serving]:
    """The command, whose first line is the ready line; what it complains of is in ``stderr.log`` beside its data."""
    listen = () if "--listen" in arguments else ("--listen", "127.0.0.1:0")
    command = [str(COMMAND), "serve", *listen, "--data-dir", str(data_dir), *arguments]
    with open(data_dir.parent / "stderr.log", "w") as stderr, serving(command, stderr) as served:
        assert served.before == ""
        yield served


def refusal(data_dir: Path, *arguments: str) -> str:
    """Run a serve that must fail; its message."""
    command = [str(COMMAND), "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with serve_on(tmp_path / "data") as served:
        with WireClient((served.host, served.port)) as client:
            client.ask(MetadataRequest(topics=None), 1)
            assert served.stop(number) == 0
        assert served.process.stdout is not None
        assert served.process.stdout.read() == ""
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_second_process_on_the_same_directory_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    with serve_on(tmp_path / "data"):
        message = refusal(tmp_path / "data")
    assert "locked" in message
    assert str(tmp_path / "data") in message


def test_unknown_setting_in_a_file_is_a_warning(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retenton.ms=1\nnum.partitions=3\n")
    with serve_on(tmp_path / "data", "--config", str(properties)):
        pass
    said = (tmp_path / "stderr.log").read_text()
    assert (
        "log.retenton.ms has no effect: it is no setting that is known here; did you mean 'log.retention.ms'?" in said
    )


def test_each_setting_without_effect_is_named_in_a_line(tmp_path: Path) -> None:
    with serve_on(tmp_path / "data", "--set", "num.io.threads=3", "--set", "num.network.threads=3"):
        pass
    lines = [line for line in (tmp_path / "stderr.log").read_text().splitlines() if " has no effect: " in line]
    assert [line.split(": ")[1].split(" ")[0] for line in lines] == ["num.io.threads", "num.network.threads"]


def test_start_says_in_one_line_which_broker_it_is(tmp_path: Path) -> None:
    dirs = f"{tmp_path}/data,{tmp_path}/more"
    arguments = ("--listen", "127.0.0.1:0", "--listen", "localhost:0", "--set", "node.id=7")
    with serve_on(tmp_path / "data", *arguments, "--data-dir", dirs) as served:
        said = (tmp_path / "stderr.log").read_text()
        cluster_id = (read_meta_properties(tmp_path / "data") or {})["cluster.id"]
    (line,) = [line for line in said.splitlines() if " INFO pybroker: " in line]
    assert re.fullmatch(
        rf".* INFO pybroker: pybroker {re.escape(__version__)} serves as node 7 of cluster {re.escape(cluster_id)} "
        rf"at PLAINTEXT://127\.0\.0\.1:{served.port}, PLAINTEXT_2://localhost:\d+, "
        rf"with its data in {re.escape(str(tmp_path))}/data, {re.escape(str(tmp_path))}/more",
        line,
    )


def test_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [str(COMMAND), "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr == f"pybroker: cannot listen on 127.0.0.1:{port}: {TAKEN}\n"


def test_address_that_is_not_ours_or_unknown_is_named(tmp_path: Path) -> None:
    for address in ("192.0.2.1:9092", "host.invalid:9092"):
        command = [str(COMMAND), "serve", "--listen", address, "--data-dir", str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"pybroker: cannot listen on {address}: ")
        assert done.stderr.count("\n") == 1


def test_unknown_setting_is_wrong_use_and_names_the_nearest(tmp_path: Path) -> None:
    for more in ((), ("--workers", "2")):
        command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), "--set", "log.retenton.ms=1", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith("pybroker: unknown setting 'log.retenton.ms'; did you mean 'log.retention.ms'?")


def test_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "--config", str(tmp_path))
    assert said == f"pybroker: --config: {tmp_path} is a directory\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "is no text"),
        (b"caf\xe9=1\nnum.partitions=3\n", "'caf\\udce9' is no name of a setting"),
        (b"\x1b[2J=1\nnum.partitions=3\n", "'\\x1b[2J' is no name of a setting"),
        (b"# A page\n\nThis is none of Kafka's files.\n", "'This' is no setting"),
        (b"log.retenton.ms=1\n", "'log.retenton.ms' is no setting; did you mean 'log.retention.ms'?"),
    ],
    ids=["binary", "latin", "control", "page", "misspelt"],
)
def test_file_that_is_none_of_settings_is_refused_in_a_line(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    said = refusal(tmp_path / "data", "--config", str(file))
    assert said.startswith(f"pybroker: --config: {file}")
    assert said.endswith(f"{reason}\n")
    assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_file_that_sets_nothing_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"# num.partitions=3\n")
    with serve_on(tmp_path / "data", "--config", str(tmp_path / "file")):
        pass
    assert f"{tmp_path}/file sets nothing: all settings have their defaults" in (tmp_path / "stderr.log").read_text()


def test_setting_that_is_not_text_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "--set", "broker.rack=\udcff")
    assert said == "pybroker: the value of broker.rack is not UTF-8\n"


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_broker_serves_without_a_standard_stream(tmp_path: Path, stream: int) -> None:
    port = free_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), "--dev")
    command = ["bash", "-c", f'exec "$0" "$@" {stream}>&-', str(COMMAND), "serve", *listen]
    with subprocess.Popen(command) as process:
        try:
            answers_and_ends(process, port)
        finally:
            process.kill()


def test_broker_serves_though_nobody_reads_its_ready_line(tmp_path: Path) -> None:
    port = free_port()
    command = [str(COMMAND), "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), "--dev"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        try:
            answers_and_ends(process, port)
        finally:
            process.kill()


def answers_and_ends(process: subprocess.Popen[bytes], port: int) -> None:
    """Once it serves it answers, and SIGTERM ends it cleanly."""

    def answers() -> bool:
        assert process.poll() is None, "it has ended by itself"
        try:
            with WireClient(("127.0.0.1", port)) as client:
                return client.ask(MetadataRequest(topics=[]), 9) is not None
        except ConnectionError:
            return False

    wait_until(answers, "it answers")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def test_each_listener_is_answered_with_its_own_addresses(tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--listen", "localhost:0", "--dev")
    with serve_on(tmp_path / "data", *arguments) as served, WireClient((served.host, served.port)) as client:
        port = served.port
        (broker,) = client.ask(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("127.0.0.1", port)
        (described,) = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0).brokers
        assert (described.host, described.port) == ("127.0.0.1", port)
        coordinator = client.ask(FindCoordinatorRequest(key="g"), 0)
        assert coordinator.error_code == ErrorCode.NONE
        assert (coordinator.host, coordinator.port) == ("127.0.0.1", port)


def test_ipv6_listener_is_served_and_advertised(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").read_text().strip():
        pytest.skip("this machine has no IPv6")
    with serve_on(tmp_path / "data", "--listen", "[::1]:0") as served:
        host, port = served.host, served.port
        assert host == "::1"
        with WireClient((host, port)) as client:
            (broker,) = client.ask(MetadataRequest(topics=[]), 9).brokers
            assert (broker.host, broker.port) == ("::1", port)


def test_wildcard_is_never_advertised(tmp_path: Path) -> None:
    with serve_on(tmp_path / "data", "--listen", "0.0.0.0:0") as served:
        assert served.host not in ("0.0.0.0", "")
        with WireClient(("127.0.0.1", served.port)) as client:
            (broker,) = client.ask(MetadataRequest(topics=[]), 9).brokers
            assert broker.host not in ("0.0.0.0", "")


def test_nothing_heavy_is_imported_before_the_broker_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with serve_on(tmp_path / "data"):
        report = (tmp_path / "stderr.log").read_text()
    imported = {line.rpartition("|")[2].strip() for line in report.splitlines() if line.startswith("import time:")}
    assert {"pybroker.public", "pybroker.net.socket_server", *HANDLERS_AT_START} <= imported
    assert not imported & {*NOT_AT_START, *NOT_WITHOUT_SECURITY, *NOT_WITHOUT_OTHERS, *NOT_WITHOUT_LINKS}
    assert not {name for name in imported - HANDLERS_AT_START if name.startswith((HANDLERS, MESSAGES))}


def test_what_is_not_imported_at_the_start_is_there() -> None:
    names = (*NOT_AT_START, *NOT_WITHOUT_SECURITY, *NOT_WITHOUT_OTHERS, *NOT_WITHOUT_LINKS)
    assert [name for name in names if name.startswith("pybroker.") and find_spec(name) is None] == []


def test_garbage_is_collected_again_once_the_broker_is_ready(tmp_path: Path) -> None:
    program = """
import gc, os, signal, sys
from pybroker.cli.serve import broker_process
from pybroker.cli.serve import serve_command as serve


def tell(line):
    print(gc.isenabled(), gc.get_threshold() == broker_process.GC_THRESHOLDS, gc.get_freeze_count() > 10_000)
    os.kill(os.getpid(), signal.SIGTERM)

broker_process.say = tell
sys.exit(serve.run_serve(sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "True True True\n"


def test_interrupt_before_signals_are_heeded_ends_it_quietly_with_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "run_serve", interrupted)
    monkeypatch.setattr(sys, "argv", ["pybroker", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lisen", "127.0.0.1:0"], "no such option: --lisen; did you mean --listen?"),
        (["--port", "9092"], "no such option: --port; did you mean --listen HOST:PORT?"),
        (["--override=a=b"], "no such option: --override; did you mean --set KEY=VALUE?"),
        (["--zzz"], "no such option: --zzz\n"),
        (["server.properties"], "unexpected argument 'server.properties'; a file of settings stands behind --config"),
        (["--workers", "0"], "expected a number from 1 to"),
    ],
)
def test_wrong_option_names_the_one_that_was_meant(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.build_parser().parse_args(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
