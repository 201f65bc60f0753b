"""The page on tokens: its settings make a broker and clients that log in, and its commands do what it says."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from harness.apache_kafka import TOPIC_COMMAND, run_kafka_tool
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND, Serving, serving

from pybroker.security.certificate_authority import write_certificates
from tests.cli.command import CommandLine
from tests.docs.pages import examples
from tests.security.tokens import jwk, jwks, rsa_key, signed
from tests.source_tree import ROOT

PAGE, SECURITY = ROOT / "docs" / "security-tokens.md", ROOT / "docs" / "security.md"
OF_BROKER, BY_FILE, BY_ENDPOINT, SECRET_KEY, OF_HOLDER = (each.code for each in examples("properties", PAGE))
COMMANDS = examples("sh", PAGE)[0].code.splitlines()
# The page on security names each of its files in the first line.
FILES = {each.code.splitlines()[0].removeprefix("# "): each.code for each in examples("properties", SECURITY)}
PROVIDER, KEYS, TOKENS = "https://idp.example", "/.well-known/jwks.json", "/token"
# Claims, and the settings that say what they have to be.
CLAIMS = {"iss": "sasl.oauthbearer.expected.issuer", "aud": "sasl.oauthbearer.expected.audience"}
TOKEN_FILE = "file:///run/secrets/token"
HOST, ANOTHER_HOST = "localhost:9093", "localhost:9094"
CA = Path("certificates/ca.pem")


def value_of(text: str, name: str) -> str:
    """Of a setting that a file has once."""
    (found,) = (line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}="))
    return found


def token(**own: str) -> str:
    """By the provider's key, for whom the page expects."""
    expected: dict[str, Any] = {claim: value_of(OF_BROKER, name) for claim, name in CLAIMS.items()}
    return signed(**{**expected, **own})


CLIENT = "sasl.oauthbearer.client.credentials.client"
CREDENTIALS = b64encode(":".join(value_of(BY_ENDPOINT, f"{CLIENT}.{each}") for each in ("id", "secret")).encode())


class Provider(BaseHTTPRequestHandler):
    """Has the keys, and gives a token to the client of the page."""

    def do_GET(self) -> None:
        self._answer(200 if self.path == KEYS else 404, jwks(jwk(rsa_key(), "one")))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        is_known = self.path == TOKENS and self.headers["Authorization"] == f"Basic {CREDENTIALS.decode()}"
        given = {"access_token": token(sub="reports"), "expires_in": 600, "token_type": "Bearer"}
        self._answer(200 if is_known else 401, json.dumps(given).encode() if is_known else b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the test, where the pages' files lie; the system trusts their authority, too."""
    monkeypatch.chdir(tmp_path)
    servers = {"broker": ["localhost"], "provider": ["localhost"]}
    write_certificates(Path("certificates"), servers=servers, for_java=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(CA.resolve()))


@pytest.fixture
def provider(certificates: None) -> Iterator[str]:
    """Where the provider is; its key is made before two threads ask for it."""
    rsa_key()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("certificates/provider.pem")
    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def broker_of(settings: str, *arguments: str) -> Iterator[Serving]:
    for host in (HOST, ANOTHER_HOST):
        settings = settings.replace(host, f"localhost:{free_port()}")
    file = Path("server.properties")
    file.touch(0o600)
    file.write_text(settings)
    with serving([COMMAND, "serve", "--config", file, *arguments]) as served:
        yield served
        assert served.stop() == 0


def client_file(name: str, text: str) -> str:
    Path(name).touch(0o600)
    Path(name).write_text(text)
    return name


def lets_in(cli: CommandLine, file: str) -> bool:
    """Whether a client comes in by a file; one that does not says that its login is refused."""
    done = cli.run("topics", "list", "--command-config", file)
    assert done.returncode == 0 or b"refuses the login" in done.stderr, done.stderr
    return done.returncode == 0


def test_clients_of_the_page_log_in_by_tokens_of_its_provider(provider: str) -> None:
    tls = [line for line in FILES["server.properties"].splitlines() if line.startswith("ssl.keystore")]
    settings = OF_BROKER.replace(PROVIDER + KEYS, provider + KEYS) + "\n".join([*tls, "log.dirs=data"])
    here = Path("token").resolve()
    by_file = BY_FILE.replace(TOKEN_FILE, here.as_uri())
    assert by_file != BY_FILE
    *how, _ = BY_FILE.splitlines()
    by_endpoint = "\n".join([*how, BY_ENDPOINT.replace(PROVIDER + TOKENS, provider + TOKENS)])
    with broker_of(settings) as served:
        cli = CommandLine(f"localhost:{served.port}")
        file = client_file("client.properties", by_file)
        here.write_text(token(sub="ada"))
        assert lets_in(cli, file)
        for claim, another in (("aud", "another"), ("iss", "https://another.example/")):
            here.write_text(token(sub="ada", **{claim: another}))
            assert not lets_in(cli, file), another
        assert lets_in(cli, client_file("reports.properties", by_endpoint))
        wrong = by_endpoint.replace(value_of(BY_ENDPOINT, f"{CLIENT}.secret"), "wrong")
        done = cli.run("topics", "list", "--command-config", client_file("wrong.properties", wrong))
        assert done.returncode == 1
        assert b"401" in done.stderr


@pytest.fixture
def secured(certificates: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """The broker of the page on security, with this page's setting, and the user that the page's commands are of."""
    name, _, file = COMMANDS[0].removeprefix("export ").partition("=")
    monkeypatch.setenv(name, client_file(file, FILES["admin.properties"]))
    client_file("users", FILES["users"])
    with broker_of(f"{FILES['server.properties']}{SECRET_KEY}", "--add-scram", "@users") as served:
        yield CommandLine(f"localhost:{served.port}")


def typed(cli: CommandLine, line: str, token_id: str = "ID") -> list[list[str]]:
    """The rows that a command of the page prints below its heading."""
    return [row.split("\t") for row in cli.lines(*line.replace("ID", token_id).split()[1:])[1:]]


def test_delegation_token_is_created_described_renewed_and_expired_by_the_commands_of_the_page(
    secured: CommandLine,
) -> None:
    _, create, describe, renew, expire = COMMANDS
    ((token_id, hmac, owner, *_),) = typed(secured, create)
    assert (owner, len(hmac) > 40) == ("User:admin", True)
    ((shown, _, _, renewers, *_),) = typed(secured, describe)
    assert (shown, renewers) == (token_id, "User:scheduler")
    ((renewed, *_),) = typed(secured, renew, token_id)
    assert renewed == token_id
    typed(secured, expire, token_id)
    assert typed(secured, describe) == []


@pytest.mark.jvm
def test_holder_of_a_delegation_token_logs_in_by_the_settings_of_the_page(secured: CommandLine) -> None:
    _, create, *_, expire = COMMANDS
    ((token_id, hmac, *_),) = typed(secured, create)
    who = OF_HOLDER.replace('"ID"', f'"{token_id}"').replace('"HMAC"', f'"{hmac}"')
    tls = [line for line in FILES["admin.properties"].splitlines() if not line.startswith("sasl.")]
    file = client_file("holder.properties", "\n".join([*tls, who]))
    listing = ("--bootstrap-server", secured.bootstrap, "--command-config", file, "--list")
    run_kafka_tool(TOPIC_COMMAND, *listing)
    typed(secured, expire, token_id)
    refused = run_kafka_tool(TOPIC_COMMAND, *listing, check=False)
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr
