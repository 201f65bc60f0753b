"""A start that is refused leaves nothing behind, so that the corrected one begins as if there had been no other."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S, wait_until

from pybroker.storage.files import checkpoints
from tests.broker.test_serve_command import refusal, serve_on

TAKEN = "Address already in use; end what listens there, or choose another port"


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port with a listener, behind one that has none."""
    with ExitStack() as sockets:
        while True:
            port = sockets.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with suppress(OSError), socket.create_server(("127.0.0.1", port - 1)):
                break
        yield port


def refused(*arguments: str, status: int = 1) -> str:
    """Run a command that must refuse to start brokers; its message."""
    done = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def contents(directory: Path) -> dict[str, bytes]:
    """All files below a directory; not the store's, which SQLite writes as it likes."""
    files = (each for each in directory.rglob("*") if each.is_file() and not each.name.startswith("pybroker-metadata"))
    return {str(each.relative_to(directory)): each.read_bytes() for each in files}


def test_start_on_a_taken_port_leaves_no_directory(tmp_path: Path, taken_port: int) -> None:
    said = refused("serve", "--listen", f"127.0.0.1:{taken_port}", "--data-dir", f"{tmp_path}/deep/er,{tmp_path}/other")
    assert said == f"pybroker: cannot listen on 127.0.0.1:{taken_port}: {TAKEN}\n"
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_start_that_was_refused_is_free_for_workers(tmp_path: Path, taken_port: int) -> None:
    data_dir = tmp_path / "data"
    refused("serve", "--listen", f"127.0.0.1:{taken_port}", "--data-dir", str(data_dir))
    command = [str(COMMAND), "serve", "--workers", "1", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), "--dev"]
    with serving(command) as served:
        assert served.stop() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--metadata", "sqlite:///no/such/directory/metadata.db"),
        ("--listen", "SSL://127.0.0.1:0", "--set", "ssl.keystore.location=/no/such/file"),
        ("--set", "num.partitions=none"),
        ("--add-scram", "nonsense"),
        ("--config", "/no/such/file"),
    ],
    ids=["store", "keys", "value", "user", "file"],
)
def test_start_that_is_refused_leaves_no_directory(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert refusal(tmp_path / "data", *arguments).startswith("pybroker: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "workers"])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--set", "log.retenton.ms=1"), "unknown setting 'log.retenton.ms'"),
        (("--set", "leader.replication.throttled.rate=1"), "'leader.replication.throttled.rate' can only be set while"),
        (("--set", "log.dirs=other"), "the data directory "),
        (("--listen", "127.0.0.1:0", "--set", "listeners=PLAINTEXT://:0"), "listening on 127.0.0.1:0 and the setting "),
        (("--listen", "nonsense"), "--listen expects HOST:PORT"),
    ],
    ids=["unknown", "dynamic", "directories", "listeners", "address"],
)
def test_argument_that_no_setting_makes_right_is_wrong_use_and_leaves_no_directory(
    tmp_path: Path, arguments: tuple[str, ...], reason: str, workers: tuple[str, ...]
) -> None:
    data_dir = tmp_path / "data"
    said = refused("serve", "--data-dir", str(data_dir), *arguments, *workers, status=2)
    assert said.startswith(f"pybroker: {reason}")
    assert not data_dir.exists()


def test_directory_that_was_there_and_what_lies_in_it_stay(tmp_path: Path, taken_port: int) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "somebody's").write_text("own")
    (tmp_path / "data" / ".lock").touch()
    refused("serve", "--listen", f"127.0.0.1:{taken_port}", "--data-dir", str(tmp_path / "data"))
    assert contents(tmp_path) == {"data/somebody's": b"own", "data/.lock": b""}


def test_data_of_a_broker_are_as_its_clean_stop_left_them_after_a_start_that_is_refused(
    tmp_path: Path, taken_port: int
) -> None:
    with serve_on(tmp_path / "data") as served:
        assert served.stop() == 0
    before = contents(tmp_path / "data")
    refused("serve", "--listen", f"127.0.0.1:{taken_port}", "--data-dir", str(tmp_path / "data"))
    assert contents(tmp_path / "data") == before


def test_first_directory_is_left_as_it_was_where_the_second_is_another_brokers(tmp_path: Path) -> None:
    with serve_on(tmp_path / "taken"):
        said = refusal(tmp_path / "new", "--data-dir", f"{tmp_path}/new,{tmp_path}/taken")
        assert "locked" in said
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_start_with_a_taken_node_id_binds_the_directory_to_no_node(tmp_path: Path, is_killed: bool) -> None:
    cluster = ("--metadata", f"sqlite://{tmp_path}/metadata.db", "--dev")
    second = tmp_path / "second"
    with serve_on(tmp_path / "first", *cluster):
        if is_killed:
            kill_while_it_waits(second, *cluster)
        else:
            assert refusal(second, *cluster).endswith("pybroker: another broker with the id 1 is alive\n")
            assert not second.exists()
        with serve_on(second, "--set", "node.id=2", *cluster) as served:
            assert served.stop() == 0
    assert (checkpoints.read_meta_properties(second) or {})["node.id"] == "2"


def kill_while_it_waits(data_dir: Path, *arguments: str) -> None:
    """Start a broker whose id is taken, and kill it before that has become a refusal."""
    log_path = data_dir.parent / "killed.log"
    command = [str(COMMAND), "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *arguments]
    with open(log_path, "w") as log, subprocess.Popen(command, stderr=log) as process:
        wait_until(lambda: "has not joined its cluster yet" in log_path.read_text(), "it waits")
        process.kill()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "command",
    [("serve", "--workers", "2", "--listen", "127.0.0.1:{}"), ("cluster", "up", "--brokers", "2", "--port", "{}")],
    ids=["workers", "cluster"],
)
def test_taken_port_of_any_of_several_brokers_is_told_in_a_line_before_one_begins(
    tmp_path: Path, taken_port: int, command: tuple[str, ...]
) -> None:
    arguments = [word.format(taken_port - 1) for word in command]
    said = refused(*arguments, "--data-dir", str(tmp_path / "data"))
    assert said == f"pybroker: cannot listen on 127.0.0.1:{taken_port}: {TAKEN}\n"
    assert list(tmp_path.iterdir()) == []


def test_workers_wait_for_ports_that_their_predecessors_still_have(tmp_path: Path) -> None:
    command = [str(COMMAND), "serve", "--workers", "1", "--data-dir", str(tmp_path / "data"), "--dev"]
    with serving([*command, "--listen", "127.0.0.1:0"]) as former:
        waiting = [*command, "--listen", f"127.0.0.1:{former.port}"]
        with open(tmp_path / "stderr.log", "w") as log, subprocess.Popen(waiting, stdout=-1, stderr=log) as next_one:
            wait_until(lambda: "waits: another broker" in (tmp_path / "stderr.log").read_text(), "it waits")
            assert former.stop() == 0
            assert next_one.stdout is not None
            assert next_one.stdout.readline() == f"pybroker ready on 127.0.0.1:{former.port}\n".encode()
            next_one.terminate()
    assert next_one.returncode == 0


def directory_of_workers(path: Path) -> None:
    """Files as ``serve --workers 2`` leaves them."""
    for number in range(2):
        (path / f"worker-{number}").mkdir(parents=True)
        meta = checkpoints.MetaProperties("cluster-of-workers-abc", number + 1, bytes([number + 1]) * 16)
        checkpoints.write_meta_properties(path / f"worker-{number}", meta)


@pytest.mark.parametrize("of_cluster", [(), ("--metadata", "sqlite://{}/metadata.db")], ids=["alone", "member"])
def test_directory_of_several_brokers_is_no_brokers_own(tmp_path: Path, of_cluster: tuple[str, ...]) -> None:
    directory_of_workers(tmp_path / "data")
    before = contents(tmp_path)
    said = refusal(tmp_path / "data", *(word.format(tmp_path) for word in of_cluster))
    assert f"{tmp_path}/data holds the data directories of several brokers (worker-0, worker-1)" in said
    assert said.count("\n") == 1
    assert contents(tmp_path) == before


def test_directory_of_a_single_broker_is_no_clusters(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    said = refused("cluster", "up", "--port", "0", "--data-dir", str(tmp_path))
    assert "holds the data of a single broker" in said
    assert contents(tmp_path) == {"meta.properties": b""}
