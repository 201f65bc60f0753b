"""Who is heard: small datagrams between brokers, by which a death is known before the store's session says so.

Owns: what a datagram says, which ones are believed, and who has been silent for too long, by this broker's own hearing
and by what the others tell of theirs.  Does not own the sockets (``net/datagrams``), nor what follows from silence
(``controller_election``): that is decided by compare-and-set in the store, so that a wrong suspicion costs a fail-over
and never data.

Invariants: a datagram is believed that carries the cluster's secret in its tag, the broker epoch of the sender's
present registration, and a number that is greater than the last; a broker is judged by its silence only once it was
heard under its present epoch, so that where datagrams do not get through the session alone decides; a stall of this
broker's own counts as nobody's silence.  Where there are three brokers or more a lone witness is not believed.

A datagram::

    magic, version, broker id, broker epoch, number, count and ids of those that are heard, tag (keyed BLAKE2b)

Counterpart in Kafka: the heartbeats of ``BrokerHeartbeatManager``, which take nine seconds by default.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pybroker.cluster_limits import LIVENESS_INTERVAL_MS

if TYPE_CHECKING:
    from pybroker.cluster.image import ClusterImage
    from pybroker.env import Cancellable, Env

MAGIC: Final = b"pybk"
VERSION: Final = 1
TAG_BYTES: Final = 16
_HEADER = struct.Struct(">4sBiqQH")
# More than this no datagram of ours has: 1,400 bytes go through every network in one piece.
BROKERS_MAX: Final = 300


class Datagrams(Protocol):
    """A socket for datagrams beside the inter-broker listener."""

    def start(self, receive: Callable[[bytes], None]) -> None:
        """Hand every datagram to ``receive`` from now on."""
        ...

    def send(self, host: str, port: int, data: bytes) -> None:
        """Send, or not: nobody hears of a failure."""
        ...

    def close(self) -> None: ...


class Report(NamedTuple):
    """What a datagram says."""

    broker_id: int
    broker_epoch: int
    number: int
    heard: frozenset[int]


def encode(report: Report, secret: bytes) -> bytes:
    """The datagram that says it."""
    heard = sorted(report.heard)[:BROKERS_MAX]
    header = _HEADER.pack(MAGIC, VERSION, report.broker_id, report.broker_epoch, report.number, len(heard))
    body = header + struct.pack(f">{len(heard)}i", *heard)
    return body + _tag(body, secret)


def decode(data: bytes, secret: bytes) -> Report | None:
    """What a datagram says; None for one that is none of ours."""
    if len(data) < _HEADER.size + TAG_BYTES:
        return None
    magic, version, broker_id, broker_epoch, number, count = _HEADER.unpack_from(data)
    body = data[:-TAG_BYTES]
    if magic != MAGIC or version != VERSION or len(body) != _HEADER.size + 4 * count:
        return None
    if not hmac.compare_digest(_tag(body, secret), data[-TAG_BYTES:]):
        return None
    return Report(broker_id, broker_epoch, number, frozenset(struct.unpack_from(f">{count}i", body, _HEADER.size)))


def _tag(body: bytes, secret: bytes) -> bytes:
    return blake2b(body, key=secret, digest_size=TAG_BYTES).digest()


class _Heard:
    """What is known of one broker from its datagrams, under one epoch of it."""

    __slots__ = ("at_ms", "epoch", "heard", "number")

    def __init__(self, report: Report, at_ms: int) -> None:
        self.epoch = report.broker_epoch
        self.number = report.number
        self.heard = report.heard
        self.at_ms = at_ms


class Liveness:
    """See the module's docstring.  ``image()`` is the newest image; ``listener`` is the inter-broker listener's name.

    ``listeners`` are called when somebody falls silent, is heard again, or tells of others whom it does not hear.
    """

    def __init__(
        self,
        env: Env,
        broker_id: int,
        image: Callable[[], ClusterImage],
        secret: bytes,
        datagrams: Datagrams,
        listener: str,
        timeout_ms: int,
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._env = env
        self._broker_id = broker_id
        self._image = image
        self._secret = secret
        self._datagrams = datagrams
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._heard: dict[int, _Heard] = {}
        self._silent: frozenset[int] = frozenset()
        self._number = 0
        self._last_tick_ms = 0
        self._timer: Cancellable | None = None

    def start(self) -> None:
        """Speak and listen from now on."""
        self._datagrams.start(self._receive)
        self._last_tick_ms = self._env.clock.monotonic_ms()
        self._tick()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._datagrams.close()
        self.listeners.clear()

    # --- judging -----------------------------------------------------------------------------------------------------

    def is_silent(self, broker_id: int) -> bool:
        """Whether the brokers have not heard one that they did hear, for as long as the time-out: by the hearing of
        this broker and of a majority of all, itself among them; where there are two, by this one's alone."""
        registered, known = self._image().brokers.get(broker_id), self._heard.get(broker_id)
        if broker_id not in self._silent or registered is None or known is None or known.epoch != registered.epoch:
            return False
        voters = [each.broker_id for each in self._image().brokers.values() if not each.fenced]
        witnesses = 1 + sum(
            1
            for voter in voters
            if voter not in (self._broker_id, broker_id, *self._silent)
            and (heard := self._heard.get(voter)) is not None
            and broker_id not in heard.heard
        )
        return len(voters) <= 2 or 2 * witnesses > len(voters)

    # --- hearing -----------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        report = decode(data, self._secret)
        if report is None or report.broker_id == self._broker_id:
            return
        registered = self._image().brokers.get(report.broker_id)
        if registered is None or registered.epoch != report.broker_epoch:
            return  # of an earlier life, or of a registration that is not known here yet
        known = self._heard.get(report.broker_id)
        if known is not None and known.epoch == report.broker_epoch and known.number >= report.number:
            return  # said before
        self._heard[report.broker_id] = _Heard(report, self._env.clock.monotonic_ms())
        if report.broker_id in self._silent or (known is not None and known.heard != report.heard):
            self._judge()

    def _judge(self) -> None:
        """See who is silent, and tell."""
        now_ms = self._env.clock.monotonic_ms()
        brokers = self._image().brokers
        for broker_id, heard in list(self._heard.items()):
            registered = brokers.get(broker_id)
            if registered is None or registered.epoch != heard.epoch:
                del self._heard[broker_id]  # it is judged anew once it is heard under its new epoch
        silent = frozenset(
            broker_id for broker_id, heard in self._heard.items() if now_ms - heard.at_ms >= self._timeout_ms
        )
        if silent != self._silent:
            self._silent = silent
            self._speak()
        for listener in list(self.listeners):
            listener()

    # --- speaking ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_ms = self._env.clock.monotonic_ms()
        stalled_ms = now_ms - self._last_tick_ms - LIVENESS_INTERVAL_MS
        self._last_tick_ms = now_ms
        self._timer = self._env.timers.call_later(LIVENESS_INTERVAL_MS, self._tick)
        if stalled_ms > LIVENESS_INTERVAL_MS:
            # Nobody was listened to: what came meanwhile is read after this, and nobody is to be blamed.
            for heard in self._heard.values():
                heard.at_ms = min(now_ms, heard.at_ms + stalled_ms)
        self._speak()
        if self._silent or any(now_ms - heard.at_ms >= self._timeout_ms for heard in self._heard.values()):
            self._judge()

    def _speak(self) -> None:
        brokers = self._image().brokers
        own = brokers.get(self._broker_id)
        if own is None:
            return
        self._number += 1
        heard = frozenset(self._heard) - self._silent
        data = encode(Report(self._broker_id, own.epoch, self._number, heard), self._secret)
        for host, port in self._addresses(broker_id for broker_id in brokers if broker_id != self._broker_id):
            self._datagrams.send(host, port, data)

    def _addresses(self, broker_ids: Iterable[int]) -> Iterable[tuple[str, int]]:
        brokers = self._image().brokers
        for broker_id in broker_ids:
            endpoint = brokers[broker_id].endpoints.get(self._listener)
            if endpoint is not None:
                yield endpoint.host, endpoint.port
