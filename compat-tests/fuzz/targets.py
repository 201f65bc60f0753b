"""What is fuzzed: functions of bytes that must end, by themselves, however the bytes came about.

Owns: the targets, what each may raise, what must hold of what it gives back, and inputs to begin with.  Does not own
who makes the bytes (``engine``, and the tests).

A target raises ``AssertionError``, or anything that its subject may not raise, where a mistake is found.
"""

from __future__ import annotations

import json
import re
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.name import _ASN1Type
from harness.virtual_world import VirtualClock

from pybroker.apis import APIS
from pybroker.config.jaas import FLAGS, JaasError, LoginModule, parse, text_of
from pybroker.security.bearer_tokens import BearerTokenValidator, Expectations
from pybroker.security.certificate_authority import write_certificates
from pybroker.security.certificates import CertificateError, read_alternative_names, read_certificate
from pybroker.security.key_sets import KeySet, parse_keys
from pybroker.security.login import Login, LoginFailed, Started
from pybroker.security.oauthbearer import OAuthBearerServer
from pybroker.security.oauthbearer import parse as parse_bearer_message
from pybroker.security.plain import PlainServer
from pybroker.security.sasl import NotYet, SaslError, SaslRefused
from pybroker.security.scram import SHA_256, Identity, ScramClient, ScramServer, credential_of
from pybroker.security.unknown_users import fake_credential
from pybroker_protocol import codec, messages
from pybroker_protocol.compression import Compression
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records
from pybroker_protocol.records import batches, is_intact
from pybroker_protocol.schema import Message

Target = Callable[[bytes], None]


class Fuzzed(NamedTuple):
    """A target, and inputs that a search begins with."""

    run: Target
    seeds: Callable[[], Iterator[bytes]]


# --- the wire --------------------------------------------------------------------------------------------------------

_SERVED = [(api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)]


def _message(cls: type[Message], version: int, data: bytes) -> None:
    """Bytes are refused, or are a message that is written and read again as it is."""
    try:
        message = codec.decode(cls, version, data)
    except ProtocolError:
        return
    written = codec.encode(message, version)
    again = codec.encode(codec.decode(cls, version, written), version)
    assert written == again, f"{cls.__name__} {version} is not what was written of it"


def requests(data: bytes) -> None:
    """A request of any API that is served: two bytes choose it."""
    if len(data) >= 2:
        key, version = _SERVED[int.from_bytes(data[:2]) % len(_SERVED)]
        _message(messages.request_class(key), version, data[2:])


def responses(data: bytes) -> None:
    """What another broker answers."""
    if len(data) >= 2:
        key, version = _SERVED[int.from_bytes(data[:2]) % len(_SERVED)]
        _message(messages.response_class(key), version, data[2:])


def _small_messages() -> Iterator[bytes]:
    for index in range(len(_SERVED)):
        yield index.to_bytes(2) + bytes(40)
        yield index.to_bytes(2) + b"\x00\x01\x00\x02ab\x02\x02ab\x01" * 4


def records(data: bytes) -> None:
    """Batches of records, as a producer sends them."""
    with suppress(ProtocolError):
        for pos, header in batches(data):
            batch = data[pos : pos + header.size_bytes]
            is_intact(batch)
            assert len(list(decode_records(batch, 1 << 20))) <= 1 << 20


def _batches() -> Iterator[bytes]:
    for compression in Compression:
        yield build_batch([(b"k", b"v" * 30)] * 3, timestamp_ms=1, compression=compression)
    yield build_batch([NewRecord(None, b"v", (("h", None),), 5)], timestamp_ms=1, producer_id=7, base_sequence=3)


# --- logins ----------------------------------------------------------------------------------------------------------

_USER, _PASSWORD, _SALT = "alice", b"secret", b"salt" * 4
_CREDENTIAL = credential_of(SHA_256, _PASSWORD, _SALT)
_SALTED = SHA_256.salted(_PASSWORD, _SALT, 4096)
_TOKEN = b"\0alice\0secret"
_TOKEN_BYTES_MAX = 200  # within a fuzzer's reach


class _Mechanisms:
    names: Sequence[str] = ("PLAIN", "SCRAM-SHA-256")

    def start(self, name: str) -> Started | None:
        if name == "PLAIN":
            return Started(PlainServer({_USER: _PASSWORD.decode()}))
        return Started(ScramServer(SHA_256, self._find, b"s" * 18)) if name in self.names else None

    def _find(self, user: str, is_token: bool) -> Identity:
        if user == _USER and not is_token:
            return Identity(_CREDENTIAL, user)
        return Identity(fake_credential(SHA_256, b"key", user, {}), None)


def logins(data: bytes) -> None:
    """A connection's steps; nobody gets in who did not show the password, and nobody goes on behind a failure.

    A byte chooses the step: a handshake of one of three mechanisms and two versions, a token (its length follows, and
    its bytes), or what an honest client would say next, with a byte of it changed or not.
    """
    mechanisms = _Mechanisms()
    login = Login(lambda: mechanisms, VirtualClock(), _TOKEN_BYTES_MAX)
    client, answer, honest = _honest_client(), b"", False
    pos = 0
    while pos < len(data):
        step, argument = data[pos] % 9, data[pos + 1] if pos + 1 < len(data) else 0
        pos += 2
        if step < 6:
            if login.may_begin():
                client, answer = _honest_client(), b""
                honest = step // 2 == 1
                with suppress(LoginFailed):
                    login.begin(("PLAIN", "SCRAM-SHA-256", "OTHER")[step // 2], step % 2)
            continue
        token = data[pos : pos + argument] if step == 6 else b""
        pos += len(token)
        if not login.is_in_exchange:
            continue
        if step != 6:
            try:
                token = client.final(answer) if answer else client.first()
            except SaslError:  # an honest client would go now
                return
        if step == 8:
            token = _changed(token, argument)
        honest = honest and step == 7
        before = login.session
        try:
            told = login.go_on(token)
            assert isinstance(told, bytes), "nothing is waited for here"
            answer = told
        except LoginFailed:
            assert not login.is_done(), "a failure is no login"
            assert not login.may_begin(), "behind a failure nothing begins"
            return
        if login.session is not before:
            assert login.session is not None
            assert login.session.principal == f"User:{_USER}", "it is somebody else"
            assert honest or token in (_TOKEN, b"alice" + _TOKEN), "nobody showed the password"


def _honest_client() -> ScramClient:
    return ScramClient(SHA_256, _USER, lambda salt, count: _SALTED if salt == _SALT else b"?" * 32, b"c" * 18)


def _changed(token: bytes, where: int) -> bytes:
    at = where % max(len(token) - 2, 1)  # the last digit of base 64 has bits that mean nothing
    return token[:at] + bytes((token[at] ^ (1 + where % 7),)) + token[at + 1 :]


def _steps() -> Iterator[bytes]:
    yield bytes((3, 0, 7, 0, 7, 0))  # an honest login by SCRAM
    yield bytes((3, 0, 7, 0, 8, 40))
    yield bytes((1, 0, 6, len(_TOKEN))) + _TOKEN
    yield bytes((0, 0, 6, len(_TOKEN))) + _TOKEN + bytes((1, 0, 6, 4)) + b"\0b\0c"
    for first in (b"n,,n=alice,r=x", b"n,a=bob,n=alice,r=x", b"y,,n=alice,r=x", b"n,,n=bob,r=x,tokenauth=true"):
        yield bytes((3, 0, 6, len(first))) + first + bytes((7, 0))


# --- bearer tokens ---------------------------------------------------------------------------------------------------

_SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_CLAIMS = b'{"sub": "alice", "iat": 1, "exp": 4102444800, "aud": "kafka", "scope": ["a"]}'
_HEADER = b'{"alg": "EdDSA", "kid": "one"}'


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


_KEY_SET = json.dumps(
    {
        "keys": [
            {
                "kty": "OKP", "crv": "Ed25519", "kid": "one",
                "x": _base64(_SIGNING_KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode(),
            }
        ]
    }
).encode()  # fmt: skip


class _Keys:
    """A set whose keys are there, and nothing is fetched."""

    _is_fetching = True
    _wait = None
    find: Callable[..., Any] = KeySet.find

    def __init__(self) -> None:
        self.keys = parse_keys(_KEY_SET)


_VALIDATOR = BearerTokenValidator(cast(KeySet, _Keys()), Expectations(("kafka",), None, 30, "sub", "scope"))


def _signed(header: bytes, claims: bytes) -> bytes:
    signing = _base64(header) + b"." + _base64(claims)
    return signing + b"." + _base64(_SIGNING_KEY.sign(signing))


def _bearer_message(token: bytes) -> bytes:
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def bearer_tokens(data: bytes) -> None:
    """A key set, or a client's message: nobody gets in by what the key has not signed, and any failure is a refusal.

    A byte chooses: a key set; a message; an honest one with bytes changed; a header and claims that the key signs.
    """
    kind, rest = (data[0] % 4, data[1:]) if data else (0, b"")
    if kind == 0:
        with suppress(ValueError):
            parse_keys(rest)
        return
    header, _, claims = rest.partition(b"\0") if kind == 3 else (_HEADER, b"", _CLAIMS)
    token = _signed(header, claims)
    message = rest if kind == 1 else _bearer_message(token)
    if kind == 2:
        changed = bytearray(message)
        for where, what in zip(rest[::2], rest[1::2], strict=False):
            changed[where % len(changed)] ^= what
        message = bytes(changed)
    server = OAuthBearerServer(_VALIDATOR.check)
    try:
        answer = server.evaluate(message)
    except (SaslError, SaslRefused):
        return
    if isinstance(answer, NotYet) or server.user is None:
        return
    shown = parse_bearer_message(message).token.encode()
    assert shown.rpartition(b".")[0] == token.rpartition(b".")[0], "the key has not signed it"
    assert server.user.strip(), "it is nobody's"
    assert server.expires_at_ms is not None, "it never ends"


def _bearer_messages() -> Iterator[bytes]:
    yield b"\0" + _KEY_SET
    yield b'\0{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}'
    yield b"\1" + _bearer_message(_signed(_HEADER, _CLAIMS))
    yield b"\1n,a=alice,\x01auth=Bearer " + _signed(_HEADER, _CLAIMS) + b"\x01traceId=1\x01\x01"
    yield b"\2\x20\1"
    yield b"\2"
    yield b"\3" + _HEADER + b"\0" + _CLAIMS
    yield b'\3{"alg": "none"}\0' + _CLAIMS
    yield b'\3{"alg": "EdDSA", "crit": ["b64"], "b64": false}\0{"sub": 1, "exp": 1e400}'


# --- certificates and settings ---------------------------------------------------------------------------------------

# What RFC 2253 has short names for, and whose values are therefore text.
_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
_PART = re.compile(r"([^=]+)=((?:\\.|[^\\,+])*)([,+]|$)", re.DOTALL)


def certificates(data: bytes) -> None:
    """A client's certificate: whom another reader takes it for, who reads as strictly as OpenSSL, is whom it is for.

    The bytes are one, and then what its subject consists of, with lengths around it that are right.
    """
    _read_twice(data)
    _read_twice(_issued_to(data))


def _read_twice(data: bytes) -> None:
    """By both readers.  Names are taken apart again, so that no value passes for a part of a name of its own."""
    try:
        read = read_certificate(data)
    except CertificateError:
        read = None
    try:
        with warnings.catch_warnings(action="ignore"):
            other = x509.load_der_x509_certificate(data)
            named = [each for part in reversed(other.subject.rdns) for each in part]
            times = other.not_valid_before_utc, other.not_valid_after_utc
    except (ValueError, TypeError, x509.InvalidVersion):  # what it does not read nobody has been let in with
        return
    assert read is not None, "OpenSSL's certificate is not read"
    assert (read.not_before, read.not_after) == times
    parts = _parts(read.subject)
    assert len(parts) == len(named), "a value makes parts of its own"
    for (key, text), attribute in zip(parts, named, strict=True):
        number = attribute.oid.dotted_string
        assert key == _KEYWORDS.get(number, number)
        # Java reads T.61 as Latin-1, the other reader as UTF-8.
        if key != number and attribute._type is not _ASN1Type.T61String:
            assert text == attribute.value
    names = _alternative_names(other)
    assert names is None or len(read_alternative_names(data)) == len(names)


def _alternative_names(certificate: x509.Certificate) -> set[x509.GeneralName] | None:
    """None where they cannot be read."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()
    except (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None


def _issued_to(subject: bytes) -> bytes:
    """A certificate whose subject's parts are these bytes; who reads it looks at no signature."""
    issuer, validity = _der(0x30), _der(0x30, _der(0x17, b"200101000000Z"), _der(0x18, b"20520101000000Z"))
    algorithm = _der(0x30, _der(0x06, b"\x2b\x65\x70"))
    key = _der(0x30, algorithm, _der(0x03, bytes(33)))
    of_subject = _der(0x30, subject)
    signed = _der(0x30, b"\xa0\x03\x02\x01\x02\x02\x01\x01", algorithm, issuer, validity, of_subject, key)
    return _der(0x30, signed, algorithm, _der(0x03, bytes(65)))


def _der(tag: int, *parts: bytes) -> bytes:
    value = b"".join(parts)
    size = bytes((len(value),)) if len(value) < 0x80 else b"\x82" + len(value).to_bytes(2)
    size = size if not 0x80 <= len(value) < 0x100 else b"\x81" + size[-1:]
    return bytes((tag,)) + size + value


def _parts(subject: str) -> list[tuple[str, str]]:
    """Keys and values of a name as RFC 2253 writes it."""
    parts, pos = [], 0
    while pos < len(subject):
        match = _PART.match(subject, pos)
        assert match is not None, "it is no name"
        parts.append((match[1], re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)))
        pos = match.end()
        assert pos < len(subject) or not match[3], "it ends in a separator"
    return parts


def _der_certificates() -> Iterator[bytes]:
    """Those of ``pybroker certs``, and one with all that a name may have in it."""
    with TemporaryDirectory() as directory:
        write_certificates(
            Path(directory), servers={"broker": ("localhost", "::1")}, clients=("alice",), for_java=False
        )
        for name in ("ca", "broker", "alice"):
            pem = (Path(directory) / f"{name}.pem").read_bytes()
            yield x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    many = _certificate_of_many_names()
    yield many
    yield x509.load_der_x509_certificate(many).subject.public_bytes()[3:]  # without its tag and length


def _certificate_of_many_names() -> bytes:
    def of(*attributes: tuple[str, str, _ASN1Type]) -> x509.RelativeDistinguishedName:
        return x509.RelativeDistinguishedName(
            [x509.NameAttribute(x509.ObjectIdentifier(oid), text, kind) for oid, text, kind in attributes]
        )

    text = _ASN1Type.UTF8String
    name = x509.Name(
        [
            of(("2.5.4.6", "DE", _ASN1Type.PrintableString), ("2.5.4.8", "Bavaria", _ASN1Type.BMPString)),
            of(("2.5.4.10", ' Tests, Inc. + "Sons" <a;b=c#\\>', text), ("2.5.4.11", "ü€", _ASN1Type.UniversalString)),
            of(("0.9.2342.19200300.100.1.25", "example", _ASN1Type.IA5String), ("2.999.1", "x", text)),
            of(("2.5.4.3", "alice ", _ASN1Type.T61String)),
        ]
    )
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    begins = datetime(2020, 2, 29, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins.replace(year=2052))
    return builder.sign(key, None).public_bytes(Encoding.DER)


def jaas(data: bytes) -> None:
    """The lines of a setting: what is read is what would be written, and what was written is what is read.

    The second is what nobody's name or password may break: the bytes are options of a module by turns.
    """
    text = data.decode(errors="replace")
    words = text.split("\0")
    written = LoginModule(words[0], FLAGS[len(words) % len(FLAGS)], dict(zip(words[1::2], words[2::2], strict=False)))
    assert parse(text_of(written)) == [written]
    try:
        modules = parse(text)
    except JaasError:
        return
    assert parse(" ".join(map(text_of, modules))) == modules


def _jaas_lines() -> Iterator[bytes]:
    yield b"a.B required user_a=\"x\\n\" b='y' /* c */ // d\n;"
    yield b'a.B optional; "c d" SUFFICIENT "=" = ";" x="\\101\\9" ;'
    yield b"a.B\0user_a\0p'a\"s\\s\nword; c required d=e;\0user_b\0"


TARGETS: dict[str, Fuzzed] = {
    "requests": Fuzzed(requests, _small_messages),
    "responses": Fuzzed(responses, _small_messages),
    "records": Fuzzed(records, _batches),
    "logins": Fuzzed(logins, _steps),
    "bearer_tokens": Fuzzed(bearer_tokens, _bearer_messages),
    "certificates": Fuzzed(certificates, _der_certificates),
    "jaas": Fuzzed(jaas, _jaas_lines),
}
