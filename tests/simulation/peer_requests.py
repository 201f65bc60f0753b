"""Requests of brokers to each other that change something for good: some come once more, late, by another connection.

Owns: which requests were sent, and the sending once more: at any time, or just after a newer one about the same thing.
A network may do that to a request whose connection broke: it lay in a buffer, and the answer to the next one was there
first.  Owns no choice of which seeds have it (``cluster_faults``).

Of the first transaction protocol no marker comes again: nothing in it says which transaction it ends (KIP-890).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from pybroker.net.peer_client import PeerClient
from pybroker_protocol.messages.alter_partition import AlterPartitionRequest
from pybroker_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.simulation.model import REACHED

if TYPE_CHECKING:
    from tests.simulation.cluster_simulation import ClusterSimulation
    from tests.simulation.processes import Process

KEPT = 40
TIMEOUT_MS = 5_000


class Request(NamedTuple):
    """What was sent once; ``subjects`` are the partitions, or the producers, that it is about."""

    sender: Process
    receiver: int
    request: Any
    version: int
    subjects: frozenset[object]


class PeerRequests:
    """What the brokers of one run have sent each other lately.  The faults hear of each request before it leaves."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self._random = simulation.new_random()
        self._sent: deque[Request] = deque(maxlen=KEPT)
        self._clients: dict[Process, PeerClient] = {}
        self._ask = PeerClient.ask
        self._kinds: tuple[type, ...] = (AlterPartitionRequest,)
        if not simulation.speaks_first_protocol:
            self._kinds += (WriteTxnMarkersRequest,)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is sent."""

        def ask(client: PeerClient, broker_id: int, request: Any, version: int, done: Any, **rest: Any) -> None:
            life = self._simulation.scheduler.life
            if isinstance(request, self._kinds) and life is not None and life.process is not None:
                self._clients[life.process] = client
                self._note(Request(life.process, broker_id, request, version, _subjects(request)))
                processes = self._simulation.world.processes
                about = [processes[each] for each in _joining(request) if processes[each] is not life.process]
                self._simulation.faults.request_sent(life.process, processes[broker_id], about or [life.process])
            self._ask(client, broker_id, request, version, done, **rest)

        with patch.object(PeerClient, "ask", ask):
            yield

    def _note(self, sent: Request) -> None:
        older = [each for each in self._sent if not each.subjects.isdisjoint(sent.subjects)]
        self._sent.append(sent)
        if older and not self._simulation.calm and self._random.random() < self._simulation.faults.overtaken_share:
            delay_us = self._random.choice((2_000, 100_000, 2_000_000))
            self._simulation.scheduler.after(delay_us, None, self._send_if_it_runs, self._random.choice(older))

    def _send_if_it_runs(self, sent: Request) -> bool:
        """Send a request once more, if its sender runs."""
        if sent.sender.server is None or sent.sender.is_paused:
            return False
        self._simulation.trace(sent.sender.name, f"{type(sent.request).__name__} to broker-{sent.receiver} once more")
        self._simulation.scheduler.after(0, sent.sender.life, self._send, sent)
        return True

    def send_one_again(self) -> str | None:
        """Send one of them once more; None where its sender does not run."""
        if not self._sent or not self._send_if_it_runs(sent := self._random.choice(self._sent)):
            return None
        return f"of {sent.sender.name}"

    def _send(self, sent: Request) -> None:
        client = self._clients[sent.sender]
        if client._is_closed:  # of a former life, in which nothing was asked that counts here since
            return
        REACHED["an old request comes once more"] += 1
        self._ask(
            client,
            sent.receiver,
            sent.request,
            sent.version,
            lambda *_: None,
            timeout_ms=TIMEOUT_MS,
            channel="late",
        )


def _subjects(request: Any) -> frozenset[object]:
    if isinstance(request, AlterPartitionRequest):
        return frozenset(
            (topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
        )
    return frozenset(marker.producer_id for marker in request.markers)


def _joining(request: Any) -> list[int]:
    """The brokers that a request would have in sync."""
    if not isinstance(request, AlterPartitionRequest):
        return []
    partitions = [each for topic in request.topics for each in topic.partitions]
    return sorted({state.broker_id for each in partitions for state in each.new_isr_with_epochs})
