"""What a finished wait leaves behind: nothing, however long the client was ready to wait."""

from __future__ import annotations

import gc

from harness.batches import batch
from harness.waiting import wait_until

from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.testing import Broker
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.wire_client import WireClient, fetch_request

CLIENTS = 5
WAIT_MS = 600_000


def operations() -> int:
    """How many fetches of this process are in memory."""
    return sum(isinstance(item, ConsumerFetch) for item in gc.get_objects())


def test_fetch_that_was_answered_does_not_stay_until_its_longest_wait_is_over() -> None:
    gc.collect()  # what other tests left
    before = operations()
    with Broker() as broker:
        address = (broker.host, broker.port)
        clients = [WireClient(address) for _ in range(CLIENTS)]
        with WireClient(address) as producer:
            topic = CreatableTopic(name="answered", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            producer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000, validate_only=False), 7)
            for client in clients:
                client.send(fetch_request("answered", 0, max_wait_ms=WAIT_MS), 12)
            wait_until(lambda: operations() - before == CLIENTS, "every fetch waits")
            assert producer.produce("answered", batch(b"first")).error_code == 0
            for client in clients:
                assert client.receive().responses[0].partitions[0].high_watermark == 1
            wait_until(lambda: operations() == before, "no fetch is left")
        for client in clients:
            client.close()
