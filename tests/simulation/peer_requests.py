"""Requests of brokers to each other that change something for good: some come once more, late, by another connection.

Owns: which requests were sent, and the sending once more: at any time, or just after a newer one about the same thing.
A network may do that to a request whose connection broke, or whose sender has died: it lay in a buffer, and the answer
to the next one was there first.  Owns no choice of which seeds have it (``cluster_faults``).

Where clients speak the first transaction protocol a marker comes again only once another coordinator has ended a later
transaction: until then nothing in it says which transaction it ends (KIP-890).
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
KINDS = AlterPartitionRequest, WriteTxnMarkersRequest


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

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is sent."""
        send = PeerClient.ask

        def ask(client: PeerClient, broker_id: int, request: Any, version: int, done: Any, **rest: Any) -> None:
            life, processes = self._simulation.scheduler.life, self._simulation.processes
            sender = None if life is None else life.process
            if isinstance(request, KINDS) and sender is not None and sender in processes:
                self._clients[sender] = client
                self._note(Request(sender, broker_id, request, version, _subjects(request)))
                about = [processes[each] for each in self._joining(request)]
                self._simulation.faults.request_sent(sender, processes[broker_id], about or [sender])
            send(client, broker_id, request, version, done, **rest)

        with patch.object(PeerClient, "ask", ask):
            yield

    def _note(self, sent: Request) -> None:
        older = [each for each in self._sent if not each.subjects.isdisjoint(sent.subjects)]
        self._sent.append(sent)
        if older and not self._simulation.calm and self._random.random() < self._simulation.faults.overtaken_share:
            delay_us = self._random.choice((2_000, 100_000, 2_000_000))
            self._simulation.scheduler.after(delay_us, None, self._send_again, self._random.choice(older))

    def _send_again(self, sent: Request) -> bool:
        """Send a request once more, by another broker's connection if its sender is no more; whether that can be."""
        processes = self._simulation.processes
        others = [each for each in processes if each is not sent.sender and each is not processes[sent.receiver]]
        able = [each for each in (sent.sender, *others) if self._may_send(each)]
        if not able or not self._is_of_the_past(sent.request):
            return False
        self._simulation.trace(able[0].name, f"{type(sent.request).__name__} to broker-{sent.receiver} once more")
        self._simulation.scheduler.after(0, able[0].life, self._send, able[0], sent)
        return True

    def _may_send(self, process: Process) -> bool:
        client = self._clients.get(process)
        runs = process.server is not None and not process.is_paused
        return runs and client is not None and not client._is_closed

    def _is_of_the_past(self, request: Any) -> bool:
        """Whether the brokers can tell that a request is not to be heeded any more."""
        if isinstance(request, AlterPartitionRequest) or not self._simulation.speaks_first_protocol:
            return True
        last_coordinator = self._simulation.observer.last_coordinator
        return all(
            last_coordinator((topic.name, index), marker.producer_id) > marker.coordinator_epoch
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        )

    def send_one_again(self) -> str | None:
        """Send one of them once more; None where that cannot be."""
        if not self._sent or not self._send_again(sent := self._random.choice(self._sent)):
            return None
        return f"of {sent.sender.name}"

    def _joining(self, request: Any) -> list[int]:
        """The brokers that a request would have in sync, and that are not."""
        image = self._simulation.newest_image()
        if not isinstance(request, AlterPartitionRequest) or image is None:
            return []
        joining: set[int] = set()
        for topic in request.topics:
            if (known := image.topics_by_id.get(topic.topic_id)) is None:
                continue
            for each in topic.partitions:
                wanted = {state.broker_id for state in each.new_isr_with_epochs}
                joining |= wanted.difference(known.partitions[each.partition_index].isr)
        return sorted(joining)

    def _send(self, process: Process, sent: Request) -> None:
        client = self._clients[process]
        if client._is_closed:
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
