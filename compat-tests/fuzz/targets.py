"""What is fuzzed: functions of bytes that must end, by themselves, however the bytes came about.

Owns: the targets, what each may raise, what must hold of what it gives back, and inputs to begin with.  Does not own
who makes the bytes (``engine``, and the tests).

A target raises ``AssertionError``, or anything that its subject may not raise, where a mistake is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from pybroker.apis import APIS
from pybroker.config.jaas import JaasError, parse
from pybroker.security.certificates import CertificateError, read_certificate
from pybroker.security.login import Login, LoginFailed, Started
from pybroker.security.plain import PlainServer
from pybroker.security.sasl import SaslError
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


class _Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


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
    login, client, answer, honest = Login(lambda: mechanisms, _Clock()), _honest_client(), b"", False
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


def certificates(data: bytes) -> None:
    """A client's certificate; OpenSSL has judged it before."""
    with suppress(CertificateError):
        assert read_certificate(data).subject is not None


def jaas(data: bytes) -> None:
    """The lines of a setting; what is read is what would be written."""
    try:
        text = data.decode()
        modules = parse(text)
    except (UnicodeDecodeError, JaasError):
        return
    assert all(module.name for module in modules)


TARGETS: dict[str, Fuzzed] = {
    "requests": Fuzzed(requests, _small_messages),
    "responses": Fuzzed(responses, _small_messages),
    "records": Fuzzed(records, _batches),
    "logins": Fuzzed(logins, _steps),
    "certificates": Fuzzed(certificates, lambda: iter([b"0\x82\x01\x00" + b"0\x0a" * 40])),
    "jaas": Fuzzed(jaas, lambda: iter([b"a.B required user_a=\"x\\n\" b='y' /* c */ // d\n;"])),
}
