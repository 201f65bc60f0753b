"""What is said where no broker is reached: each cause by its own sentence, by every kind of command."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness.broker_probe import refusing_port
from harness.waiting import PATIENCE_S

from pybroker.cli.connection.bearer_logins import BearerTokens
from pybroker.cli.connection.broker_connection import BrokerConnection, NotReached, Step
from pybroker.cli.connection.client_settings import Access, Address, parse_addresses
from pybroker.security.certificate_authority import write_certificates
from pybroker.testing import Broker
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pybroker_protocol.schema import Request, Response
from tests.cli.command import CommandLine, forked_commands
from tests.cli.scripted_broker import Stop, scripted_broker

PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


@dataclass(frozen=True)
class Cluster:
    """Brokers that let clients in in different ways, and keys to do so."""

    keys: Path
    addresses: dict[str, str]

    def settings(self, protocol: str, *more: str) -> list[str]:
        given = [f"security.protocol={protocol}", *more]
        if protocol.endswith("SSL") and not any(each.startswith("ssl.ca") for each in given):
            given.append(f"ssl.ca.location={self.keys / 'ca.pem'}")
        return [option for each in given for option in ("-X", each)]


def tls_of(keys: Path, name: str, auth: str = "none") -> dict[str, str]:
    return {
        "ssl.client.auth": auth,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / f"{name}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys / "ca.pem"),
    }


@contextmanager
def answering(said: bytes, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Who takes connections, in TLS if it has some, reads what comes and says this to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client = listener.accept()[0]
                except OSError:
                    return
                with client, suppress(OSError):
                    client.settimeout(PATIENCE_S)
                    if context is not None:
                        context.wrap_socket(client, server_side=True).close()
                        continue
                    client.recv(1 << 16)
                    client.sendall(said)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    others = tmp_path_factory.mktemp("others") / "keys"
    write_certificates(keys, servers={"broker": ["127.0.0.1"], "elsewhere": ["elsewhere.example"]}, clients=["alice"])
    write_certificates(others, servers={"broker": ["127.0.0.1"]}, clients=["mallory"])
    (keys / "other-ca.pem").write_bytes((others / "ca.pem").read_bytes())
    (keys / "mallory.pem").write_bytes((others / "mallory.pem").read_bytes())
    sasl = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }
    with (
        Broker() as plain,
        Broker(tls_of(keys, "broker"), listen="SSL://127.0.0.1:0") as tls,
        Broker(tls_of(keys, "elsewhere"), listen="SSL://127.0.0.1:0") as elsewhere,
        Broker(tls_of(keys, "broker", "required"), listen="SSL://127.0.0.1:0") as mutual,
        Broker(sasl, listen="SASL_PLAINTEXT://127.0.0.1:0") as login,
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as http,
        answering(b"") as silent,
        refusing_port() as refusing,
    ):
        addresses = {
            "plain": plain.bootstrap,
            "tls": tls.bootstrap,
            "elsewhere": elsewhere.bootstrap,
            "mutual": mutual.bootstrap,
            "login": login.bootstrap,
            "http": http,
            "silent": silent,
            "refused": f"127.0.0.1:{refusing}",
            "unnamed": "no-such-name.invalid:9092",
        }
        yield Cluster(keys, addresses)


AS_ALICE = ("sasl.mechanism=PLAIN", "sasl.username=alice")
CASES = [
    ("unnamed", "PLAINTEXT", (), "the name no-such-name.invalid does not resolve"),
    ("refused", "PLAINTEXT", (), "ADDRESS refuses the connection; probably no broker listens there"),
    ("http", "PLAINTEXT", (), "what answers at ADDRESS does not speak Kafka's protocol"),
    ("silent", "PLAINTEXT", (), "ADDRESS takes the connection and closes it without an answer"),
    ("tls", "PLAINTEXT", (), "ADDRESS speaks TLS; set security.protocol=SSL, or SASL_SSL where users log in"),
    ("plain", "SSL", (), "ADDRESS speaks no TLS; set security.protocol=PLAINTEXT"),
    (
        "login",
        "SASL_SSL",
        (*AS_ALICE, "sasl.password=x"),
        "ADDRESS speaks no TLS; set security.protocol=SASL_PLAINTEXT",
    ),
    ("tls", "SSL", ("ssl.ca.location=KEYS/other-ca.pem",), "no authority that is trusted here has signed"),
    ("elsewhere", "SSL", (), "its certificate is not for this address"),
    ("mutual", "SSL", (), "ssl.certificate.location and ssl.key.location, or by ssl.keystore.location"),
    (
        "mutual",
        "SSL",
        ("ssl.certificate.location=KEYS/mallory.pem", "ssl.key.location=KEYS/mallory.pem"),
        "it does not know the authority of this client's certificate",
    ),
    ("login", "PLAINTEXT", (), "ADDRESS asks for a login; set security.protocol=SASL_PLAINTEXT, sasl.mechanism (PLAIN"),
    ("plain", "SASL_PLAINTEXT", (*AS_ALICE, "sasl.password=x"), "ADDRESS takes no logins; set security.protocol=PLAIN"),
    (
        "login",
        "SASL_PLAINTEXT",
        (*AS_ALICE, "sasl.password=wrong"),
        "ADDRESS refuses the login of alice by PLAIN: Authentication failed: Invalid username or password",
    ),
    (
        "login",
        "SASL_PLAINTEXT",
        ("sasl.mechanism=SCRAM-SHA-256", "sasl.username=bob", "sasl.password=wrong"),
        "ADDRESS refuses the login of bob by SCRAM-SHA-256",
    ),
    (
        "login",
        "SASL_PLAINTEXT",
        ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=bob", "sasl.password=x"),
        "ADDRESS does not take logins by SCRAM-SHA-512 (sasl.mechanism); it takes: PLAIN, SCRAM-SHA-256",
    ),
    ("tls", "SSL", ("ssl.ca.location=/no/such.pem",), "ssl.ca.location: /no/such.pem cannot be read: No such file"),
]
ADVICE = "Is --bootstrap right? `pybroker doctor` checks each step of the way."
COMMANDS = (("topics", "list"), ("produce", "t"), ("consume", "t", "-e"), ("sql", "-e", "SHOW TOPICS"))


# Commands wait for these, which may be brokers that start.
AWAITED = ("refused", "silent")


@pytest.fixture(scope="module")
def waited(cluster: Cluster) -> dict[tuple[str, tuple[str, ...]], subprocess.CompletedProcess[bytes]]:
    """How commands end that wait for a broker, by its name and theirs: they wait at the same time."""
    asked = [(where, command) for where in AWAITED for command in COMMANDS]

    def run(each: tuple[str, tuple[str, ...]]) -> subprocess.CompletedProcess[bytes]:
        where, command = each
        words = [str(forked_commands().bin / "pybroker"), *command, *cluster.settings("PLAINTEXT")]
        environment = CommandLine(cluster.addresses[where]).environment()
        return subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S
        )

    with ThreadPoolExecutor(len(asked)) as threads:
        return dict(zip(asked, threads.map(run, asked), strict=True))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(("where", "protocol", "settings", "sentence"), CASES)
def test_each_cause_has_its_sentence(
    cluster: Cluster,
    request: pytest.FixtureRequest,
    command: tuple[str, ...],
    where: str,
    protocol: str,
    settings: tuple[str, ...],
    sentence: str,
) -> None:
    address = cluster.addresses[where]
    if where in AWAITED:
        assert (protocol, settings) == ("PLAINTEXT", ())
        finished = request.getfixturevalue("waited")[where, command]
    else:
        given = cluster.settings(protocol, *(each.replace("KEYS", str(cluster.keys)) for each in settings))
        finished = CommandLine(address).run(*command, *given)
    line, *advice = finished.stderr.decode().splitlines()
    assert advice == ([ADVICE] if where in ("refused", "unnamed") else [])
    assert sentence.replace("ADDRESS", address) in line
    assert finished.returncode == 1
    assert finished.stdout == b""
    assert "secret" not in line


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "localhost:port"], "is no number from 1 to 65535"),
        (["-b", "localhost:65536"], "is no number from 1 to 65535"),
        (["-X", "security.protocol=TLS"], "must be one of"),
        (["-X", "security.protocol=SASL_SSL"], "sasl.mechanism is not set"),
    ],
)
def test_what_no_client_could_take_is_wrong_use(
    cluster: Cluster, command: tuple[str, ...], arguments: list[str], message: str
) -> None:
    finished = CommandLine(cluster.addresses["plain"]).run(*command, *arguments)
    # Usage errors come in a box, which breaks lines.
    assert message in re.sub(r"[│\s]+", " ", finished.stderr.decode())
    assert finished.returncode == 2


def test_who_is_let_in_is_told_nothing(cluster: Cluster) -> None:
    given = cluster.settings("SASL_PLAINTEXT", *AS_ALICE, "sasl.password=alice-secret")
    cli = CommandLine(cluster.addresses["login"])
    cli.ok("topics", "create", "t", "-p", "1", *given)
    for command in (("topics", "list"), ("produce", "t"), ("consume", "t", "-e")):
        assert cli.run(*command, *given).stderr == b""


def test_one_broker_of_several_is_enough(cluster: Cluster) -> None:
    both = f"{cluster.addresses['refused']},{cluster.addresses['plain']}"
    CommandLine(both).ok("topics", "list")
    none = CommandLine(f"{cluster.addresses['refused']},{cluster.addresses['unnamed']}").run("topics", "list")
    assert [line.partition(" ")[0] for line in none.stderr.decode().splitlines()] == [
        "pybroker:",
        "the",
        "Is",
    ], "a line for each address, and one with what to do"


def test_who_answers_nothing_is_told_after_the_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        with BrokerConnection(address, Access(), 0.1) as connection, pytest.raises(NotReached) as caught:
            connection.open()
    assert caught.value.step is Step.PROTOCOL
    assert str(caught.value) == f"{address} takes the connection and answers nothing within 0.1 s"


TOLD = '{"status":"invalid_token"}'
BEARER = Access("SASL_PLAINTEXT", mechanism="OAUTHBEARER", tokens=BearerTokens(lambda: ("t0ken", 600.0)))


def failure_to_open(address: str, access: Access) -> NotReached:
    (where,) = parse_addresses(address)
    with BrokerConnection(where, access, PATIENCE_S) as connection, pytest.raises(NotReached) as caught:
        connection.open()
    return caught.value


@pytest.mark.parametrize("error_code", [0, 58])
def test_a_bearer_whose_token_is_refused_is_not_let_in(error_code: int) -> None:
    shown = []

    def script(request: Request) -> Response:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])
        assert isinstance(request, SaslAuthenticateRequest)
        shown.append(bytes(request.auth_bytes))
        if len(shown) == 1:
            return SaslAuthenticateResponse(error_code=0, auth_bytes=TOLD.encode())
        return SaslAuthenticateResponse(error_code=error_code, error_message=TOLD, auth_bytes=b"")

    with scripted_broker(script, (SaslHandshakeRequest, SaslAuthenticateRequest)) as address:
        failure = failure_to_open(address, BEARER)
    assert str(failure) == f"{address} refuses the login by OAUTHBEARER: {TOLD}"
    assert (failure.step, failure.passes) == (Step.LOGIN, False)
    assert shown == [b"n,,\x01auth=Bearer t0ken\x01\x01", b"\x01"]


def test_a_login_for_which_there_is_no_token_any_more_is_tried_again() -> None:
    def fetched() -> tuple[str, float]:
        raise ValueError("the endpoint answers with 503")

    def script(_: Request) -> Response:
        return SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])

    with scripted_broker(script, (SaslHandshakeRequest,)) as address:
        failure = failure_to_open(address, BEARER._replace(tokens=BearerTokens(fetched)))
    assert (failure.step, str(failure), failure.passes) == (Step.LOGIN, "the endpoint answers with 503", True)


@pytest.mark.parametrize("access", [BEARER, Access()], ids=["with a login", "without"])
def test_a_broker_that_stops_in_the_middle_of_a_login_is_tried_again(access: Access) -> None:
    def script(_: Request) -> Response:
        raise Stop

    with scripted_broker(script, (SaslHandshakeRequest, SaslAuthenticateRequest, MetadataRequest)) as address:
        failure = failure_to_open(address, access)
    assert str(failure) == f"{address} closes the connection in the middle of the login"
    assert (failure.step, failure.passes) == (Step.LOGIN, True)


def test_a_broker_without_logins_is_told_by_its_own_word() -> None:
    def script(_: Request) -> Response:
        return SaslHandshakeResponse(error_code=34, mechanisms=[])

    with scripted_broker(script, (SaslHandshakeRequest,)) as address:
        failure = failure_to_open(address, BEARER)
    assert str(failure) == f"{address} takes no logins; set security.protocol=PLAINTEXT"
    assert not failure.passes


def test_a_broker_that_stops_in_a_handshake_of_tls_is_tried_again() -> None:
    with answering(b"") as address:
        failure = failure_to_open(address, Access("SSL", ssl.create_default_context()))
    assert str(failure) == f"TLS with {address} fails: the connection is closed in the handshake"
    assert (failure.step, failure.passes) == (Step.TLS, True)


def of_the_past(file: Path) -> None:
    """A certificate of 2020 that has signed itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2020, 1, 2, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    clear = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, clear)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )


def test_a_certificate_that_has_ended_is_told(tmp_path: Path) -> None:
    of_the_past(tmp_path / "ended.pem")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "ended.pem")
    with answering(b"", server) as address:
        options = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={tmp_path / 'ended.pem'}")
        told = CommandLine(address).run("topics", "list", *options).stderr.decode()
    assert f"TLS with {address} fails: its certificate has expired; have it made anew" in told
