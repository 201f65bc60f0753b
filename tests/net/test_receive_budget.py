"""Who may read on while received bytes fill the budget, for how long, and that nobody else is closed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pybroker.net.buffers import ReceiveBuffer
from pybroker.net.connection import Connection as ServedConnection
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import ProduceResponse
from tests.broker.batches import batch
from tests.broker.conftest import eventually
from tests.broker.wire_client import fetch_request, produce_request
from tests.net.conftest import Wire, served_side, sockets_of, sweep

PRODUCE, FETCH = 0, 1
FRAME_BYTES_MAX = 1 << 20
QUEUED_BYTES_MAX = 2 << 20
SWEEPS_OF_A_PERMIT = 2


@pytest.fixture
def broker(no_sweep_but_ours: None) -> Iterator[Broker]:
    settings = {"socket.request.max.bytes": FRAME_BYTES_MAX, "queued.max.request.bytes": QUEUED_BYTES_MAX}
    with Broker(settings) as running:
        running.create_topic("t")
        yield running


class Shortage:
    """A full budget, as when handlers hold requests: until ``end``, of which no connection is told."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._held: list[ReceiveBuffer] = []
        broker._call(self._fill)

    def end(self) -> None:
        self._broker._call(self._free)

    def _fill(self, server: BrokerServer, done: Callable[[Any], None]) -> None:
        assert server._sockets is not None
        self._held.append(server._sockets.pool.take(QUEUED_BYTES_MAX))
        done(None)

    def _free(self, _server: BrokerServer, done: Callable[[Any], None]) -> None:
        self._held.pop().release()
        done(None)


class SlowProducer:
    """A client whose frame comes in two pieces, the first large enough to need a place in the budget."""

    def __init__(self, broker: Broker) -> None:
        self.wire = Wire((broker.host, broker.port))
        self.served: ServedConnection = served_side(broker, self.wire)
        self._rest = b""

    def begin(self, record_bytes: int = 300_000) -> None:
        """Send what is left of the frame before and most of the next, in one piece."""
        self.wire.posted = []
        request = produce_request("t", batch(b"x" * record_bytes))
        self.wire.send_bytes(PRODUCE, 9, codec.encode(request, 9), flexible=True)
        (frame,) = self.wire.posted
        self.wire.posted = None
        cut = len(frame) * 3 // 4
        self.wire.send_raw(self._rest + frame[:cut])
        self._rest = frame[cut:]

    def finish(self) -> None:
        self.wire.send_raw(self._rest)
        self._rest = b""

    def error(self) -> int:
        """The error of the next reply."""
        payload = self.wire.receive_payload()
        assert payload is not None, "the connection was closed"
        response = codec.decode(ProduceResponse, 9, payload[5:])
        return response.responses[0].partition_responses[0].error_code

    def close(self) -> None:
        self.wire.close()


def permitted_and_starved(broker: Broker) -> tuple[SlowProducer, SlowProducer]:
    """Two clients in a shortage: the one that may read on, and the one that has to wait for it."""
    server = sockets_of(broker)
    permitted, starved = SlowProducer(broker), SlowProducer(broker)
    permitted.begin()
    eventually(lambda: server._permitted is permitted.served, "the first that asks may read on")
    starved.begin()
    eventually(lambda: starved.served in server._starved, "the second that asks has to wait")
    return permitted, starved


def test_peer_that_does_not_finish_its_frame_in_a_shortage_is_closed_and_the_next_may_read_on(broker: Broker) -> None:
    shortage = Shortage(broker)
    permitted, starved = permitted_and_starved(broker)
    with closing(permitted), closing(starved):
        sweep(broker, SWEEPS_OF_A_PERMIT)
        assert permitted.wire.receive_payload() is None
        starved.finish()
        assert starved.error() == ErrorCode.NONE
    shortage.end()


def test_peer_may_take_its_time_again_once_the_shortage_is_over(broker: Broker) -> None:
    shortage = Shortage(broker)
    permitted, starved = permitted_and_starved(broker)
    with closing(permitted), closing(starved):
        shortage.end()
        sweep(broker, SWEEPS_OF_A_PERMIT + 1)
        permitted.finish()
        assert permitted.error() == ErrorCode.NONE


def test_peer_that_finishes_a_frame_in_a_shortage_waits_for_its_turn_with_the_next(broker: Broker) -> None:
    server = sockets_of(broker)
    shortage = Shortage(broker)
    with closing(SlowProducer(broker)) as first, closing(SlowProducer(broker)) as second:
        first.begin(record_bytes=40_000)
        eventually(lambda: server._permitted is first.served, "the first that asks may read on")
        second.begin()
        eventually(lambda: second.served in server._starved, "the second that asks has to wait")
        first.begin(record_bytes=40_000)
        assert first.error() == ErrorCode.NONE
        eventually(lambda: server._permitted is second.served, "its turn has come")
        assert first.served in server._starved
        second.finish()
        assert second.error() == ErrorCode.NONE
        eventually(lambda: server._permitted is first.served, "its turn has come again")
        sweep(broker)
        first.finish()
        assert first.error() == ErrorCode.NONE
    shortage.end()


def test_who_waits_for_room_reads_on_once_handlers_have_let_go_of_enough(broker: Broker) -> None:
    shortage = Shortage(broker)
    permitted, starved = permitted_and_starved(broker)
    with closing(permitted), closing(starved):
        shortage.end()
        sweep(broker)
        assert not starved.served._reading_paused, "it need not wait for the frame of another peer"
        starved.finish()
        assert starved.error() == ErrorCode.NONE


def test_whole_frame_that_waits_for_its_turn_closes_nobody_and_lets_the_next_read_on(broker: Broker) -> None:
    server = sockets_of(broker)
    # The loop alone makes and opens partitions.
    partition = broker._call(lambda running, done: done(running.services.replicas.partition("t", 0)))
    waiting, starved = SlowProducer(broker), SlowProducer(broker)
    with closing(waiting), closing(starved):
        waiting.wire.send_bytes(FETCH, 12, codec.encode(fetch_request("t", 0, max_wait_ms=600_000), 12), flexible=True)
        eventually(lambda: len(partition.waiting) == 1, "the fetch waits")
        shortage = Shortage(broker)
        waiting.begin()
        eventually(lambda: server._permitted is waiting.served, "the first that asks may read on")
        waiting.finish()
        eventually(lambda: waiting.served._reading_paused, "its frame is whole, and waits behind the fetch")
        starved.begin()
        eventually(lambda: starved.served in server._starved, "the second that asks has to wait")
        sweep(broker, SWEEPS_OF_A_PERMIT)
        assert server._permitted is starved.served
        starved.finish()
        assert starved.error() == ErrorCode.NONE
        assert waiting.wire.receive_payload() is not None, "the fetch, which that produce has ended"
        assert waiting.error() == ErrorCode.NONE
        shortage.end()
