"""What connections keep: nothing once they are over, and no buffer for a request that waits and is written already."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until
from harness.wire import Client

from pybroker import limits, storage_limits
from pybroker.net import receive_budget
from pybroker.net.connection import Connection as ServedConnection
from pybroker.net.processor import Processor
from pybroker.storage.files import os_file
from pybroker.testing import Broker
from pybroker_protocol.messages.produce import PartitionProduceData
from tests.broker.wire_client import WireClient, produce_request
from tests.net.conftest import processor_of

CLIENTS = 5
SYNCED = {"pybroker.fsync.enable": True, "pybroker.fsync.before.ack": True}


def alive(processor: Processor) -> int:
    """The connections of this processor that exist, whether it knows of them or not."""
    return sum(isinstance(found, ServedConnection) and found._processor is processor for found in gc.get_objects())


def test_closed_connection_leaves_no_cycle() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        gc.collect()
        gc.disable()
        try:
            client = Client((broker.host, broker.port))
            for _ in range(3):
                assert client.ask(produce_request("t", batch(b"v")), 9) is not None
            processor = processor_of(broker)
            assert alive(processor) == 1
            client.close()
            wait_until(lambda: alive(processor) == 0, "the connection to be forgotten")
        finally:
            gc.enable()


@pytest.mark.parametrize("acks", [0, -1])
def test_small_produce_that_waits_for_a_sync_pins_no_receive_buffer(monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    """It is written already, or copied: were its request held, each connection would take a buffer that all share."""
    begun, go_on = threading.Event(), threading.Event()
    fdatasync = os_file.fdatasync

    def slow_fdatasync(fd: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        fdatasync(fd)

    with Broker(SYNCED) as broker, ExitStack() as stack:
        broker.create_topic("t")
        stack.callback(go_on.set)
        clients = [stack.enter_context(WireClient((broker.host, broker.port))) for _ in range(CLIENTS)]
        assert [client.produce("t", batch(b"first")).base_offset for client in clients] == list(range(CLIENTS))
        budget = processor_of(broker).budget
        assert budget.pool.bytes_in_use == receive_budget.RECEIVE_BUFFER_BYTES
        monkeypatch.setattr(os_file, "fdatasync", slow_fdatasync)
        for client in clients:
            client.send(produce_request("t", batch(b"second"), acks=acks), 9)
        assert begun.wait(PATIENCE_S)
        partition = broker._running().services.replicas.partition("t", 0)
        assert partition is not None
        log = partition.log
        wait_until(lambda: log.log_end_offset == 2 * CLIENTS, "all are written")
        assert log.recovery_point == CLIENTS
        assert budget.pool.bytes_in_use == receive_budget.RECEIVE_BUFFER_BYTES
        go_on.set()
        wait_until(lambda: log.recovery_point == 2 * CLIENTS, "all are synced")


@pytest.mark.parametrize("acks", [0, -1])
@pytest.mark.parametrize("first_bytes", [1, 2 * storage_limits.INLINE_WRITE_BYTES_MAX], ids=["small", "large"])
def test_produce_to_many_partitions_lets_go_of_its_bytes_once_they_are_stored(first_bytes: int, acks: int) -> None:
    request = produce_request("t", batch(bytes(first_bytes)), acks=acks)
    more = PartitionProduceData(index=0, records=batch(b"v"))
    request.topic_data[0].partition_data += [more] * limits.PARTITIONS_AT_ONCE
    with Broker(SYNCED) as broker, WireClient((broker.host, broker.port)) as client:
        broker.create_topic("t")
        budget = processor_of(broker).budget
        client.produce("t", batch(b"first"))
        before = budget.bytes_counted
        client.send(request, 9)
        if acks:
            (topic,) = client.receive().responses
            assert {reply.error_code for reply in topic.partition_responses} == {0}
        partition = broker._running().services.replicas.partition("t", 0)
        assert partition is not None
        log = partition.log
        wait_until(lambda: log.recovery_point == 2 + limits.PARTITIONS_AT_ONCE, "all are stored")
        wait_until(lambda: budget.bytes_counted == before, "the bytes are let go")
