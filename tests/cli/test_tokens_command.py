"""``pybroker tokens``: tokens are made, seen, renewed and ended, and their holders log in by what was printed."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker, Security
from tests.broker.test_delegation_tokens import Holder
from tests.cli.command import CommandLine
from tests.cli.test_users_command import client_file

SECURITY = Security("SASL_PLAINTEXT", users={"admin": "admin-secret", "bob": "bob-secret"})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"delegation.token.secret.key": "the key"}, security=SECURITY) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command as the user admin, who says so in a file."""
    file = client_file(broker, tmp_path / "admin.properties", "admin", "admin-secret", "SCRAM-SHA-512")
    monkeypatch.setenv("PYBROKER_COMMAND_CONFIG", str(file))
    return CommandLine(broker.bootstrap)


def logs_in(broker: Broker, token_id: str, hmac: str) -> bool:
    with Holder(broker, SimpleNamespace(token_id=token_id, hmac=b64decode(hmac))) as holder:
        return bool(holder.last.error_code == 0)


def test_a_token_is_created_described_renewed_and_ended(broker: Broker, admin: CommandLine) -> None:
    began_ms = time.time() * 1000
    created = admin.json("tokens", "create", "--renewer", "bob", "--lifetime", "2h")
    assert 7_199_000 < created["max_expires_ms"] - began_ms < 7_200_000 + 1000 * PATIENCE_S
    assert created["owner"] == "User:admin"
    assert logs_in(broker, created["id"], created["hmac"])

    def described(*options: str) -> list[Any]:
        return [each for each in admin.json("tokens", "describe", *options) if each["id"] == created["id"]]

    (shown,) = described("--owner", "admin")
    assert {name: shown[name] for name in ("id", "owner", "requester", "renewers", "max_expires_ms")} == {
        "id": created["id"],
        "owner": "User:admin",
        "requester": "User:admin",
        "renewers": ["User:bob"],
        "max_expires_ms": created["max_expires_ms"],
    }
    assert "hmac" not in shown, "unless it is asked for"
    assert described("--hmacs")[0]["hmac"] == created["hmac"]
    assert admin.json("tokens", "describe", "--owner", "nobody") == []
    assert admin.lines("tokens", "describe")[0] == "ID\tOWNER\tREQUESTER\tRENEWERS\tISSUED\tEXPIRES\tMAX-EXPIRES"
    assert admin.json("tokens", "renew", created["id"], "--period", "10m")["expires_ms"] < created["max_expires_ms"]
    assert admin.json("tokens", "renew", created["id"])["expires_ms"] == created["max_expires_ms"]
    admin.ok("tokens", "expire", created["id"])
    wait_until(lambda: not logs_in(broker, created["id"], created["hmac"]), "the end of the token")
    assert described() == []


def test_a_token_of_another_user_is_asked_for(broker: Broker, admin: CommandLine) -> None:
    created = admin.json("tokens", "create", "--owner", "bob")
    assert created["owner"] == "User:bob"
    assert admin.json("tokens", "create", "--owner", "User:bob", "--renewer", "User:carol")["owner"] == "User:bob"
    failed = admin.run("tokens", "renew", created["id"])
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert b"DELEGATION_TOKEN_OWNER_MISMATCH" in failed.stderr


def test_what_cannot_be_is_told_in_a_line(admin: CommandLine) -> None:
    for arguments, code in (
        (("renew", "no-such-token"), 1),
        (("expire", "no-such-token"), 1),
        (("create", "--lifetime", "soon"), 2),
        (("create", "--lifetime", "12"), 2),
        (("create", "--owner", "Group:bob"), 2),
        (("create", "--renewer", "User:"), 2),
        (("renew", "x", "--period", "-5"), 2),
    ):
        failed = admin.run("tokens", *arguments)
        assert (failed.returncode, failed.stdout) == (code, b""), arguments
        assert b"Traceback" not in failed.stderr


def test_a_broker_without_tokens_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(security=SECURITY) as broker:
        file = client_file(broker, tmp_path / "admin.properties", "admin", "admin-secret", "SCRAM-SHA-512")
        monkeypatch.setenv("PYBROKER_COMMAND_CONFIG", str(file))
        failed = CommandLine(broker.bootstrap).run("tokens", "create")
    assert failed.returncode == 1
    assert failed.stderr.startswith(b"pybroker: tokens: DELEGATION_TOKEN_AUTH_DISABLED: ")
