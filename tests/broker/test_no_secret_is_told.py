"""A secret that the broker was given is in nothing that it prints, and in nothing that it answers."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S

from pybroker.cluster.store.store_codec import SECRET, decode_secret
from pybroker.security.plain import LOGIN_MODULE as PLAIN_MODULE
from pybroker.security.scram import SHA_256, ScramClient
from pybroker_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient
from tests.certificates import Authority

PLANTED = "Planted-Secret-7"
SALTED = SHA_256.salted(PLANTED.encode(), b"salt" * 4, 4096)
LISTENER = "listener.name.sasl_plaintext"
BROKER, BROKER_LOGGER = 4, 8


def forms(secret: bytes) -> set[str]:
    """How a secret might be printed."""
    return {secret.decode(errors="replace"), b64encode(secret).decode(), secret.hex(), repr(secret)[2:-1]}


class Told:
    """Everything that the broker says."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def ask(self, client: WireClient, request: Any, version: int) -> Any:
        answer = client.ask(request, version)
        self.texts.append(repr(answer))
        return answer

    def finds(self, secret: bytes) -> list[str]:
        """What tells it."""
        return [text[:2_000] for text in self.texts if any(form in text for form in forms(secret))]


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    key = Authority(tmp_path).pem("broker", password=PLANTED)
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
        f'{LISTENER}.plain.sasl.jaas.config={PLAIN_MODULE} required user_alice="{PLANTED}";\n'
        f"ssl.keystore.type=PEM\nssl.keystore.location={key}\nssl.key.password={PLANTED}\n"
        f"pybroker.metadata.zookeeper.digest=me:{PLANTED}\ndelegation.token.secret.key={PLANTED}\n"
        f"my.plugin.password={PLANTED}\nsasl.oauthbearer.assertion.private.key.passphrase={PLANTED}\n"
    )
    return file


def alter(name: str, value: str, resource_type: int = BROKER) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=resource_type, resource_name="1", configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def log_in(told: Told, client: WireClient, mechanism: str, *tokens: bytes) -> Any:
    told.ask(client, SaslHandshakeRequest(mechanism=mechanism), 1)
    return [told.ask(client, SaslAuthenticateRequest(auth_bytes=token), 2) for token in tokens][-1]


def fail_to_log_in(told: Told, address: tuple[str, int]) -> None:
    planted = PLANTED.encode()
    for token in (b"\0alice\0" + planted + b"!", planted, b"\0" + planted, b"\xff" + planted, b"a\0b\0c\0" + planted):
        with WireClient(address) as client:
            log_in(told, client, "PLAIN", token)
    for user in ("carol", PLANTED):
        with WireClient(address) as client:
            scram = ScramClient(SHA_256, user, lambda salt, count: SHA_256.salted(b"wrong", salt, count), b"c" * 18)
            first = log_in(told, client, "SCRAM-SHA-256", scram.first())
            told.ask(client, SaslAuthenticateRequest(auth_bytes=scram.final(bytes(first.auth_bytes))), 2)
    with WireClient(address) as client:
        told.ask(client, SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.send_raw(b"\0\0\0\x16\0alice\0" + planted)
        told.texts.append(repr(client.receive_payload()))


def ask_everything(told: Told, address: tuple[str, int]) -> None:
    with WireClient(address) as client:
        assert log_in(told, client, "PLAIN", b"\0alice\0" + PLANTED.encode()).error_code == 0
        assert told.ask(client, alter("root", "TRACE", BROKER_LOGGER), 1).responses[0].error_code == 0
        fail_to_log_in(told, address)
        upsertion = ScramCredentialUpsertion(
            name="dave", mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=SALTED
        )
        told.ask(client, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        told.ask(client, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion, upsertion]), 0)
        told.ask(client, DescribeUserScramCredentialsRequest(users=None), 0)
        for name, value in (
            (f"{LISTENER}.plain.sasl.jaas.config", f'{PLAIN_MODULE} required user_alice="{PLANTED}"'),
            (f"{LISTENER}.plain.sasl.jaas.config", f"{PLANTED} required;"),
            (f"{LISTENER}.plain.sasl.jaas.config", f'{PLAIN_MODULE} required user_alice="{PLANTED}" user_b="b";'),
            ("ssl.key.password", PLANTED + "!"),
            ("listener.name.ssl.ssl.key.password", PLANTED + "!"),
            ("listener.name.ssl.ssl.keystore.password", PLANTED),
            ("listener.name.ssl.ssl.keystore.key", PLANTED),
            ("no.such.password", PLANTED),
        ):
            told.ask(client, alter(name, value), 1)
        for resource_type in (BROKER, BROKER_LOGGER):
            resource = DescribeConfigsResource(resource_type=resource_type, resource_name="1", configuration_keys=None)
            described = told.ask(client, DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
            assert described.results[0].configs
        told.ask(client, MetadataRequest(topics=None), 9)


def test_a_planted_secret_is_in_no_line_and_in_no_answer(settings_file: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"# who begins\nSCRAM-SHA-256=[name=carol,password={PLANTED}]\n")
    command = [str(COMMAND), "serve", "--config", str(settings_file), "--data-dir", str(tmp_path / "data")]
    told = Told()
    command += ["--add-scram", f"@{users}"]
    with open(tmp_path / "stderr.log", "w") as stderr, serving(command, stderr) as served:
        ask_everything(told, (served.host, served.port))
        assert served.stop() == 0
        assert served.process.stdout is not None
        told.texts.append(served.before + served.process.stdout.read())
    printed = (tmp_path / "stderr.log").read_text()
    assert "Authentication failed" in printed, "what could tell a secret is there"
    told.texts += printed.splitlines()
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "pybroker-metadata.db")) as database:
        (value,) = database.execute("SELECT value FROM entries WHERE key = ?", (SECRET,)).fetchone()
        (kept,) = database.execute("SELECT value FROM entries WHERE key = '/scram/1/dave'").fetchone()
    credential = SHA_256.hash(SHA_256.hmac(SALTED, b"Client Key"))
    assert any(form.encode() in bytes(kept) for form in forms(credential)), "it is kept in one of the forms"
    for secret in (PLANTED.encode(), SALTED, credential, decode_secret(value)):
        # A name that somebody logs in by is no secret: it may be a user's mistake, and Kafka prints it, too.
        assert told.finds(secret) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add-scram", f"SCRAM-SHA-256=[name=a,password={PLANTED},x=y]"),
        ("--add-scram", f"SCRAM-SHA-1=[name=a,password={PLANTED}]"),
        ("--add-scram", f"a:{PLANTED}"),
        ("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=PLAIN",
         "--set", f'{LISTENER}.plain.sasl.jaas.config={PLAIN_MODULE} required user_a="{PLANTED}"'),
        ("--set", "listeners=SSL://127.0.0.1:0", "--set", f"ssl.keystore.key={PLANTED}",
         "--set", f"ssl.keystore.certificate.chain={PLANTED}", "--set", "ssl.keystore.type=PEM"),
    ],
)  # fmt: skip
def test_a_start_that_is_refused_tells_no_secret_either(arguments: tuple[str, ...], tmp_path: Path) -> None:
    command = [str(COMMAND), "serve", "--data-dir", str(tmp_path / "data"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert PLANTED not in done.stdout + done.stderr


def test_a_file_that_cannot_be_read_as_properties_tells_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"ssl.key.password={PLANTED}\\u00zz\n")
    command = [str(COMMAND), "serve", "--config", str(file), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "server.properties: malformed" in done.stderr
    assert PLANTED not in done.stderr
