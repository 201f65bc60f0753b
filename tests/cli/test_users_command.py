"""``pybroker users``: users are made, changed and deleted, and log in by what was typed."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from pybroker.testing import Broker, Security
from tests.cli.command import COMMAND, CommandLine

SECURITY = Security("SASL_PLAINTEXT", users={"admin": "admin-secret"})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=SECURITY) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command as the user admin, who says so in a file."""
    file = client_file(broker, tmp_path / "admin.properties", "admin", "admin-secret", "SCRAM-SHA-512")
    monkeypatch.setenv("PYBROKER_COMMAND_CONFIG", str(file))
    return CommandLine(broker.bootstrap)


def client_file(broker: Broker, path: Path, user: str, password: str, mechanism: str) -> Path:
    """A file for Java's clients."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.touch(0o600)
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nacks=all\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
    return path


def logs_in(broker: Broker, path: Path, user: str, password: str, mechanism: str) -> bool:
    file = client_file(broker, path / f"{user}.properties", user, password, mechanism)
    soon = ("-X", "bootstrap.timeout.ms=1000")
    return CommandLine(broker.bootstrap).run("topics", "list", "--command-config", str(file), *soon).returncode == 0


def test_a_user_is_created_listed_altered_and_deleted(broker: Broker, admin: CommandLine, tmp_path: Path) -> None:
    assert admin.lines("users", "create", "bob", stdin=b"bobs secret, \xc3\xbc\n") == [
        "USER\tMECHANISM\tSTATUS",
        "bob\tSCRAM-SHA-512\tcreated",
    ]
    assert logs_in(broker, tmp_path, "bob", "bobs secret, ü", "SCRAM-SHA-512")
    assert not logs_in(broker, tmp_path, "bob", "wrong", "SCRAM-SHA-512")
    admin.ok("users", "alter", "bob", "-m", "SCRAM-SHA-256", "--iterations", "8192", stdin=b"second")
    assert admin.json("users", "list", "bob") == [
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    admin.ok("users", "alter", "bob", stdin=b"third\n")
    assert logs_in(broker, tmp_path, "bob", "third", "SCRAM-SHA-256")
    assert logs_in(broker, tmp_path, "bob", "third", "SCRAM-SHA-512")
    admin.ok("users", "delete", "bob", "-m", "SCRAM-SHA-256")
    assert not logs_in(broker, tmp_path, "bob", "third", "SCRAM-SHA-256")
    admin.ok("users", "delete", "bob")
    assert {each["user"] for each in admin.json("users", "list")} == {"admin"}


def test_records_are_written_and_read_by_the_same_file(admin: CommandLine) -> None:
    admin.ok("produce", "by-file", stdin=b"one\n")
    assert admin.lines("consume", "by-file", "-o", "beginning", "-e") == ["one"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("create", "admin"), b"x\n", b"user admin exists"),
        (("create", "empty"), b"\n", b"a password must not be empty"),
        (("create", "bytes"), b"\xff\xfe\n", b"a password must be UTF-8"),
        (("alter", "nobody"), b"x\n", b"user nobody: RESOURCE_NOT_FOUND"),
        (("delete", "nobody"), b"", b"user nobody: RESOURCE_NOT_FOUND"),
        (("delete", "nobody", "-m", "SCRAM-SHA-256"), b"", b"user nobody: RESOURCE_NOT_FOUND: Attempt to"),
        (("list", "nobody"), b"", b"user nobody: RESOURCE_NOT_FOUND"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    admin: CommandLine, arguments: tuple[str, ...], stdin: bytes, message: bytes
) -> None:
    refused = admin.run("users", *arguments, stdin=stdin)
    assert refused.returncode == 1
    assert message in refused.stderr
    assert refused.stderr.count(b"\n") == 1


def test_no_such_mechanism_is_wrong_use(admin: CommandLine) -> None:
    assert admin.run("users", "create", "eve", "-m", "SCRAM-SHA-1", stdin=b"x\n").returncode == 2


def test_at_a_terminal_the_password_is_asked_for_twice_and_not_shown(admin: CommandLine, broker: Broker) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYBROKER_BOOTSTRAP": broker.bootstrap}
    # Without a terminal of its own the command asks at its standard input, which is one.
    process = subprocess.Popen(
        [COMMAND, "users", "create", "typed"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        for prompt, typed in ((b"Password of typed: ", b"hunter2\n"), (b"Once more: ", b"hunter3\n")):
            asked = b""
            while not asked.endswith(prompt):
                asked += (read := os.read(process.stderr.fileno(), 1))
                assert read, asked
            os.write(ours, typed)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    os.set_blocking(ours, False)
    shown = b""
    with suppress(BlockingIOError):
        shown = os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert b"the two passwords differ" in stderr
    assert b"hunter" not in stdout + stderr + shown


def test_a_password_file_that_everybody_may_read_is_told(admin: CommandLine, broker: Broker, tmp_path: Path) -> None:
    file = client_file(broker, tmp_path / "open.properties", "admin", "admin-secret", "SCRAM-SHA-512")
    file.chmod(0o644)
    done = admin.run("users", "list", "--command-config", str(file))
    assert done.returncode == 0
    assert b"everybody on this machine may read it: chmod 600" in done.stderr
    assert b"admin-secret" not in done.stderr
