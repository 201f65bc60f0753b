"""``serve --add-scram``: users that a cluster begins with, and keeps as they become."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S

SASL = ("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=SCRAM-SHA-512")


def user(name: str, password: str) -> str:
    return f"SCRAM-SHA-512=[name={name},password={password}]"


def logs_in(bootstrap: str, name: str, password: str) -> bool:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }
    try:
        return bool(AdminClient(settings).list_topics(timeout=3).brokers)
    except KafkaException:
        return False


def test_a_new_cluster_begins_with_the_users_and_one_that_exists_keeps_its_own(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text(f"# of the start\n\n{user('alice', 'first')}\n")
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), *SASL]
    of_start = ["--add-scram", f"@{users}", "--add-scram", user("bob", "second")]
    with serving([*command, *of_start]) as served:
        assert logs_in(served.bootstrap, "alice", "first")
        assert logs_in(served.bootstrap, "bob", "second")
        assert served.stop() == 0
    command += ["--add-scram", user("alice", "another")]
    with open(tmp_path / "stderr.log", "w") as stderr, serving(command, stderr) as served:
        assert logs_in(served.bootstrap, "alice", "first")
        assert not logs_in(served.bootstrap, "alice", "another")
        assert served.stop() == 0
    said = (tmp_path / "stderr.log").read_text()
    assert "the cluster exists, and keeps its users: alice" in said
    assert "everybody" not in said


def test_workers_begin_with_the_users_too(tmp_path: Path) -> None:
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), *SASL, "--workers", "2", "--dev"]
    with serving([*command, "--add-scram", user("alice", "first")]) as served:
        assert logs_in(served.bootstrap, "alice", "first")
        assert served.stop() == 0


@pytest.mark.parametrize("content", [b"\xff\n", None])
def test_a_file_of_users_that_cannot_be_read_is_told(content: bytes | None, tmp_path: Path) -> None:
    users = tmp_path / "users"
    if content is not None:
        users.write_bytes(content)
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), "--add-scram", f"@{users}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"pybroker: --add-scram: {users} ")
    assert not (tmp_path / "data").exists()
