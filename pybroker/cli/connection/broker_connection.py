"""One connection to one broker, made step by step, so that what fails can be said: name, TCP, TLS, protocol, login.

Owns: the steps and their order, requests in messages of ``pybroker_protocol``, and the sentence for each way in which
a broker is not reached.  Owns no retries (``reachability``) and no settings (``client_settings``).

A step that fails raises ``NotReached``.  Where the two sides speak different protocols, a second connection asks in the
other one, so that the sentence says what the broker speaks, and does not guess.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import time
from contextlib import suppress
from enum import StrEnum
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, Self

from pybroker.cli.connection.client_settings import CLIENT_ID, Access, Address
from pybroker.cli.terminal.failure import CommandFailed, describe_error_code
from pybroker.public import PeerApi
from pybroker.security import oauthbearer, plain, scram
from pybroker.security.sasl import SaslError
from pybroker_protocol.errors import ErrorCode, ProtocolError
from pybroker_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from pybroker_protocol.schema import Request

if TYPE_CHECKING:
    from pybroker.cli.connection.bearer_logins import BearerTokens

# So much of its life a login is used for, as by Kafka's clients.
_USED_FOR: Final = 0.85
_REPLY_BYTES_MAX: Final = 128 << 20
_READ_BYTES: Final = 1 << 16
_TLS_RECORDS: Final = (0x14, 0x15, 0x16, 0x17)  # the first byte of what a side says that speaks TLS
_PLAIN_TEXT: Final = re.compile(rb"[\t\r\n\x20-\x7e]{4}")  # as of HTTP, and of no length of Kafka's
_NO_MECHANISM: Final = "pybroker-asks-which"
_OF_CERTIFICATES: Final = {
    9: "its certificate is not valid yet; compare the clocks, or wait for the date",
    10: "its certificate has expired; have it made anew",
    62: "its certificate is not for this name; ask by a name that it has",
    64: "its certificate is not for this address; ask by a name that it has",
}
_UNTRUSTED: Final = (
    "no authority that is trusted here has signed its certificate; name the authority's file by ssl.ca.location, "
    "or by ssl.truststore.location as Java's clients do"
)
_OF_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it asks for a certificate; name one by ssl.certificate.location and ssl.key.location, "
    "or by ssl.keystore.location as Java's clients do",
    "BAD_CERTIFICATE": "it does not take this client's certificate; is it one of the broker's authority?",
    "UNKNOWN_CA": "it does not know the authority of this client's certificate; have it signed by one that it trusts",
    "CERTIFICATE_UNKNOWN": "it does not take this client's certificate; is it one of the broker's authority?",
    "CERTIFICATE_EXPIRED": "this client's certificate has expired; have it made anew",
    "PROTOCOL_VERSION": "both sides share no version of TLS",
    "HANDSHAKE_FAILURE": "both sides share no cipher suite, or it asks clients for a certificate",
}


class Step(StrEnum):
    """What a connection is made of, in its order."""

    NAME = "name"
    TCP = "tcp"
    TLS = "tls"
    PROTOCOL = "protocol"
    LOGIN = "login"


class NotReached(CommandFailed):
    """A step has failed.  ``passes``: it may succeed in a moment, as where a broker starts anew."""

    def __init__(self, step: Step, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.step = step
        self.passes = passes


class _Closed(Exception):
    """The other side has closed the connection, or a reply is none of Kafka's: ``said`` is how it began."""

    def __init__(self, said: bytes = b"") -> None:
        super().__init__()
        self.said = said


class BrokerConnection:
    """Blocking.  ``open`` does all steps; a doctor does them one by one."""

    def __init__(self, address: Address, access: Access, timeout_s: float) -> None:
        """``timeout_s`` bounds each wait for the other side."""
        self.address = address
        self._access = access
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self._ends_s = math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def open(self) -> None:
        """All steps; NotReached."""
        try:
            self.connect(self.resolve())
            if self._access.protocol.endswith("SSL"):
                self.start_tls()
            self.ask_versions()
            self.log_in()
        except BaseException:
            self.close()
            raise

    # --- steps -------------------------------------------------------------------------------------------------------

    def resolve(self) -> list[tuple[Any, ...]]:
        """Where the name points to, as ``socket`` wants it."""
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            message = f"the name {self.address.host} does not resolve ({why})"
            raise NotReached(Step.NAME, message, passes=getattr(error, "errno", None) == socket.EAI_AGAIN) from error
        return [(family, sockaddr) for family, _, _, _, sockaddr in found]

    def connect(self, places: list[tuple[Any, ...]]) -> None:
        """TCP to the first place that takes it."""
        failed: OSError | None = None
        for family, sockaddr in places:
            found = socket.socket(family, socket.SOCK_STREAM)
            found.settimeout(self._timeout_s)
            try:
                found.connect(sockaddr)
            except OSError as error:
                found.close()
                failed = failed or error
            else:
                self._socket = found
                return
        raise NotReached(Step.TCP, self._tcp_failure(failed), passes=True) from failed

    def start_tls(self) -> None:
        """The handshake, and the check of the broker's certificate."""
        assert self._socket is not None
        context = self._access.tls
        assert context is not None
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address.host)
        except (ssl.SSLError, OSError) as error:
            self.close()
            raise self._tls_failure(error) from error

    def certificate(self) -> dict[str, Any]:
        """The broker's, as ``ssl`` tells it."""
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert() or {}

    def ask_versions(self) -> None:
        """ApiVersions, the first thing that is said in Kafka's protocol."""
        try:
            response = self._versions_response()
        except _Closed as closed:
            raise self._protocol_failure(closed) from closed
        if response.error_code:
            why = describe_error_code(response.error_code)
            raise NotReached(Step.PROTOCOL, f"{self.address} answers ApiVersions with {why}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features or []}

    def log_in(self) -> None:
        """SASL, or the proof that none is wanted."""
        try:
            if self._access.mechanism is None:
                self._exchange(MetadataRequest(topics=[]), self._shared_version(MetadataRequest))
            else:
                self._authenticate(self._access.mechanism)
        except _Closed as closed:
            raise self._login_failure() from closed
        except NotReached:
            raise
        except CommandFailed as error:
            # What one logs in by, or asks without a login, is not served: as by a listener of controllers.
            raise NotReached(Step.LOGIN, f"{error}; is it a listener for clients?") from error

    # --- requests ----------------------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and its login lasts."""
        return self._socket is not None and time.monotonic() < self._ends_s

    def wait_for(self, timeout_s: float) -> None:
        """Bound each wait for the other side by another time."""
        assert self._socket is not None
        self._timeout_s = timeout_s
        self._socket.settimeout(timeout_s)

    def ask(self, request: Request, min_version: int = 0, max_version: int | None = None) -> Any:
        """The response in the highest version that both sides know; ``CommandFailed`` where they share none."""
        try:
            return self._exchange(request, self._shared_version(type(request), min_version, max_version))
        except _Closed as closed:
            name = type(request).__name__.removesuffix("Request")
            message = f"{self.address} closes the connection in place of an answer to {name}"
            raise NotReached(Step.PROTOCOL, message, passes=True) from closed

    def _shared_version(
        self, request_class: type[Request], min_version: int = 0, max_version: int | None = None
    ) -> int:
        key, own = request_class.__declaration__.key, request_class.__declaration__.versions
        assert key is not None
        assert own is not None
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, own.highest if max_version is None else max_version)
        if version < max(lowest, own.lowest, min_version):
            name = request_class.__name__.removesuffix("Request")
            raise CommandFailed(f"{self.address} does not serve {name} in a version that is known here")
        return version

    def _exchange(self, request: Request, version: int) -> Any:
        """One request and its response; ``_Closed``, NotReached."""
        assert self._socket is not None
        api = PeerApi(type(request), version)
        self._correlation_id += 1
        try:
            self._socket.sendall(api.frame(request, self._correlation_id, self._access.client_id))
            return api.response(memoryview(self._frame()), self._correlation_id)
        except TimeoutError as error:
            message = f"{self.address} takes the connection and answers nothing within {self._timeout_s:g} s"
            raise NotReached(Step.PROTOCOL, message, passes=True) from error
        except ssl.SSLError as error:
            # In TLS 1.3 a client's certificate is judged behind the handshake.
            raise self._tls_failure(error) from error
        except (OSError, ProtocolError) as error:
            raise _Closed from error

    def _frame(self) -> bytes:
        head = self._received(4, b"")
        size = int.from_bytes(head, "big")
        if head[0] in _TLS_RECORDS or _PLAIN_TEXT.fullmatch(head) or size > _REPLY_BYTES_MAX:
            raise _Closed(head)
        return self._received(size, head)

    def _received(self, count: int, before: bytes) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(min(count - len(data), _READ_BYTES))
            if not chunk:
                raise _Closed(before or bytes(data))
            data += chunk
        return bytes(data)

    def _versions_response(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        try:
            response = self._exchange(request, 3)
        except _Closed as closed:
            if not isinstance(closed.__cause__, ProtocolError):
                raise
            # A broker that does not know the version answers in version 0.
            response = self._exchange(request, 0)
        assert isinstance(response, ApiVersionsResponse)
        return response

    # --- login -------------------------------------------------------------------------------------------------------

    def _authenticate(self, mechanism: str) -> None:
        answer = self._exchange(SaslHandshakeRequest(mechanism=mechanism), 1)
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._takes_no_logins()
        if answer.error_code:
            has = ", ".join(answer.mechanisms) or "none"
            message = f"{self.address} does not take logins by {mechanism} (sasl.mechanism); it takes: {has}"
            raise NotReached(Step.LOGIN, message)
        if mechanism in scram.MECHANISMS:
            self._scram(scram.MECHANISMS[mechanism])
        elif mechanism == plain.MECHANISM:
            self._shown(f"\0{self._access.user}\0{self._access.password}".encode())
        elif mechanism == oauthbearer.MECHANISM and self._access.tokens is not None:
            self._bear(self._access.tokens)

    def _bear(self, tokens: BearerTokens) -> None:
        try:
            token = tokens.token()
        except (ValueError, OSError) as error:
            # The first token was there when the settings were read, so that the next one may be in a moment.
            raise NotReached(Step.LOGIN, str(error), passes=True) from error
        told = self._shown(oauthbearer.message_of(token))
        if told:
            # By RFC 7628 a refusal is an answer like another; the error comes behind the client's consent to it.
            self._shown(oauthbearer.CONSENT)
            raise self._refused(told.decode(errors="replace"))

    def _scram(self, mechanism: scram.ScramMechanism) -> None:
        password = self._access.password.encode()

        def salted(salt: bytes, iterations: int) -> bytes:
            return mechanism.salted(password, salt, iterations)

        nonce = token_bytes(scram.NONCE_BYTES)
        client = scram.ScramClient(mechanism, self._access.user, salted, nonce, is_token=self._access.is_token)
        try:
            client.finish(self._shown(client.final(self._shown(client.first()))))
        except SaslError as error:
            message = f"{self.address} does not prove that it knows the password ({error}); is it the right cluster?"
            raise NotReached(Step.LOGIN, message) from error

    def _shown(self, data: bytes) -> bytes:
        """What is answered to a step of the login."""
        version = self._shared_version(SaslAuthenticateRequest)
        answer = self._exchange(SaslAuthenticateRequest(auth_bytes=data), version)
        if answer.error_code:
            raise self._refused(answer.error_message or describe_error_code(answer.error_code))
        if answer.session_lifetime_ms > 0:
            self._ends_s = time.monotonic() + answer.session_lifetime_ms / 1_000 * _USED_FOR
        return bytes(answer.auth_bytes)

    def _refused(self, told: str) -> NotReached:
        who = f"the login of {self._access.user}" if self._access.user else "the login"
        return NotReached(Step.LOGIN, f"{self.address} refuses {who} by {self._access.mechanism}: {told.rstrip('.')}")

    # --- sentences ---------------------------------------------------------------------------------------------------

    def _tcp_failure(self, error: OSError | None) -> str:
        if isinstance(error, ConnectionRefusedError):
            return f"{self.address} refuses the connection; probably no broker listens there"
        if isinstance(error, TimeoutError):
            return f"{self.address} does not answer within {self._timeout_s:g} s; is a firewall in between?"
        return f"{self.address} cannot be reached: {'no address' if error is None else error.strerror or error}"

    def _tls_failure(self, error: OSError) -> NotReached:
        if isinstance(error, ssl.SSLCertVerificationError):
            told = _OF_CERTIFICATES.get(error.verify_code, _UNTRUSTED)
            return NotReached(Step.TLS, f"TLS with {self.address} fails: {told} ({error.verify_message})")
        if isinstance(error, TimeoutError):
            message = f"{self.address} takes the connection and does not answer to TLS within {self._timeout_s:g} s"
            return NotReached(Step.TLS, message, passes=True)
        # Who dies in a handshake ends the connection without a word of TLS.
        reason = "" if isinstance(error, ssl.SSLEOFError) else getattr(error, "reason", None) or ""
        for alert, told in _OF_ALERTS.items():
            if reason.endswith(alert):
                return NotReached(Step.TLS, f"TLS with {self.address} fails: {told}")
        if self._answers_in("PLAINTEXT"):
            fitting = self._access.protocol.replace("SSL", "PLAINTEXT")
            return NotReached(Step.TLS, f"{self.address} speaks no TLS; set security.protocol={fitting}")
        why = reason.replace("_", " ").lower() or "the connection is closed in the handshake"
        return NotReached(Step.TLS, f"TLS with {self.address} fails: {why}", passes=not reason)

    def _protocol_failure(self, closed: _Closed) -> NotReached:
        protocol = self._access.protocol
        if not protocol.endswith("SSL") and (closed.said[:1] in map(_byte, _TLS_RECORDS) or self._answers_in("SSL")):
            fitting = "SASL_SSL" if protocol.startswith("SASL") else "SSL, or SASL_SSL where users log in"
            return NotReached(Step.TLS, f"{self.address} speaks TLS; set security.protocol={fitting}")
        if closed.said or isinstance(closed.__cause__, ProtocolError):
            return NotReached(Step.PROTOCOL, f"what answers at {self.address} does not speak Kafka's protocol")
        message = f"{self.address} takes the connection and closes it without an answer"
        return NotReached(Step.PROTOCOL, message, passes=True)

    def _login_failure(self) -> NotReached:
        """Of a connection that was closed where one logs in, or may ask without."""
        self.close()
        mechanisms = self._mechanisms()
        if self._access.mechanism is None and mechanisms:
            fitting = "SASL_SSL" if self._access.protocol.endswith("SSL") else "SASL_PLAINTEXT"
            message = (
                f"{self.address} asks for a login; set security.protocol={fitting}, sasl.mechanism "
                f"({' or '.join(mechanisms)}), sasl.username and sasl.password"
            )
            return NotReached(Step.LOGIN, message)
        if self._access.mechanism is not None and mechanisms == []:
            return self._takes_no_logins()
        return NotReached(Step.LOGIN, f"{self.address} closes the connection in the middle of the login", passes=True)

    def _takes_no_logins(self) -> NotReached:
        fitting = self._access.protocol.removeprefix("SASL_")
        return NotReached(Step.LOGIN, f"{self.address} takes no logins; set security.protocol={fitting}")

    def _answers_in(self, protocol: str) -> bool:
        """Whether the broker answers in TLS, whatever its certificate, or without."""
        with suppress(CommandFailed, OSError, _Closed), self._another(protocol):
            return True
        return False

    def _mechanisms(self) -> list[str] | None:
        """Those of the broker's logins; empty where it asks for none, None where it does not say."""
        protocol = self._access.protocol.removeprefix("SASL_")
        with suppress(CommandFailed, OSError, _Closed), self._another(protocol) as other:
            answer = other._exchange(SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1)
            return list(answer.mechanisms)
        return None

    def _another(self, protocol: str) -> BrokerConnection:
        """A connection that trusts whatever it meets, as far as ApiVersions; nothing of a user is said on it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        other = BrokerConnection(self.address, Access(protocol, context), self._timeout_s)
        try:
            other.connect(other.resolve())
            if protocol == "SSL":
                other._handshake(context)
            else:
                other._versions_response()
        except BaseException:
            other.close()
            raise
        return other

    def _handshake(self, context: ssl.SSLContext) -> None:
        assert self._socket is not None
        self._socket = context.wrap_socket(self._socket, server_hostname=self.address.host)


def _byte(number: int) -> bytes:
    return bytes((number,))
