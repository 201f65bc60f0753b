"""``pybroker certs``: what it writes serves brokers and clients, in PEM and for Java, and only its owner reads keys."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from harness.waiting import PATIENCE_S

from pybroker.extras import how_to_install
from pybroker.testing import Broker
from tests.cli.command import CommandLine


def certs(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = CommandLine("").run("certs", *map(str, arguments))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "certificates"
    done = certs("--dir", directory, "--host", "kafka.example", "--client", "alice", "--json")
    assert done.returncode == 0, done.stderr
    assert {Path(each["file"]).name for each in json.loads(done.stdout)} == {
        *("ca.pem", "ca.key", "broker.pem", "broker.p12", "alice.pem", "alice.p12", "truststore.p12", "store.password")
    }
    return directory


def test_only_their_owner_may_read_keys(directory: Path) -> None:
    for file in directory.iterdir():
        others = file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        assert others == 0 or file.name == "ca.pem", file


def test_a_brokers_certificate_has_the_names_that_clients_connect_by(directory: Path) -> None:
    certificate = x509.load_pem_x509_certificate((directory / "broker.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kafka.example"} <= set(names.get_values_for_type(x509.DNSName))
    assert {str(each) for each in names.get_values_for_type(x509.IPAddress)} >= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("stores", ["PEM", "PKCS12"])
def test_broker_and_clients_find_each_other_by_what_was_made(directory: Path, stores: str) -> None:
    password = (directory / "store.password").read_text().strip()
    settings: dict[str, Any] = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "ssl.keystore.type": stores,
        "ssl.truststore.type": stores,
    }
    if stores == "PEM":
        settings |= {"ssl.keystore.location": directory / "broker.pem", "ssl.truststore.location": directory / "ca.pem"}
    else:
        settings |= {
            "ssl.keystore.location": directory / "broker.p12",
            "ssl.keystore.password": password,
            "ssl.truststore.location": directory / "truststore.p12",
            "ssl.truststore.password": password,
        }
    settings = {name: str(value) for name, value in settings.items()}
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        cli = CommandLine(broker.bootstrap)
        client = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={directory / 'ca.pem'}")
        key = directory / "alice.pem"
        shown = ("-X", f"ssl.certificate.location={key}", "-X", f"ssl.key.location={key}")
        cli.ok("topics", "create", "t", *client, *shown)
        assert cli.run("topics", "list", *client).returncode == 1, "without a certificate"


def test_javas_stores_open_with_the_password_beside_them_and_hold_the_same(directory: Path) -> None:
    password = (directory / "store.password").read_bytes().strip()
    store = pkcs12.load_pkcs12((directory / "alice.p12").read_bytes(), password)
    pem = x509.load_pem_x509_certificate((directory / "alice.pem").read_bytes())
    assert store.cert is not None
    assert store.cert.certificate == pem
    assert store.key is not None
    trusted = pkcs12.load_pkcs12((directory / "truststore.p12").read_bytes(), password)
    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    assert [each.certificate for each in trusted.additional_certs] == [authority]


def test_strict_clients_accept_the_chain(directory: Path) -> None:
    """Python 3.13 asks for what RFC 5280 asks for."""
    client = ssl.create_default_context(cafile=directory / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "broker.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="kafka.example")
    asked = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [asking, asked]
    for side in (asking, asked, asking, asked):
        if side in waiting:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


def test_another_client_gets_its_certificate_from_the_same_authority(directory: Path) -> None:
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    done = certs("--dir", directory, "--only-clients", "--client", "bob", "--no-java")
    assert done.returncode == 0, done.stderr
    after = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert after.keys() - before.keys() == {"bob.pem"}
    assert before.items() <= after.items()
    authority = x509.load_pem_x509_certificate(after["ca.pem"])
    x509.load_pem_x509_certificate(after["bob.pem"]).verify_directly_issued_by(authority)


def test_nothing_is_replaced_unless_that_is_asked_for_and_never_the_authority(directory: Path) -> None:
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    refused = certs("--dir", directory, "--client", "carol")
    assert refused.returncode == 1
    assert (
        "has broker.pem, broker.p12 already; --dir names another directory, and --replace overwrites them"
        in refused.stderr
    )
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before
    assert certs("--dir", directory, "--replace").returncode == 0
    after = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert after["broker.pem"] != before["broker.pem"]
    assert after["ca.pem"] == before["ca.pem"]


def test_what_ends_with_its_authority_and_earlier_than_asked_for_is_told_so(tmp_path: Path) -> None:
    first = certs("--dir", tmp_path, "--days", "10", "--no-java")
    assert (first.returncode, first.stderr) == (0, "")
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    later = certs("--dir", tmp_path, "--only-clients", "--client", "alice", "--no-java", "--days", "30")
    assert later.returncode == 0
    end = authority.not_valid_after_utc
    assert later.stderr == f"the certificates expire with their authority, on {end:%Y-%m-%d}, and not in 30 days\n"
    assert x509.load_pem_x509_certificate((tmp_path / "alice.pem").read_bytes()).not_valid_after_utc == end
    within = certs("--dir", tmp_path, "--only-clients", "--client", "bob", "--no-java", "--days", "10")
    assert (within.returncode, within.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--client", "../alice"), 1),
        (("--client", "ca"), 1),
        (("--host", "ü.example"), 1),
        (("--host", ""), 1),
        (("--host", "a b;c"), 1),
        (("--only-clients",), 2),
        (("--only-clients", "--client", "bob"), 1),
        (("--days", "0"), 2),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    done = certs("--dir", tmp_path / "new", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['cryptography'] = None\n"
        f"sys.argv = ['pybroker', 'certs', '--dir', {str(tmp_path / 'new')!r}]\n"
        "from pybroker.cli.main import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"pybroker: certificates need the extra: {how_to_install('tls')}\n"
