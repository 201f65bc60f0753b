"""``pybroker certs``: certificates for a trial by one command: an authority, a broker, clients.

Owns: the options and what is printed.  Owns no certificate (``security/certificate_authority``).
Counterpart: what Kafka's documentation does with ``openssl`` and ``keytool``.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import Json, misused, repeated
from pybroker.cli.terminal.output import Output, remark
from pybroker.config.listeners import canonical_host_name
from pybroker.extras import how_to_install

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DAYS_MAX = 36_500


def certs(
    *,
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="The directory of the files; an authority that lies there signs."),
    ] = Path("certificates"),
    hosts: Annotated[
        list[str],
        repeated(
            "--host", metavar="NAME", help="A name or address of the broker, beside loopback and this host's name."
        ),
    ],
    broker: Annotated[
        str, typer.Option("--broker", metavar="NAME", help="The broker's name, in its certificate and of its files.")
    ] = "broker",
    clients: Annotated[
        list[str], repeated("--client", metavar="NAME", help="A client that gets a certificate of its own.")
    ],
    days: Annotated[
        int,
        typer.Option(
            "--days", min=1, max=_DAYS_MAX, help="Days until certificates expire, at most those of their authority."
        ),
    ] = 365,
    for_java: Annotated[
        bool, typer.Option("--java/--no-java", help="Write PKCS#12 stores for Java beside the PEM files.")
    ] = True,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite files that exist, but no authority.")] = False,
    only_clients: Annotated[bool, typer.Option("--only-clients", help="Make no certificate of a broker.")] = False,
    as_json: Json = False,
) -> None:
    """Make certificates for a trial: an authority, and what it signs for a broker and clients.

    Keys are not encrypted; only the owner of their files may read them.
    """
    try:
        from pybroker.security.certificate_authority import (
            CA_KEY_FILE,
            CertificatesExist,
            CertificatesRefused,
            write_certificates,
        )
    except ModuleNotFoundError:
        raise CommandFailed(f"certificates need the extra: {how_to_install('tls')}") from None
    if only_clients and not clients:
        raise misused("--only-clients needs a --client")
    if only_clients and not (directory / CA_KEY_FILE).exists():
        raise CommandFailed(f"{directory} has no authority ({CA_KEY_FILE}), whose certificates the brokers know")
    own = dict.fromkeys((*_LOOPBACK, socket.gethostname(), canonical_host_name(), *hosts))
    try:
        written = write_certificates(
            directory,
            servers={} if only_clients else {broker: list(own)},
            clients=clients,
            days=days,
            for_java=for_java,
            replace=replace,
        )
    except CertificatesExist as error:
        raise CommandFailed(f"{error}; --dir names another directory, and --replace overwrites them") from error
    except CertificatesRefused as error:
        raise CommandFailed(str(error)) from error
    document = [{"file": str(file.path), "what": file.what} for file in written.files]
    Output(as_json=as_json).result(document, ("FILE", "WHAT"), [tuple(each.values()) for each in document])
    if written.ends_early is not None:
        remark(
            f"the certificates expire with their authority, on {written.ends_early:%Y-%m-%d}, and not in {days} days"
        )
