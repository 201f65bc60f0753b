"""Who is heard: small datagrams between brokers, by which a death is known before the store's session says so.

Owns: what a datagram says, which ones are believed, who has been silent for too long or refuses connections, and what
the others tell of that.  Does not own the sockets (``net/datagrams``, ``net/connection_probe``), nor what follows from
silence (``controller_election``).  That is decided by compare-and-set in the store, so that a wrong suspicion costs a
fail-over and never data.

Three things make a broker silent for another one. It refuses connections and is not heard. Its machine says that no
process listens any more, which is so a moment after a process was killed, and never while a process listens, however
busy it is. Its machine does not answer, and it was not heard for the time-out. Or its machine takes connections for it,
and it was not heard for ``LIVENESS_OVERLOAD_FACTOR`` times as long: it is stopped, or so busy that it is of no use.
Which of them it is is found out by connecting (a probe) when a connection to it breaks, or a datagram of it is overdue.

Invariants:
- A datagram is believed that carries the cluster's secret in its tag, the broker epoch of the sender's present
  registration, and a number that is greater than the last.
- A broker is judged only once it was heard under its present epoch, so that where datagrams do not get through the
  session alone decides.
- A refusal counts only of who took a connection under that epoch, since a broker registers before it listens.
- A stall of this broker's own counts as no broker's silence.
- Where there are three brokers or more a lone witness is not believed, and a witness is who tells of silence, not who
  never heard.

A datagram::

    magic, version, broker id, broker epoch, number, epoch of the metadata that the sender has, count and ids of those
    that are silent, tag (keyed BLAKE2b)

Counterpart in Kafka: the heartbeats of ``BrokerHeartbeatManager``, which take nine seconds by default.
"""

from __future__ import annotations

import hmac
import logging
import struct
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pybroker.cluster.image.run_callbacks import run_each
from pybroker.cluster_limits import LIVENESS_INTERVAL_MS

if TYPE_CHECKING:
    from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.env import Cancellable, Env

# A broker that was not heard for so long is asked whether it takes connections: a datagram is half an interval overdue.
LIVENESS_SUSPECT_MS = 150

# A broker that is silent, while its machine takes connections for it, is stopped or overloaded rather than dead, and
# has so many times the time-out.
LIVENESS_OVERLOAD_FACTOR = 3

# Until a broker is asked so again, where a datagram of it came while it refused.
LIVENESS_PROBE_AGAIN_MS = 20

log = logging.getLogger(__name__)

MAGIC: Final = b"pybk"
VERSION: Final = 3
TAG_BYTES: Final = 16
_HEADER = struct.Struct(">4sBiqQqH")
# More than this no datagram of ours has: 1,400 bytes go through every network in one piece.
BROKERS_MAX: Final = 300


class Datagrams(Protocol):
    """A socket for datagrams beside the inter-broker listener."""

    def start(self, receive: Callable[[bytes], None]) -> None:
        """Hand every datagram to ``receive`` from now on."""
        ...

    def send(self, host: str, port: int, data: bytes) -> None:
        """Send, or not: a failure is not reported."""
        ...

    def close(self) -> None: ...


class ProbeResult(Enum):
    """What came of trying to connect."""

    TAKEN = "the connection was taken"
    REFUSED = "the machine says that no process listens"
    UNANSWERED = "nothing is known"


class ConnectionProbe(Protocol):
    """Connections that are closed at once."""

    def probe(self, host: str, port: int, done: Callable[[ProbeResult], None]) -> None:
        """Try to connect; ``done`` runs once, on the loop, later than the call."""
        ...

    def close(self) -> None:
        """No ``done`` runs any more."""
        ...


class Report(NamedTuple):
    """What a datagram says."""

    broker_id: int
    broker_epoch: int
    number: int
    metadata_epoch: int
    silent: frozenset[int]


class Progress(NamedTuple):
    """How far a broker's metadata was when it was heard last, and how long ago that was, and that it had everything
    (None: not since this broker hears it)."""

    metadata_epoch: int
    last_report_ms_ago: int
    caught_up_ms_ago: int | None


def encode(report: Report, secret: bytes) -> bytes:
    """The datagram that says it."""
    silent = sorted(report.silent)[:BROKERS_MAX]
    header = _HEADER.pack(
        MAGIC, VERSION, report.broker_id, report.broker_epoch, report.number, report.metadata_epoch, len(silent)
    )
    body = header + struct.pack(f">{len(silent)}i", *silent)
    return body + _tag(body, secret)


def decode(data: bytes, secret: bytes) -> Report | None:
    """What a datagram says; None for one that is none of ours."""
    if len(data) < _HEADER.size + TAG_BYTES:
        return None
    magic, version, broker_id, broker_epoch, number, metadata_epoch, count = _HEADER.unpack_from(data)
    body = data[:-TAG_BYTES]
    if magic != MAGIC or version != VERSION or len(body) != _HEADER.size + 4 * count:
        return None
    if not hmac.compare_digest(_tag(body, secret), data[-TAG_BYTES:]):
        return None
    silent = frozenset(struct.unpack_from(f">{count}i", body, _HEADER.size))
    return Report(broker_id, broker_epoch, number, metadata_epoch, silent)


def _tag(body: bytes, secret: bytes) -> bytes:
    return blake2b(body, key=secret, digest_size=TAG_BYTES).digest()


class _ReportingBroker:
    """What is known of one broker under one epoch of it.

    What it said is in its last datagram; what connecting to it (a probe) showed is in these:

        ================  ===========================  =============================================================
        flag              holds                        means
        ================  ===========================  =============================================================
        ``was_there``     for ever                     a probe was taken once: from now on a refusal counts
        ``is_there``      until it is heard            a probe was taken, and not a word came: it has more time
        ``refuses``       until it is heard            a probe was refused, and not a word came meanwhile: it is dead
        ``is_suspected``  until it is heard            ``SuspectedBrokers`` was called, once for each silence
        ``is_probing``    until the probe is answered  no other probe is needed
        ================  ===========================  =============================================================
    """

    __slots__ = (
        "at_ms",
        "caught_up_ms",
        "epoch",
        "is_probing",
        "is_suspected",
        "is_there",
        "metadata_epoch",
        "number",
        "refuses",
        "silent",
        "was_there",
    )

    def __init__(self, report: Report, at_ms: int) -> None:
        self.epoch = report.broker_epoch
        self.was_there = False  # it has taken a connection
        self.is_probing = False
        self.caught_up_ms: int | None = None
        self.hear(report, at_ms)

    def hear(self, report: Report, at_ms: int) -> None:
        self.number = report.number
        self.metadata_epoch = report.metadata_epoch
        self.silent = report.silent
        self.at_ms = at_ms
        self.refuses = self.is_there = self.is_suspected = False

    def is_silent(self, now_ms: int, timeout_ms: int) -> bool:
        allowed_ms = timeout_ms * LIVENESS_OVERLOAD_FACTOR if self.is_there else timeout_ms
        return self.refuses or now_ms - self.at_ms >= allowed_ms


class Liveness:
    """``broker_epoch()`` is this process's own, -1 for none; ``image()`` is the newest
    image; ``listener`` is the inter-broker listener's name.

    ``listeners`` are called when a broker falls silent, is heard again, or tells of others that are silent. They are
    also called every ``LIVENESS_INTERVAL_MS`` while one is silent. ``on_behind()`` is called when another broker's
    metadata is newer than this one's.
    """

    def __init__(
        self,
        env: Env,
        broker_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        secret: bytes,
        datagrams: Datagrams,
        connection_probe: ConnectionProbe,
        listener: str,
        suspected_brokers: SuspectedBrokers,
        timeout_ms: int,
    ) -> None:
        self.listeners: list[Callable[[], None]] = []
        self.on_behind: Callable[[], None] = lambda: None
        self._env = env
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._secret = secret
        self._datagrams = datagrams
        self._connection_probe = connection_probe
        self._listener = listener
        self._suspected_brokers = suspected_brokers
        self._timeout_ms = timeout_ms
        self._reporting: dict[int, _ReportingBroker] = {}
        self._silent: frozenset[int] = frozenset()
        self._number = 0
        self._awake_ms = 0  # when this broker was last seen to run
        self._timer: Cancellable | None = None

    def start(self) -> None:
        """Speak and listen from now on."""
        self._datagrams.start(self._receive)
        self._awake_ms = self._env.clock.monotonic_ms()
        self._tick()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._datagrams.close()
        self._connection_probe.close()
        self.listeners.clear()

    # --- judging -----------------------------------------------------------------------------------------------------

    def is_silent(self, broker_id: int) -> bool:
        """Whether the brokers have good reason to take one for dead that they did hear. This broker and a majority of
        all, itself among them, have to find so; where there are two, this one alone. What a fenced broker finds does
        not count: it may be fenced because it is cut off.
        """
        registered, known = self._image().brokers.get(broker_id), self._reporting.get(broker_id)
        if broker_id not in self._silent or registered is None or known is None or known.epoch != registered.epoch:
            return False
        unfenced = [each.broker_id for each in self._image().brokers.values() if not each.fenced]
        is_witness = self._broker_id in unfenced
        witnesses = is_witness + sum(
            1
            for other in unfenced
            if other not in (self._broker_id, broker_id, *self._silent)
            and (broker := self._reporting.get(other)) is not None
            and broker_id in broker.silent
        )
        return (is_witness and len(unfenced) <= 2) or 2 * witnesses > len(unfenced)

    def is_cut_off(self, broker_id: int) -> bool:
        """Whether the two brokers do not hear each other: this one the other, or the other, as it says, this one.

        Where three or more are there, and this broker is cut off so from most of them, it is itself the one, and no
        other is. Else a leader would take all others out of the ISR, and be the only one that may lead.
        """
        if not self._lacks_reports(broker_id):
            return False
        others = [
            each.broker_id
            for each in self._image().brokers.values()
            if not each.fenced and each.broker_id != self._broker_id
        ]
        reached = sum(1 for other in others if not self._lacks_reports(other))
        return len(others) < 2 or 2 * (1 + reached) > 1 + len(others)

    def _lacks_reports(self, broker_id: int) -> bool:
        registered, known = self._image().brokers.get(broker_id), self._reporting.get(broker_id)
        if registered is None or known is None or known.epoch != registered.epoch:
            return False
        return broker_id in self._silent or self._broker_id in known.silent

    def reason(self, broker_id: int) -> str:
        """Why a silent broker is, for the log."""
        known = self._reporting.get(broker_id)
        if known is None:
            return "it registered anew"
        silent_ms = self._env.clock.monotonic_ms() - known.at_ms
        return f"not heard for {silent_ms} ms" + (", and it refuses connections" if known.refuses else "")

    def progress(self, broker_id: int) -> Progress | None:
        """How far a broker is that was heard under its present epoch."""
        registered, known = self._image().brokers.get(broker_id), self._reporting.get(broker_id)
        if registered is None or known is None or known.epoch != registered.epoch:
            return None
        now_ms = self._env.clock.monotonic_ms()
        caught_up_ms_ago = None if known.caught_up_ms is None else now_ms - known.caught_up_ms
        return Progress(known.metadata_epoch, now_ms - known.at_ms, caught_up_ms_ago)

    def _evaluate(self) -> None:
        """See who is silent, and tell."""
        now_ms = self._env.clock.monotonic_ms()
        brokers = self._image().brokers
        for broker_id, broker in list(self._reporting.items()):
            registered = brokers.get(broker_id)
            if registered is None or registered.epoch != broker.epoch:
                del self._reporting[broker_id]  # it is judged anew once it is heard under its new epoch
        silent = frozenset(
            broker_id for broker_id, broker in self._reporting.items() if broker.is_silent(now_ms, self._timeout_ms)
        )
        if silent != self._silent:
            self._silent = silent
            self._speak()
        for failure in run_each(self.listeners):
            log.error("a listener of which brokers are silent failed", exc_info=failure)

    # --- hearing -----------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        report = decode(data, self._secret)
        if report is None or report.broker_id == self._broker_id:
            return
        registered = self._image().brokers.get(report.broker_id)
        if registered is None or registered.epoch != report.broker_epoch:
            return  # of an earlier life, or of a registration that is not known here yet
        known = self._reporting.get(report.broker_id)
        if known is not None and known.epoch == report.broker_epoch and known.number >= report.number:
            return  # said before
        now_ms = self._wake()
        silent_before = frozenset() if known is None else known.silent
        if known is not None and known.epoch == report.broker_epoch:
            known.hear(report, now_ms)
            self._suspected_brokers.end(report.broker_id)
        else:
            known = self._reporting[report.broker_id] = _ReportingBroker(report, now_ms)
        if report.metadata_epoch >= (epoch := self._image().epoch):
            known.caught_up_ms = now_ms
            if report.metadata_epoch > epoch:
                self.on_behind()
        if not known.was_there:
            self._probe(report.broker_id, known)
        if report.broker_id in self._silent or silent_before != report.silent:
            self._evaluate()

    def _wake(self) -> int:
        """This broker runs, at the time that is given back; whom it did not listen to meanwhile is not to blame."""
        now_ms = self._env.clock.monotonic_ms()
        stalled_ms = now_ms - self._awake_ms - LIVENESS_INTERVAL_MS
        self._awake_ms = now_ms
        if stalled_ms > LIVENESS_INTERVAL_MS:
            for broker in self._reporting.values():
                broker.at_ms = min(now_ms, broker.at_ms + stalled_ms)
        return now_ms

    # --- probing -----------------------------------------------------------------------------------------------------

    def suspect(self, broker_id: int) -> None:
        """There is reason to ask whether the broker lives: a connection to it broke, say."""
        known = self._reporting.get(broker_id)
        if known is None or not known.was_there:
            return
        self._probe(broker_id, known)
        if known.is_probing and not known.is_suspected:
            known.is_suspected = True
            self._suspected_brokers.begin(broker_id)

    def _probe(self, broker_id: int, known: _ReportingBroker) -> None:
        if known.is_probing or known.refuses:
            return
        for host, port in self._addresses((broker_id,)):
            known.is_probing = True
            self._connection_probe.probe(host, port, partial(self._on_probed, broker_id, known, known.number))

    def _on_probed(self, broker_id: int, known: _ReportingBroker, number: int, answer: ProbeResult) -> None:
        """``number`` is that of the last datagram before the probe: what was heard since then speaks against it."""
        known.is_probing = False
        if self._reporting.get(broker_id) is not known:
            return
        if answer is not ProbeResult.REFUSED:
            self._suspected_brokers.end(broker_id)
        if answer is ProbeResult.TAKEN:
            known.was_there = True
            known.is_there = known.number == number
        elif answer is ProbeResult.REFUSED and known.was_there:
            if known.number == number:
                known.refuses = True
                self._evaluate()
            else:  # what was heard meanwhile may be its last words
                self._env.timers.call_later(LIVENESS_PROBE_AGAIN_MS, self.suspect, broker_id)

    # --- speaking ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_ms = self._wake()
        self._timer = self._env.timers.call_later(LIVENESS_INTERVAL_MS, self._tick)
        self._speak()
        overdue = [
            broker_id for broker_id, broker in self._reporting.items() if now_ms - broker.at_ms >= LIVENESS_SUSPECT_MS
        ]
        for broker_id in overdue:
            if broker_id not in self._silent:
                self.suspect(broker_id)
        if self._silent or any(self._reporting[each].is_silent(now_ms, self._timeout_ms) for each in overdue):
            self._evaluate()

    def tell_news(self) -> None:
        """This broker has committed metadata: the others need not wait for the next datagram to look for it."""
        if self._timer is not None:
            self._speak()

    def _speak(self) -> None:
        image = self._image()
        brokers, broker_epoch = image.brokers, self._broker_epoch()
        if broker_epoch < 0 or self._broker_id not in brokers:
            return
        self._number += 1
        data = encode(Report(self._broker_id, broker_epoch, self._number, image.epoch, self._silent), self._secret)
        for host, port in self._addresses(broker_id for broker_id in brokers if broker_id != self._broker_id):
            self._datagrams.send(host, port, data)

    def _addresses(self, broker_ids: Iterable[int]) -> Iterable[tuple[str, int]]:
        brokers = self._image().brokers
        for broker_id in broker_ids:
            registered = brokers.get(broker_id)  # none: who was heard before it was unregistered
            endpoint = None if registered is None else registered.endpoints.get(self._listener)
            if endpoint is not None:
                yield endpoint.host, endpoint.port
