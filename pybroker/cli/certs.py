"""``pybroker certs``: certificates for a trial by one command: an authority, a broker, clients.

Owns: the options and what is printed.  Owns no certificate (``security/certificate_authority``).
Counterpart: what Kafka's documentation does with ``openssl`` and ``keytool``.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from pybroker.cli.failure import CommandFailed
from pybroker.cli.options import Json, repeated
from pybroker.cli.output import Output, remark
from pybroker.config.listeners import canonical_host_name
from pybroker.extras import how_to_install

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DAYS_MAX = 36_500


def certs(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where to; an authority that lies there signs.")
    ] = Path("certificates"),
    hosts: Annotated[
        list[str],
        repeated("--host", metavar="NAME", help="How clients reach the broker, beside loopback and this host's name."),
    ],
    broker: Annotated[str, typer.Option("--broker", metavar="NAME", help="The broker's file and name.")] = "broker",
    clients: Annotated[
        list[str], repeated("--client", metavar="NAME", help="A client that shows a certificate; repeatable.")
    ],
    days: Annotated[
        int,
        typer.Option(
            "--days", min=1, max=_DAYS_MAX, help="For how long they hold, at most for as long as their authority."
        ),
    ] = 365,
    for_java: Annotated[bool, typer.Option("--java/--no-java", help="PKCS#12 stores beside PEM.")] = True,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write files anew that are there, but no authority.")
    ] = False,
    only_clients: Annotated[bool, typer.Option("--only-clients", help="No broker's certificate.")] = False,
    as_json: Json = False,
) -> None:
    """Make certificates for a trial: an authority, and what it signs for a broker and clients.

    Keys lie in the clear, in files that only their owner may read.
    """
    try:
        from pybroker.security.certificate_authority import CA_KEY_FILE, CertificatesRefused, write_certificates
    except ModuleNotFoundError:
        raise CommandFailed(f"certificates need the extra: {how_to_install('tls')}") from None
    if only_clients and not clients:
        raise typer.BadParameter("--only-clients wants a --client")
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
    except CertificatesRefused as error:
        raise CommandFailed(str(error)) from error
    document = [{"file": str(file.path), "what": file.what} for file in written.files]
    Output(as_json=as_json).result(document, ("FILE", "WHAT"), [tuple(each.values()) for each in document])
    if written.ends_early is not None:
        remark(f"they end with their authority, on {written.ends_early:%Y-%m-%d}, and not in {days} days")
