"""What a user says of a client: ``--bootstrap``, ``-X KEY=VALUE`` and ``--command-config``, put together once.

Owns: addresses, the order in which settings win, and who the client is (``Access``), as the commands' own connections
want to know it.  Names are librdkafka's, which are Kafka's but for keys and passwords.  Owns no connection
(``broker_connection``), and nothing of what a library makes of its other settings (``data_clients``, ``admin_client``).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused

if TYPE_CHECKING:
    from pybroker.cli.connection.bearer_logins import BearerTokens
    from pybroker.security.tls_stores import ClientTls

# librdkafka's names of what is ``--bootstrap`` here.
ADDRESSES: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
ADDRESSES_ELSEWHERE: Final = "--bootstrap names the brokers"
CLIENT_ID: Final = "pybroker"
PORT: Final = 9092
_PORT_MAX: Final = 65_535
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# By which the commands' own connections log in; besides, by a bearer token out of a file of settings.
_MECHANISMS: Final = (None, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# librdkafka's own second name, and those that kafka-python has, with dots.
_OTHER_NAMES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
}
# What must not be passed over in silence where it cannot be done.
OF_SECURITY: Final = ("security.", "sasl.", "ssl.")
# What of security the commands' own connections heed.  With any other setting they log in nowhere: it may be there to
# keep a password from a broker that this client would trust without it.
HEEDED_OF_SECURITY: Final = frozenset(
    {
        "enable.ssl.certificate.verification",
        "sasl.mechanism",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.check.hostname",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)


class ClientOptions(NamedTuple):
    """What a user gives every command for its client: addresses, ``-X KEY=VALUE``, and a file, over which
    those and the command's own options win."""

    bootstrap: str
    properties: Sequence[str] = ()
    file: str | None = None


class Address(NamedTuple):
    """Where a broker is said to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Access(NamedTuple):
    """How a client gets in.  ``is_known`` is false where only a library knows how.  Printed without the password.

    ``is_token``: the user is a delegation token, and the password its HMAC.
    """

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    tokens: BearerTokens | None = None
    is_known: bool = True
    client_id: str = CLIENT_ID
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Access({self.protocol}, {self.mechanism}, {self.user!r})"


class ClientSettings(NamedTuple):
    """The settings by librdkafka's names; of a file also its keys where they are no PEM files, and its tokens.

    ``is_delegation_token``: so is the file's user, for whom librdkafka has no login.
    """

    texts: dict[str, str]
    tls: ClientTls | None = None
    tokens: BearerTokens | None = None
    is_delegation_token: bool = False

    def access(self) -> Access:
        """Who the client is; CommandFailed for keys that cannot be read, a usage error for a protocol that is none."""
        protocol = self.texts.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise typer.BadParameter(f"security.protocol is {protocol}, and must be one of {', '.join(PROTOCOLS)}")
        context = None
        is_known = not any(name.startswith(OF_SECURITY) for name in self.texts if name not in HEEDED_OF_SECURITY)
        if protocol.endswith("SSL") and is_known:
            context = tls_context(self.texts) if self.tls is None else self.tls.context
        mechanism = self.texts.get("sasl.mechanism") if protocol.startswith("SASL") else None
        is_known &= mechanism in _MECHANISMS or (mechanism == "OAUTHBEARER" and self.tokens is not None)
        if protocol.startswith("SASL") and mechanism is None:
            raise misused(f"security.protocol is {protocol}, and sasl.mechanism is not set")
        return Access(
            protocol,
            context,
            mechanism,
            self.texts.get("sasl.username", ""),
            self.texts.get("sasl.password", ""),
            self.tokens,
            is_known,
            self.texts.get("client.id", CLIENT_ID),
            self.is_delegation_token,
        )


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dict, in order; the value may be empty and may hold further ``=``.

    Raises ``typer.BadParameter``.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{what} must be KEY=VALUE, got {text!r}")
        pairs[name] = value
    return pairs


def parse_addresses(bootstrap: str) -> list[Address]:
    """The addresses of ``--bootstrap``, without a port Kafka's own; raises ``typer.BadParameter``."""
    addresses = [_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise typer.BadParameter(f"--bootstrap (or PYBROKER_BOOTSTRAP) names no broker: {bootstrap!r}")
    return addresses


def _address(text: str) -> Address:
    # As Kafka's clients, which take PROTOCOL://HOST:PORT, too.
    rest = text.partition("://")[2] or text
    if rest.startswith("["):
        host, _, rest = rest[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, colon, port = rest.rpartition(":")
        if not colon:
            host, port = rest, ""
    if not host or (":" in host and "[" not in text):
        raise typer.BadParameter(f"--bootstrap: {text!r} is no HOST:PORT")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
        raise typer.BadParameter(f"--bootstrap: the port of {text!r} is no number from 1 to {_PORT_MAX}")
    return Address(host, int(port) if port else PORT)


def gathered(options: ClientOptions, known: Callable[[str], bool]) -> ClientSettings:
    """The file's settings and, over them, those of ``-X``; ``known`` says which names of the file the client has.

    Raises ``CommandFailed``, and ``typer.BadParameter`` for an ``-X`` that is no pair.
    """
    of_options = {canonical(name): value for name, value in parse_pairs(options.properties, "-X").items()}
    if options.file is None:
        return ClientSettings(of_options)
    from pybroker.cli.connection.client_file import file_settings

    of_file = file_settings(options.file, lambda name: known(canonical(name)))
    if of_file.tls is not None and any(name.startswith("ssl.") for name in of_options):
        raise CommandFailed(f"-X of TLS and the stores of {options.file} exclude each other: name all in the file")
    texts = {canonical(name): value for name, value in of_file.texts.items()}
    is_token = of_file.is_delegation_token and "sasl.username" not in of_options
    return ClientSettings({**texts, **of_options}, of_file.tls, of_file.tokens, is_token)


def canonical(name: str) -> str:
    """librdkafka's name of a setting, of those that it has by several names here."""
    return _OTHER_NAMES.get(name, name)


def checks_host_name(texts: Mapping[str, str]) -> bool:
    """Whether a certificate has to be for the name that was asked for."""
    if texts.get("ssl.check.hostname", "true").strip().lower() in ("false", "0", "no"):
        return False
    return texts.get("ssl.endpoint.identification.algorithm", "https").strip().lower() not in ("", "none")


def tls_context(texts: Mapping[str, str]) -> ssl.SSLContext:
    """TLS by librdkafka's settings of PEM files; CommandFailed for a file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host_name(texts)
    if texts.get("enable.ssl.certificate.verification", "true").strip().lower() in ("false", "0", "no"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    authorities, pem = texts.get("ssl.ca.location"), texts.get("ssl.ca.pem")
    key = texts.get("ssl.key.location") or texts.get("ssl.certificate.location")
    certificate, password = texts.get("ssl.certificate.location"), texts.get("ssl.key.password", "")
    setting, path = "ssl.ca.location", authorities
    try:
        if authorities is not None and authorities != "probe":
            context.load_verify_locations(authorities)
        elif pem is not None:
            setting, path = "ssl.ca.pem", None
            context.load_verify_locations(cadata=pem)
        else:
            context.load_default_certs()
        if certificate is not None:
            setting, path = "ssl.certificate.location", certificate
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, password=lambda: password)
    except ssl.SSLError as error:
        reason = (error.reason or "is ssl.key.password right?").replace("_", " ").lower()
        raise CommandFailed(f"{setting}: {path or 'its value'} cannot be used: {reason}") from error
    except OSError as error:
        raise CommandFailed(f"{setting}: {path} cannot be read: {error.strerror}") from error
    return context
