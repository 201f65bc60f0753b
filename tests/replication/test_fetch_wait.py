"""What a finished wait leaves behind: nothing, however long the client was ready to wait."""

from __future__ import annotations

import gc

from pybroker.replication.fetch import FetchOperation
from pybroker.testing import Broker
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.batches import batch
from tests.broker.wire_client import WireClient, fetch_request

ROUNDS = 20
WAIT_MS = 600_000


def test_fetch_that_was_answered_does_not_stay_until_its_longest_wait_is_over() -> None:
    with Broker() as broker:
        address = (broker.host, broker.port)
        with WireClient(address) as producer, WireClient(address) as consumer:
            topic = CreatableTopic(name="answered", num_partitions=1, replication_factor=1)
            producer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
            assert producer.produce("answered", batch(b"first")).error_code == 0
            for offset in range(1, ROUNDS):
                consumer.send(fetch_request("answered", offset, max_wait_ms=WAIT_MS), 12)
                producer.produce("answered", batch(b"more"))
                assert consumer.receive().responses[0].partitions[0].error_code == 0
            gc.collect()
            kept = [item for item in gc.get_objects() if isinstance(item, FetchOperation)]
            assert len(kept) < ROUNDS / 2
