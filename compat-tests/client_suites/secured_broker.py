"""A broker for the tests of clients that are about security: one pybroker with a listener of each kind.

Owns: its listeners, its one user, its keys, and how suites get in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.broker_probe import free_port
from harness.pybroker_process import PybrokerProcess

from pybroker.config import jaas
from pybroker.security import plain, scram
from pybroker.security.certificate_authority import CA_FILE, write_certificates

# kafka-python's fixtures know this user by name and password.
USER, PASSWORD = "alice", "alice-secret"
_HOST = "localhost"


class SecuredBroker(NamedTuple):
    """Where clients log in, as ``HOST:PORT``, and the file with the authority of the TLS listener's certificate."""

    sasl_plaintext: str
    ssl: str
    ca: Path


@contextmanager
def secured_broker(directory: Path) -> Iterator[SecuredBroker]:
    """A pybroker whose users log in by PLAIN and SCRAM; without TLS, as the clients' tests of logins want it."""
    keys = directory / "certificates"
    write_certificates(keys, servers={"broker": (_HOST, PybrokerProcess.host)}, clients=(), days=1, for_java=False)
    secured = SecuredBroker(f"{_HOST}:{free_port()}", f"{_HOST}:{free_port()}", keys / CA_FILE)
    settings = {
        "sasl.enabled.mechanisms": ",".join((plain.MECHANISM, *scram.MECHANISMS)),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas.text_of(
            jaas.LoginModule(plain.LOGIN_MODULE, "REQUIRED", {f"user_{USER}": PASSWORD})
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
    }
    users = directory / "users"
    users.write_text("".join(f"{each}=[name={USER},password={PASSWORD}]\n" for each in scram.MECHANISMS))
    users.chmod(0o600)
    listen = ("--listen", f"SASL_PLAINTEXT://{secured.sasl_plaintext}", "--listen", f"SSL://{secured.ssl}")
    with PybrokerProcess(directory, settings, (*listen, "--add-scram", f"@{users}")):
        yield secured
