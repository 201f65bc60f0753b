"""A flood of batches whose replies nobody reads: the account of received bytes holds, and so does the process."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S

from pybroker import limits
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from tests.broker.test_bad_input import anonymous_bytes, frame, header
from tests.broker.wire_client import WireClient, produce_request
from tests.net.conftest import processor_of

MB = 1 << 20
CONNECTIONS = 50
BUDGET_BYTES = 64 * MB
FLOOD_BYTES = 2_000 * MB
HONEST_REQUESTS = 20
# Copies on their way, outgrown buffers, and what the allocator keeps in fragments.
MARGIN_BYTES = 96 * MB

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"queued.max.request.bytes": BUDGET_BYTES, "socket.request.max.bytes": 16 * MB}
    with Broker(settings) as running:
        running.create_topic("flooded", partitions=CONNECTIONS)
        running.create_topic("honest")
        yield running


def test_flood_that_reads_no_replies_takes_no_more_than_the_budget_and_others_are_served(broker: Broker) -> None:
    budget = processor_of(broker).budget
    with ExitStack() as stack:
        honest = stack.enter_context(WireClient((broker.host, broker.port)))
        assert honest.produce("honest", batch(b"first")).error_code == ErrorCode.NONE
        before = anonymous_bytes()
        unsent: dict[socket.socket, memoryview] = {}
        for _ in range(CONNECTIONS):
            request = produce_request("flooded", batch(b"x" * 1_000_000))
            encoded = memoryview(frame(header(0, 9) + b"\0" + codec.encode(request, 9)))
            flooding = stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S))
            flooding.setblocking(False)
            unsent[flooding] = encoded
        whole = dict(unsent)
        sent_bytes = most_counted = most_memory = served = 0
        while sent_bytes < FLOOD_BYTES:
            writable = select.select([], list(unsent), [], 5)[1]
            assert writable, "the flood is taken as fast as the disk allows"
            for flooding in writable:
                with suppress(BlockingIOError):
                    size = flooding.send(unsent[flooding][:MB])
                    sent_bytes += size
                    unsent[flooding] = unsent[flooding][size:] or whole[flooding]
            most_counted = max(most_counted, budget.bytes_counted)
            most_memory = max(most_memory, anonymous_bytes())
            if sent_bytes * HONEST_REQUESTS > FLOOD_BYTES * served:
                assert honest.produce("honest", batch(b"meanwhile")).error_code == ErrorCode.NONE
                served += 1
        assert served >= HONEST_REQUESTS
        assert most_counted <= BUDGET_BYTES + 2 * limits.LARGE_FRAME_BYTES
        assert most_memory - before <= BUDGET_BYTES + limits.BUFFER_POOL_BYTES + MARGIN_BYTES
