"""TLS between a socket and its connection: a protocol to the one's transport, a transport to the other.

Owns: the handshake, and what is encrypted and not yet decrypted.  Owns neither keys (``security/tls_stores``) nor what
the bytes mean.

TLS is done by OpenSSL's own objects (``ssl.SSLObject`` over memory), not by the loop's. The loop's TLS reads each
connection into a buffer of 256 KiB of its own and reports no handshake that fails or never ends. It also counts what
waits to be encrypted beside what waits to be sent. Here what is received is decrypted straight into the connection's
buffer, and what is sent is encrypted at once, so that there is one account of unsent bytes, the socket's.

Invariants: a connection behind this hears of a client only once its handshake is over; a TLS session is never
renegotiated.

Kafka counterpart: SslTransportLayer.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from pybroker import cluster_limits, limits
from pybroker.net.accepted_connection import AcceptedConnection, peer_host_of
from pybroker.security.certificates import CertificateError, read_certificate
from pybroker.security.principals import NoMatchingRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pybroker.env import Cancellable, Timers
    from pybroker.net.processor import Processor
    from pybroker.security.tls_stores import Tls

# What OpenSSL takes for a message of the handshake as soon as its length is known, whatever has come of it: 128 KiB,
# and its buffers.
TLS_MESSAGE_BYTES = 176 << 10

_HANDSHAKE_RECORD = 0x16

# What is encrypted before it is handed on: four of its records.
TLS_WRITE_BYTES = 64 << 10


class TlsConnection(asyncio.BufferedProtocol):
    """``scratch`` is where encrypted bytes are read to: all may share one."""

    encrypts = True  # what is written here is not what the socket sends
    __slots__ = (
        "_inner",
        "_is_delivering",
        "_is_paused",
        "_raw",
        "_scratch",
        "_ssl",
        "_to_decrypt",
        "_to_send",
        "closed",
    )

    def __init__(self, scratch: memoryview) -> None:
        self._scratch = scratch
        self._raw: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self._inner: asyncio.BufferedProtocol | None = None  # until the handshake is over
        self._ssl: ssl.SSLObject | None = None
        self._to_decrypt = ssl.MemoryBIO()
        self._to_send = ssl.MemoryBIO()
        self._is_paused = False
        self._is_delivering = False
        self.closed = False

    # --- what the two sides do ---------------------------------------------------------------------------------------

    def _wrapped(self) -> ssl.SSLObject | None:
        """The session, at the first bytes; None where those are not of TLS."""
        raise NotImplementedError

    def _opened(self) -> asyncio.BufferedProtocol | None:
        """The handshake is over: the protocol that reads from now on; None if there is none."""
        raise NotImplementedError

    def _failed(self, reason: str) -> None:
        """There is no handshake."""
        raise NotImplementedError

    def _broken_by(self, _error: ssl.SSLError) -> None:
        """What came after the handshake cannot be read, or is an alert."""
        self.abort()

    def _waits_for_the_rest(self, of_a_message: bool) -> None:
        """The handshake goes on when more has come, of a message that has begun or another one."""

    # --- the socket's transport's callbacks --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        self._to_decrypt.write(self._scratch[:nbytes])
        if self._inner is None and not self._shake_hands():
            return
        self._deliver()

    def eof_received(self) -> bool:
        if self._inner is not None:
            self._inner.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        inner, self._inner = self._inner, None
        self._ssl = None
        if inner is not None:
            inner.connection_lost(exc)
        else:
            self._lost_early()

    def _lost_early(self) -> None:
        """It is gone, and there was no handshake."""

    # --- the handshake and what is received --------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Go on with the handshake; whether it is over."""
        session = self._ssl
        if session is None:
            self._ssl = session = self._wrapped()
        if session is None:
            return False
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            self._waits_for_the_rest(not self._to_send.pending)
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            reason = _reason_of(error)
            detail = f" ({error.verify_message})" if isinstance(error, ssl.SSLCertVerificationError) else ""
            self._failed(f"no TLS handshake: {reason}{detail}")
            return False
        self._flush()
        self._inner = inner = self._opened()
        if inner is None:
            return False
        inner.connection_made(cast(asyncio.Transport, self))
        return not self.closed

    def _deliver(self) -> None:
        """Decrypt what is here, straight into the connection's buffer, for as long as it reads."""
        session, to_decrypt = self._ssl, self._to_decrypt
        if self._is_delivering or session is None:
            return
        self._is_delivering = True
        try:
            has_ended = self._decrypt(session, to_decrypt)
        finally:
            self._is_delivering = False
        if self._to_send.pending:
            self._flush()
        if has_ended and not self.closed:
            self.close()

    def _decrypt(self, session: ssl.SSLObject, to_decrypt: ssl.MemoryBIO) -> bool:
        """Hand over what can be decrypted; whether the other side has said that nothing more comes."""
        has_ended = False
        while not (self._is_paused or self.closed) and (to_decrypt.pending or session.pending()):
            inner = self._inner
            if inner is None:
                break
            space = memoryview(inner.get_buffer(-1))
            capacity, received = len(space), 0
            try:
                while True:
                    # With a buffer it gives back how many bytes; typeshed knows the other form alone.
                    at = cast(Any, space[received:] if received else space)
                    count = cast(int, session.read(capacity - received, at))
                    received += count
                    has_ended = not count
                    # A record that is half read fills the space: nothing of one is left where there is more of it.
                    if has_ended or received == capacity or not to_decrypt.pending:
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                has_ended = True
            except ssl.SSLError as error:
                self._broken_by(error)
                break
            if received:
                inner.buffer_updated(received)
            if received < capacity:
                break
        return has_ended

    # --- the connection's transport ----------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        session = self._ssl
        if self.closed or session is None:
            return
        size = len(data)
        if size <= TLS_WRITE_BYTES:
            session.write(data)
        else:
            # By pieces: what is encrypted lies twice until it is handed on, in memory that is made present for it.
            view = memoryview(data)
            for start in range(0, size, TLS_WRITE_BYTES):
                session.write(view[start : start + TLS_WRITE_BYTES])
                self._flush()
        self._flush()

    def writelines(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self.write(part)

    def _flush(self) -> None:
        if self._to_send.pending and not self._raw.is_closing():
            self._raw.write(self._to_send.read())

    def pause_reading(self) -> None:
        self._is_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._raw.resume_reading()
            if not self._is_delivering:
                asyncio.get_running_loop().call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self.closed or self._raw.is_closing()

    def close(self) -> None:
        """After what is already handed over has been sent, and the word that nothing more comes."""
        if not self.closed:
            self.closed = True
            if self._ssl is not None and self._inner is not None:
                with suppress(ssl.SSLError):  # whether the other side says so, too, is not waited for
                    self._ssl.unwrap()
                self._flush()
        self._raw.close()

    def abort(self) -> None:
        self.closed = True
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = cast(asyncio.BufferedProtocol, protocol)


class TlsServerConnection(TlsConnection, AcceptedConnection):
    """A client's, until its handshake is over; ``inside(principal)`` makes what reads from then on."""

    __slots__ = ("_inside", "_processor", "_tls", "listener", "peer_host")

    def __init__(
        self, processor: Processor, listener: str, tls: Tls, inside: Callable[[str | None], asyncio.BufferedProtocol]
    ) -> None:
        super().__init__(processor.logins.tls_scratch)
        self._processor = processor
        self.listener = listener
        self._tls = tls
        self._inside = inside
        self.peer_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer_host = peer_host_of(transport)
        self._processor.logins.half_open.add(self)
        self._processor.add(self)

    def _wrapped(self) -> ssl.SSLObject | None:
        if self._scratch[0] != _HANDSHAKE_RECORD:
            self.refuse("a client without TLS on a listener with TLS")
            return None
        return self._tls.server.wrap_bio(self._to_decrypt, self._to_send, server_side=True)

    def _opened(self) -> asyncio.BufferedProtocol | None:
        assert self._ssl is not None
        der = self._ssl.getpeercert(binary_form=True)
        try:
            name = None if der is None else self._tls.mapper.name_of(read_certificate(der).subject)
        except (CertificateError, NoMatchingRule) as error:
            self.refuse(str(error))
            return None
        self._forget()
        return self._inside(None if name is None else f"User:{name}")

    def _failed(self, reason: str) -> None:
        self.refuse(reason)

    def _waits_for_the_rest(self, of_a_message: bool) -> None:
        self._processor.logins.half_open.hold(self, TLS_MESSAGE_BYTES if of_a_message else 0)

    def _lost_early(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._processor.logins.half_open.discard(self)
        self._processor.remove(self)

    def look_after(self, idle_since_sweep: int) -> None:
        """Nothing: ``half_open`` ends handshakes that take too long."""

    def __str__(self) -> str:
        return f"{self.peer_host} (listener {self.listener})"


class ClientSide(Protocol):
    """What is spoken towards a broker: a listener's ``Tls``, or what a link is set to."""

    @property
    def client(self) -> ssl.SSLContext: ...

    @property
    def checks_host(self) -> bool: ...


class TlsClientConnection(TlsConnection):
    """This broker's to another one; ``inner`` hears of it once the handshake is over, or of its end."""

    __slots__ = ("_alert", "_host", "_timer", "_timers", "_tls", "_waiting")

    def __init__(self, tls: ClientSide, host: str, timers: Timers, inner: asyncio.BufferedProtocol) -> None:
        super().__init__(memoryview(bytearray(limits.TLS_READ_BYTES)))
        self._tls = tls
        self._host = host
        self._timers = timers
        self._timer: Cancellable | None = None
        self._waiting: asyncio.BufferedProtocol | None = inner
        self._alert: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = self._timers.call_later(
            cluster_limits.CONNECT_TIMEOUT_MS, self._failed, "no TLS handshake in time"
        )
        self._shake_hands()

    def _wrapped(self) -> ssl.SSLObject:
        host = self._host if self._tls.checks_host else None
        return self._tls.client.wrap_bio(self._to_decrypt, self._to_send, server_hostname=host)

    def _opened(self) -> asyncio.BufferedProtocol | None:
        self._stop_timer()
        inner, self._waiting = self._waiting, None
        return inner

    def _failed(self, reason: str) -> None:
        inner, self._waiting = self._waiting, None
        self._stop_timer()
        self.close()
        if inner is not None:
            inner.connection_lost(ConnectionError(reason))

    def _broken_by(self, error: ssl.SSLError) -> None:
        # In TLS 1.3 the other side looks at this one's certificate after the handshake is over here.
        self._alert = f"TLS: {_reason_of(error)}"
        super()._broken_by(error)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc if self._alert is None else ConnectionError(self._alert))

    def _lost_early(self) -> None:
        self._failed("it closed the connection in the TLS handshake")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reason_of(error: ssl.SSLError) -> str:
    return (error.reason or "it makes no sense").replace("_", " ").lower()
