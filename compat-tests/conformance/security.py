"""How clients log in where a broker asks who they are: over TLS by SCRAM, or by a certificate.

Owns: the kinds of logins (``SECURITIES``), a broker that asks for one, which address has which, and what each library
of Python calls the settings.  Drivers of other languages are told by the field ``security`` of PROTOCOL.md.  Does not
own the clients: each asks ``of(bootstrap)`` when it opens anything.

A broker that asks has two listeners: the clients' one, and one in the clear for what the tests ask by themselves.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from harness.pybroker_process import COMMAND, serving

from pybroker.security.certificate_authority import CA_FILE, write_certificates

# The secured address and its login, as JSON; set by ``scripts/conformance --security``.
SECURED = "PYBROKER_CONFORMANCE_SECURED"
SCRAM_TLS, MTLS = SECURITIES = ("scram-tls", "mtls")

# kcat takes a comma in a setting for its end.
USER, PASSWORD, MECHANISM = "conformance", "pass-phrase with = in it", "SCRAM-SHA-512"
_LOOPBACK = "127.0.0.1"


class Login(NamedTuple):
    """What a client shows; files are PEM, ``certificate`` one with its key.  None where it shows no such thing."""

    ca: str
    mechanism: str | None = None
    user: str | None = None
    password: str | None = None
    certificate: str | None = None

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def fields(self) -> dict[str, Any]:
        """As drivers are told."""
        return {"protocol": self.protocol, **self._asdict()}

    def librdkafka(self) -> dict[str, Any]:
        return _given(
            {
                "security.protocol": self.protocol,
                "ssl.ca.location": self.ca,
                "ssl.certificate.location": self.certificate,
                "ssl.key.location": self.certificate,
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        )

    def kafka_python(self) -> dict[str, Any]:
        return _given(
            {
                "ssl_cafile": self.ca,
                "ssl_certfile": self.certificate,
                "ssl_keyfile": self.certificate,
                **self._of_python(),
            }
        )

    def aiokafka(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return {"ssl_context": context, **_given(self._of_python())}

    def _of_python(self) -> dict[str, Any]:
        return {
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


class Secured(NamedTuple):
    """A broker that asks: where clients connect and how they log in; ``plain`` is the address in the clear."""

    bootstrap: str
    plain: str
    login: Login

    def environment(self) -> dict[str, str]:
        return {SECURED: json.dumps({"bootstrap": self.bootstrap, "login": self.login._asdict()})}


def client_address(bootstrap: str) -> str:
    """Where clients of the run connect to, whose brokers are at ``bootstrap``: where they log in, if they are to."""
    told = os.environ.get(SECURED)
    return bootstrap if told is None else str(json.loads(told)["bootstrap"])


def of(bootstrap: str) -> Login | None:
    """How a client logs in at this address; None where nobody asks."""
    told = os.environ.get(SECURED)
    if told is None:
        return None
    secured = json.loads(told)
    return Login(**secured["login"]) if secured["bootstrap"] == bootstrap else None


@contextmanager
def secured_broker(directory: Path, security: str) -> Iterator[Secured]:
    """A pybroker whose clients log in by ``security``, which is one of ``SECURITIES``."""
    write_certificates(directory, servers={"broker": ["localhost", _LOOPBACK]}, clients=[USER], for_java=False)
    by_scram = security == SCRAM_TLS
    protocol = "SASL_SSL" if by_scram else "SSL"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / CA_FILE),
        "ssl.client.auth": "none" if by_scram else "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }
    ca = str(directory / CA_FILE)
    login = Login(ca, MECHANISM, USER, PASSWORD) if by_scram else Login(ca, certificate=str(directory / f"{USER}.pem"))
    address = f"{_LOOPBACK}:{_free_port()}"
    options = [each for name, text in settings.items() for each in ("--set", f"{name}={text}")]
    listen = ["--listen", f"{_LOOPBACK}:0", "--listen", f"{protocol}://{address}"]
    with serving([COMMAND, "serve", "--data-dir", directory / "data", *listen, *options]) as broker:
        if by_scram:
            make = [str(COMMAND), "users", "create", USER, "--mechanism", MECHANISM, "-b", broker.bootstrap]
            made = subprocess.run(make, input=PASSWORD, text=True, check=False, capture_output=True, timeout=60)
            assert made.returncode == 0, made.stderr
        yield Secured(address, broker.bootstrap, login)
        broker.stop()


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
