"""How clients log in where a broker asks who they are: over TLS by SCRAM, or by a certificate.

Owns: the kinds of logins (``SECURITIES``), a broker that asks for one, and which address has which.  Drivers of other
languages are told by the field ``security`` of PROTOCOL.md.  Does not own the clients: each asks
``access_to(bootstrap)`` when it opens anything.

A broker that asks has two listeners: the clients' one, and one in the clear for what the tests ask by themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from harness.broker_probe import free_port
from harness.client_access import access_from_json, access_to_json
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S

from pybroker.security.certificate_authority import PASSWORD_FILE, write_certificates
from pybroker.security.client_access import ClientAccess
from pybroker.testing.security import Security

# The secured address and its login, as JSON; set by ``scripts/conformance --security``.
SECURED = "PYBROKER_CONFORMANCE_SECURED"
SCRAM_TLS, MTLS = SECURITIES = ("scram-tls", "mtls")

# kcat takes a comma in a setting for its end.
USER, PASSWORD, MECHANISM = "conformance", "pass-phrase with = in it", "SCRAM-SHA-512"
_LOOPBACK = "127.0.0.1"


class Secured(NamedTuple):
    """A broker that asks: how clients get in; ``plain`` is the address in the clear."""

    access: ClientAccess
    plain: str

    def environment(self) -> dict[str, str]:
        return {SECURED: json.dumps(access_to_json(self.access))}


def client_address(bootstrap: str) -> str:
    """Where clients of the run connect to, whose brokers are at ``bootstrap``: where they log in, if they are to."""
    secured = _secured()
    return bootstrap if secured is None else secured.bootstrap


def access_to(bootstrap: str) -> ClientAccess:
    """How a client gets in at this address: as everybody, where nobody asks."""
    secured = _secured()
    return secured if secured is not None and secured.bootstrap == bootstrap else ClientAccess(bootstrap)


def driver_fields(access: ClientAccess) -> dict[str, Any] | None:
    """As drivers are told; None where nobody asks."""
    if access.protocol == "PLAINTEXT":
        return None
    given = access_to_json(access)
    names = {name: name for name in ("protocol", "ca", "mechanism", "user", "password")} | {"certificate": "key"}
    fields = {name: given.get(field) or None for name, field in names.items()}
    if access.key is not None:
        password = access.key.with_name(PASSWORD_FILE).read_text().strip()
        fields |= {"key_store": str(access.key.with_suffix(".p12")), "key_store_password": password}
    return fields


def _java_stores(certificates: Path) -> None:
    """The user's certificate anew, as PKCS#12 as well: Java's clients below 3.0 take no PEM without a password."""
    write_certificates(certificates, servers={}, clients=[USER], days=1, for_java=True, replace=True)


def _secured() -> ClientAccess | None:
    told = os.environ.get(SECURED)
    return None if told is None else access_from_json(json.loads(told))


@contextmanager
def secured_broker(directory: Path, security: str) -> Iterator[Secured]:
    """A pybroker whose clients log in by ``security``, which is one of ``SECURITIES``."""
    by_scram = security == SCRAM_TLS
    asked = Security("SASL_SSL" if by_scram else "SSL", {USER: PASSWORD}, client_auth=not by_scram)
    settings = asked.prepare(directory)
    access = asked.access(f"{_LOOPBACK}:{free_port()}", directory, USER, MECHANISM if by_scram else None)
    if access.key is not None:
        _java_stores(access.key.parent)
    options = [each for name, text in settings.items() for each in ("--set", f"{name}={text}")]
    listen = ["--listen", f"{_LOOPBACK}:0", "--listen", f"{asked.protocol}://{access.bootstrap}"]
    with serving([COMMAND, "serve", "--data-dir", directory / "data", *listen, *options]) as broker:
        if by_scram:
            make = [str(COMMAND), "users", "create", USER, "--mechanism", MECHANISM, "-b", broker.bootstrap]
            made = subprocess.run(make, input=PASSWORD, text=True, check=False, capture_output=True, timeout=PATIENCE_S)
            assert made.returncode == 0, made.stderr
        yield Secured(access, broker.bootstrap)
        broker.stop()
