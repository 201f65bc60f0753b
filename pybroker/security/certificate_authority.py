"""Certificates for a trial or a test: an authority, and what it signs, as files that brokers and clients read.

Owns: keys, certificates and the files of a directory. ``ca.pem`` and ``ca.key`` are the authority's, and each name has
``<name>.pem`` (key and certificate, as Kafka's PEM stores have them). For Java there are ``<name>.p12``,
``truststore.p12`` and ``store.password``. Owns no listener (``tls_stores``). It needs the extra ``tls``.

Invariants:
- A secret is read by its owner alone: files with one are made with mode 0600 before anything is in them.
- Nothing that is there is replaced unless that is asked for, and nothing is written where anything would be refused.

Counterpart in Kafka: none; its documentation tells the commands of ``openssl`` and ``keytool``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
TRUST_STORE_FILE: Final = "truststore.p12"
PASSWORD_FILE: Final = "store.password"

_PEM: Final = serialization.Encoding.PEM
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_NAME: Final = re.compile(r"[\w@][\w.@-]{0,60}")
_TAKEN: Final = frozenset({"ca", "truststore", "store"})
# Clocks of two machines differ.
_BEGINS_EARLIER: Final = timedelta(hours=1)
_A_DAY: Final = timedelta(days=1)
# What may be used, of which an authority's key signs certificates and others signatures of handshakes.
_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class CertificatesRefused(ValueError):
    """These certificates are not made; the text says why, and nothing was written."""


class CertificatesExist(CertificatesRefused):
    """Files of these names are there already."""


class WrittenFile(NamedTuple):
    """A file that was written."""

    path: Path
    what: str


class WrittenCertificates(NamedTuple):
    """What ``write_certificates`` has written."""

    files: list[WrittenFile]
    ends_early: datetime | None  # with the authority, a day or more before what was asked for


class _Identity(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def pem(self) -> bytes:
        return self.key_pem() + self.certificate.public_bytes(_PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


class _NewFile(NamedTuple):
    name: str
    content: bytes
    what: str
    is_secret: bool = True


def write_certificates(
    directory: Path,
    *,
    servers: Mapping[str, Sequence[str]],
    clients: Iterable[str] = (),
    days: int = 365,
    for_java: bool = True,
    replace: bool = False,
) -> WrittenCertificates:
    """Write certificates into ``directory``, which is made if it is missing, and tell the files.

    ``servers`` has for each name the host names and addresses by which clients connect; ``clients`` are names of
    users.  The directory's authority signs them, and they end with it at the latest; without one a new one is made, for
    as many days.  CertificatesRefused where a name cannot be, CertificatesExist where a file is there and ``replace``
    does not say to write it anew; OSError.
    """
    wanted = {**{name: tuple(hosts) for name, hosts in servers.items()}, **dict.fromkeys(clients, ())}
    for name in wanted:
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise CertificatesRefused(f"{name!r} cannot be the name of a certificate's file")
    authority, files = _authority(directory, days)
    password, for_password = _password(directory) if for_java else ("", [])
    files += for_password
    for name, hosts in wanted.items():
        identity = _signed(authority, name, hosts, days)
        whose = "a broker" if hosts else "a client"
        files.append(_NewFile(f"{name}.pem", identity.pem(), f"key and certificate of {name}, {whose}"))
        if for_java:
            store = _key_store(identity, authority, name, password)
            files.append(_NewFile(f"{name}.p12", store, "the same for Java"))
    if for_java and not (directory / TRUST_STORE_FILE).exists():
        what = "the authority's certificate for Java"
        files.append(_NewFile(TRUST_STORE_FILE, _trust_store(authority, password), what))
    present = [file.name for file in files if (directory / file.name).exists()]
    if present and not replace:
        raise CertificatesExist(f"{directory} has {', '.join(present)} already")
    directory.mkdir(parents=True, exist_ok=True)
    last = authority.certificate.not_valid_after_utc
    early = last if last + _A_DAY <= datetime.now(UTC) + timedelta(days=days) else None
    return WrittenCertificates([_written(directory, file) for file in files], early)


def _authority(directory: Path, days: int) -> tuple[_Identity, list[_NewFile]]:
    """That of the directory, or a new one with the files that it is to have."""
    own, own_key = directory / CA_FILE, directory / CA_KEY_FILE
    if own.exists() or own_key.exists():
        try:
            key: Any = serialization.load_pem_private_key(own_key.read_bytes(), None)
            return _Identity(key, x509.load_pem_x509_certificate(own.read_bytes())), []
        except (ValueError, TypeError, OSError) as error:
            raise CertificatesRefused(f"{own} and {own_key} are no authority to go on with: {error}") from error
    authority = _new_authority(days)
    return authority, [
        _NewFile(
            CA_FILE,
            authority.certificate.public_bytes(_PEM),
            "the authority's certificate, for those that trust it",
            False,
        ),
        _NewFile(
            CA_KEY_FILE, authority.key_pem(), "the authority's key: signs more certificates, and is to stay secret"
        ),
    ]


def _password(directory: Path) -> tuple[str, list[_NewFile]]:
    file = directory / PASSWORD_FILE
    if file.exists():
        return file.read_text().strip(), []
    password = token_urlsafe(18)
    return password, [_NewFile(PASSWORD_FILE, f"{password}\n".encode(), "the password of all *.p12")]


# --- certificates ----------------------------------------------------------------------------------------------------


def _new_authority(days: int) -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("pybroker trial authority")
    builder = _builder(key, name, name, days).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), True)
    return _Identity(key, builder.sign(key, hashes.SHA256()))


def _signed(authority: _Identity, name: str, hosts: Sequence[str], days: int) -> _Identity:
    """A new key and its certificate; brokers are clients of one another, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    last = issuer.not_valid_after_utc
    builder = _builder(key, _subject(name), issuer.subject, days, last)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    by_key: Any = authority.key.public_key()
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage("digital_signature"), True)
        .add_extension(x509.ExtendedKeyUsage(purposes), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by_key), False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    return _Identity(key, builder.sign(authority.key, hashes.SHA256()))


def _builder(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, days: int, last: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    until = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEGINS_EARLIER)
        .not_valid_after(until if last is None else min(until, last))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _USAGES})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise CertificatesRefused(f"{host!r} is neither a host's name nor an address")
    return x509.DNSName(host)


# --- files -----------------------------------------------------------------------------------------------------------


def _key_store(identity: _Identity, authority: _Identity, name: str, password: str) -> bytes:
    encryption = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(
        name.encode(), identity.key, identity.certificate, [authority.certificate], encryption
    )


def _trust_store(authority: _Identity, password: str) -> bytes:
    """Java trusts no certificate of a PKCS#12 store that is not marked as trusted."""
    entry = pkcs12.PKCS12Certificate(authority.certificate, b"ca")
    return pkcs12.serialize_java_truststore([entry], serialization.BestAvailableEncryption(password.encode()))


def _written(directory: Path, file: _NewFile) -> WrittenFile:
    path = directory / file.name
    path.unlink(missing_ok=True)
    path.touch(0o600 if file.is_secret else 0o644, exist_ok=False)
    path.write_bytes(file.content)
    return WrittenFile(path, file.what)
