"""Keys, certificates and protocols of a listener, or of a client, as OpenSSL takes them.

Owns: reading key and trust stores (PEM, in files or in the settings themselves, and PKCS#12), and what each ``ssl.*``
setting means for a context.  Owns no connection (``net/tls_connection``).  Every error names its setting, and none
quotes a key or a password.

Invariant: a private key that was encrypted is never written to a disk in the clear.

Counterpart in Kafka: ``DefaultSslEngineFactory``.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple, Protocol

from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.named_files import read_named_file
from pybroker.config.schema import ConfigError
from pybroker.extras import how_to_install
from pybroker.security.certificates import CertificateError, read_alternative_names, read_certificate
from pybroker.security.principals import PrincipalMapper, RuleError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# Between the lines there is no third one: so a text of beginnings without ends costs no more than its length.
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_KEY: Final = re.compile(r"-----BEGIN ([A-Z ]{0,20})PRIVATE KEY-----(?:[^-]|-(?!----))*-----END \1PRIVATE KEY-----")
# The store itself as PEM; where it is, of which type, and its password.
_STORE_SETTINGS: Final = {
    "keystore": (
        "ssl.keystore.certificate.chain",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
    ),
    "truststore": (
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
    ),
}
LOCATIONS: Final = tuple(names[1] for names in _STORE_SETTINGS.values())
_JKS: Final = b"\xfe\xed\xfe\xed"
# Java's names of TLS 1.2's suites that OpenSSL knows by others: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
_JAVA_SUITE: Final = re.compile(r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_([A-Z0-9_]+)")
_OPENSSL_SUITE: Final = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)+")  # one, not a word for many, nor a security level
_TLS_1_3_SUITES: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_CCM_SHA256")
)


class StoreSettings(Protocol):
    """Settings ``ssl.*`` by their names: a ``ListenerSettings``, or a client's."""

    def get(self, setting: str) -> Any:
        """The parsed value; ConfigError."""
        ...

    def name_of(self, setting: str) -> str:
        """By which name it was set, for errors."""
        ...


class _File(NamedTuple):
    """A file that was read, and what it was then: its time, its place and its size."""

    path: str
    state: tuple[int, int, int] | None

    @staticmethod
    def at(path: str) -> _File:
        try:
            found = Path(path).stat()
        except (OSError, ValueError):
            return _File(path, None)
        return _File(path, (found.st_mtime_ns, found.st_ino, found.st_size))


class _Store(NamedTuple):
    """PEM texts; ``password`` opens the key.  ``setting`` says where they are, ``file`` where they were read, if it was
    one.  Printed without.
    """

    setting: str
    certificates: tuple[str, ...] = ()
    key: str | None = None
    password: str | None = None
    file: _File | None = None

    def __repr__(self) -> str:
        return "_Store([hidden])"


class Tls(NamedTuple):
    """What a listener speaks: both contexts, whose keys they show, and how its clients' certificates become names."""

    server: ssl.SSLContext
    client: ssl.SSLContext  # towards other brokers
    checks_host: bool
    subject: str
    alternative_names: frozenset[bytes]
    mapper: PrincipalMapper
    files: tuple[_File, ...]

    @property
    def has_newer_files(self) -> bool:
        """Whether its keys or certificates lie in a file that is another by now, as in Kafka's ``SecurityStore``."""
        now = [_File.at(file.path) for file in self.files]
        return any(found.state is not None and found != file for found, file in zip(now, self.files, strict=True))

    @property
    def wants_certificates(self) -> bool:
        """Whether no client is served without one."""
        return self.server.verify_mode is ssl.CERT_REQUIRED


def key_in_the_clear(settings: ListenerSettings) -> str | None:
    """The file with the listener's private key, where that is not encrypted."""
    location: str | None = settings.get("ssl.keystore.location")
    in_the_clear = settings.get("ssl.keystore.type").upper() == "PEM" and settings.get("ssl.key.password") is None
    return location if in_the_clear else None


def tls_of(settings: ListenerSettings, now_ms: int, *, with_sasl: bool) -> Tls:
    """The listener's TLS; raises ConfigError, also unless its certificate holds at ``now_ms`` of the wall clock.

    With SASL clients are asked for certificates only where the listener's own ``ssl.client.auth`` says so (KIP-684).
    """
    key_store = _key_store(settings)
    trust_store = _store(settings, "truststore")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own_auth = settings.is_own("ssl.client.auth")
    auth = settings.get("ssl.client.auth") if own_auth or not with_sasl else "none"
    for context in (server, client):
        _set_up(context, settings, key_store, trust_store)
    server.verify_mode = _CLIENT_AUTH[auth]
    server.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    checks_host = bool(settings.get("ssl.endpoint.identification.algorithm"))
    client.check_hostname = checks_host
    try:
        mapper = PrincipalMapper(settings.get("ssl.principal.mapping.rules"))
    except RuleError as error:
        raise ConfigError(f"{settings.name_of('ssl.principal.mapping.rules')}: {error}") from error
    files = tuple(store.file for store in (key_store, trust_store) if store is not None and store.file is not None)
    return Tls(server, client, checks_host, *_names(key_store, now_ms), mapper, files)


class ClientTls(NamedTuple):
    """What a client speaks by its own settings: as a context, and as PEM for libraries that bring an OpenSSL of their
    own.  Printed without its key.
    """

    context: ssl.SSLContext
    authorities: str
    certificates: str
    key: str
    key_password: str

    def __repr__(self) -> str:
        return "ClientTls([hidden])"


def client_tls(settings: StoreSettings) -> ClientTls:
    """A client's, which may have no key store; raises ConfigError."""
    key_store, trust_store = _store(settings, "keystore"), _store(settings, "truststore")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_up(context, settings, key_store, trust_store)
    context.check_hostname = bool(settings.get("ssl.endpoint.identification.algorithm"))
    own, trusted = key_store or _Store(""), trust_store or _Store("")
    return ClientTls(
        context,
        "\n".join(trusted.certificates),
        "\n".join(own.certificates),
        own.key or "",
        own.password or "",
    )


# --- stores ----------------------------------------------------------------------------------------------------------


def _key_store(settings: ListenerSettings) -> _Store:
    store = _store(settings, "keystore")
    if store is None:
        raise ConfigError(
            f"{settings.own_name('ssl.keystore.location')} is not set, nor is ssl.keystore.certificate.chain: "
            "a listener with TLS needs a key and a certificate"
        )
    return store


def _store(settings: StoreSettings, kind: str) -> _Store | None:
    """The key store or the trust store; None where none is set."""
    inline_name, *names = _STORE_SETTINGS[kind]
    location_name, type_name, password_name = map(settings.name_of, names)
    inline = settings.get(inline_name)
    location, type_, password = map(settings.get, names)
    type_ = type_.upper()
    if inline is not None:
        if type_ != "PEM":
            raise ConfigError(f"{type_name} is {type_}, but certificates in the settings themselves are PEM")
        if location is not None:
            raise ConfigError(f"{location_name} and certificates in the settings themselves exclude each other")
        return _pem(inline, settings, kind, inline_name, "its value", key=settings.get("ssl.keystore.key"))
    if location is None:
        if password is not None:
            raise ConfigError(f"{password_name} is set, but {location_name} is not")
        return None
    if type_ not in ("PEM", "PKCS12", "JKS"):
        raise ConfigError(f"{type_name} is {type_}: PEM and PKCS12 are served")
    file = _File.at(location)
    data = read_named_file(location, location_name)
    if data.startswith(_JKS):
        raise ConfigError(
            f"{location_name}: {location} is JKS, which only Java reads; convert it by: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12, "
            f"and set {type_name}=PKCS12"
        )
    if type_ == "PEM":
        if password is not None:
            raise ConfigError(f"{password_name} means nothing with PEM: the key's password is ssl.key.password")
        return _pem(data.decode(errors="replace"), settings, kind, location_name, location)._replace(file=file)
    if not data.startswith(b"\x30"):
        hint = f", but PEM: set {type_name}=PEM" if data.lstrip().startswith(b"-----BEGIN") else ""
        raise ConfigError(f"{location_name}: {location} is no PKCS12 store{hint}")
    return _pkcs12(data, settings, kind, location, password)._replace(file=file)


def _pem(text: str, settings: StoreSettings, kind: str, setting: str, source: str, key: str | None = None) -> _Store:
    certificates = tuple(match[0] for match in _CERTIFICATE.finditer(text))
    if not certificates:
        raise ConfigError(f"{setting}: {source} holds no certificate")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(certificates))
    except (ssl.SSLError, TypeError, ValueError):
        raise ConfigError(f"{setting}: {source} holds a certificate that cannot be read") from None
    if kind == "truststore":
        return _Store(setting, certificates)
    found = _KEY.search(text if key is None else key)
    if found is None:
        where = setting if key is None else settings.name_of("ssl.keystore.key")
        raise ConfigError(f"{where}: {source} holds no private key")
    return _Store(setting, certificates, found[0], settings.get("ssl.key.password"))


def _pkcs12(data: bytes, settings: StoreSettings, kind: str, location: str, password: str | None) -> _Store:
    location_name, password_name = settings.name_of(f"ssl.{kind}.location"), settings.name_of(f"ssl.{kind}.password")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise ConfigError(f"{location_name}: PKCS12 needs the extra: {how_to_install('tls')}") from None
    try:
        store: Any = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigError(f"{location_name}: {location} cannot be opened: is {password_name} right?") from None
    except UnsupportedAlgorithm:
        raise ConfigError(f"{location_name}: {location} is encrypted in a way that is not served") from None
    others = [each.certificate for each in store.additional_certs]
    own = [] if store.cert is None else [store.cert.certificate]
    certificates = tuple(each.public_bytes(serialization.Encoding.PEM).decode() for each in (*own, *others))
    if not certificates:
        raise ConfigError(f"{location_name}: {location} holds no certificate")
    if kind == "truststore":
        return _Store(location_name, certificates)
    if store.key is None:
        raise ConfigError(f"{location_name}: {location} holds no private key")
    throwaway = token_hex(32)
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(throwaway.encode()),
    )
    return _Store(location_name, certificates, key.decode(), throwaway)


# --- contexts --------------------------------------------------------------------------------------------------------


def _set_up(
    context: ssl.SSLContext, settings: StoreSettings, key_store: _Store | None, trust_store: _Store | None
) -> None:
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    if key_store is not None:
        _load_key(context, key_store)
    if trust_store is not None:
        context.load_verify_locations(cadata="\n".join(trust_store.certificates))
    else:
        context.load_default_certs()


def _load_key(context: ssl.SSLContext, store: _Store) -> None:
    """OpenSSL reads keys from files alone."""
    password = store.password if store.password is not None else ""
    with tempfile.TemporaryDirectory(prefix="pybroker-tls-") as directory:
        file = Path(directory) / "key.pem"
        file.touch(0o600)
        try:
            file.write_text("\n".join((store.key or "", *store.certificates)), "ascii")
            # Without a password OpenSSL would ask whoever sits at the terminal.
            context.load_cert_chain(file, password=lambda: password)
        except (ssl.SSLError, ValueError) as error:
            reason = _why_not(getattr(error, "reason", None))
            raise ConfigError(f"{store.setting}: the key and its certificate cannot be used: {reason}") from None
        finally:
            with suppress(OSError):
                file.write_bytes(b"\0" * file.stat().st_size)


def _why_not(reason: str | None) -> str:
    """What OpenSSL says of a key; it says nothing where the password does not open it."""
    if reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        return "the key does not fit the certificate"
    return reason.replace("_", " ").lower() if reason else "is the password right?"


def _names(store: _Store, now_ms: int) -> tuple[str, frozenset[bytes]]:
    """Whose certificate it is, and by which other names; ConfigError unless it holds at that time."""
    name = store.setting
    try:
        der = ssl.PEM_cert_to_DER_cert(store.certificates[0])
        certificate, alternative_names = read_certificate(der), read_alternative_names(der)
    except (CertificateError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from error
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    if certificate.not_after < now:
        raise ConfigError(f"{name}: the certificate of {certificate.subject} expired on {certificate.not_after:%F %T}")
    if certificate.not_before > now:
        raise ConfigError(f"{name}: the certificate of {certificate.subject} holds from {certificate.not_before:%F %T}")
    return certificate.subject, alternative_names


def _set_versions(context: ssl.SSLContext, settings: StoreSettings) -> None:
    enabled, highest = settings.get("ssl.enabled.protocols"), settings.get("ssl.protocol")
    for setting, names in (("ssl.enabled.protocols", enabled), ("ssl.protocol", (highest,))):
        unknown = [name for name in names if name not in _VERSIONS and name != "TLS"]
        if unknown or not names:
            raise ConfigError(
                f"{settings.name_of(setting)} names {', '.join(unknown) or 'nothing'}: "
                f"{', '.join(_VERSIONS)} are served"
            )
    versions = sorted(_VERSIONS[name] for name in enabled if name in _VERSIONS) or sorted(_VERSIONS.values())
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _set_ciphers(context: ssl.SSLContext, settings: StoreSettings) -> None:
    """Of TLS 1.2: those of TLS 1.3 are OpenSSL's own, which are all good.  A version without a suite is not spoken."""
    wanted = settings.get("ssl.cipher.suites")
    if not wanted:
        return
    setting = settings.name_of("ssl.cipher.suites")
    names = [_openssl_name(context, name, setting) for name in wanted if name not in _TLS_1_3_SUITES]
    if names:
        context.set_ciphers(":".join(names))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if len(names) == len(wanted):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise ConfigError(f"{setting} names no cipher suite of a version that is enabled")


def _openssl_name(context: ssl.SSLContext, name: str, setting: str) -> str:
    """The name of a suite of TLS 1.2; ConfigError for what is none."""
    match = _JAVA_SUITE.fullmatch(name)
    found = name
    if match is not None:
        exchange = "" if match[1] == "RSA" else match[1].replace("_", "-") + "-"
        cipher = re.sub(r"AES_(\d+)", r"AES\1", match[2]).replace("_CBC_", "_").replace("_", "-")
        found = exchange + cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
    try:
        if _OPENSSL_SUITE.fullmatch(found) is None:
            raise ssl.SSLError
        context.set_ciphers(found)
    except ssl.SSLError:
        raise ConfigError(f"{setting} names {name}, which is no cipher suite that is served") from None
    return found
