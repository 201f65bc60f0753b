"""Produce with acks=0 whose write ends, well or not, only after the handler has returned; and what stands behind it."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until

from pybroker import storage_limits
from pybroker.net import reply_order
from pybroker.net.connection import Connection as ServedConnection
from pybroker.storage.files import os_file
from pybroker.testing import Broker
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest
from tests.broker.wire_client import WireClient, fetch_request, produce_request

VERSION = 9
LARGE = storage_limits.INLINE_WRITE_BYTES_MAX * 2
TOPIC = "t"
MISSING_PARTITION = 7


class WriterThread:
    """The writes of large batches: each waits until it is let go on, and then fails with ``error`` if there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.error: OSError | None = None
        pwrite = os_file.pwrite

        def slow_pwrite(fd: int, data: Any, position: int) -> int:
            if len(data) > storage_limits.INLINE_WRITE_BYTES_MAX:
                self.begun.set()
                assert self.go_on.wait(PATIENCE_S)
                if self.error is not None:
                    raise self.error
            return pwrite(fd, data, position)

        monkeypatch.setattr(os_file, "pwrite", slow_pwrite)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriterThread]:
    """The writer thread of the brokers of this test; it is let go on at the end, so that they can stop."""
    thread = WriterThread(monkeypatch)
    yield thread
    thread.go_on.set()


@pytest.fixture
def broker(writer: WriterThread) -> Iterator[Broker]:
    """A broker of the test's own, because its disk fails."""
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker
        writer.go_on.set()


def connect(broker: Broker) -> WireClient:
    return WireClient((broker.host, broker.port))


def send(client: WireClient, request: ProduceRequest) -> None:
    client.post(request, version=VERSION)


def served(broker: Broker, count: int) -> list[ServedConnection]:
    """The broker's side of all connections, once there are ``count``."""
    sockets = broker._running()._sockets
    assert sockets is not None
    known: set[Any] = sockets.processor.connections
    wait_until(lambda: len(known) == count, f"{count} connections")
    return list(known)


def large_batch(fill: bytes) -> bytes:
    return batch(fill * LARGE)


def test_a_write_that_fails_later_closes_the_connection_and_says_why(
    broker: Broker, writer: WriterThread, caplog: pytest.LogCaptureFixture
) -> None:
    writer.error = OSError(errno.ENOSPC, "no room")
    with caplog.at_level(logging.WARNING, "pybroker.net"), connect(broker) as client:
        send(client, produce_request(TOPIC, large_batch(b"a"), acks=0))
        assert writer.begun.wait(PATIENCE_S)
        writer.go_on.set()
        assert client.receive_payload() is None
    assert f"produce with acks=0 to {TOPIC}-0: error" in caplog.text


def test_a_write_that_succeeds_later_leaves_the_connection_open(broker: Broker, writer: WriterThread) -> None:
    writer.go_on.set()
    with connect(broker) as client:
        send(client, produce_request(TOPIC, large_batch(b"a"), acks=0))
        assert client.produce(TOPIC, batch(b"b")).base_offset == 1


def test_a_client_that_has_gone_is_not_missed_when_its_write_fails(broker: Broker, writer: WriterThread) -> None:
    writer.error = OSError(errno.ENOSPC, "no room")
    with connect(broker) as client:
        send(client, produce_request(TOPIC, large_batch(b"a"), acks=0))
        assert writer.begun.wait(PATIENCE_S)
    writer.go_on.set()
    with connect(broker) as other:
        # What stands behind a write that fails, fails with it.
        wait_until(lambda: other.produce(TOPIC, batch(b"b")).base_offset == 0, "the room is given back")


def test_an_error_of_one_partition_spares_the_bytes_that_are_still_being_written_for_another(
    broker: Broker, writer: WriterThread
) -> None:
    """Were the buffer given back with the connection, the next request of its size would be written in its place."""
    sent = large_batch(b"a")
    request = produce_request(TOPIC, sent, acks=0)
    nowhere = PartitionProduceData(index=MISSING_PARTITION, records=batch(b"x"))
    request.topic_data[0].partition_data.append(nowhere)
    with connect(broker) as client, connect(broker) as other:
        send(client, request)
        assert writer.begun.wait(PATIENCE_S)
        send(other, produce_request(TOPIC, large_batch(b"z"), acks=0))
        wait_until(
            lambda: all(connection._replies.waiting for connection in served(broker, 2)), "both requests are here"
        )
        writer.go_on.set()
        assert client.receive_payload() is None
    with connect(broker) as reader:
        data = reader.fetch(TOPIC, 0, partition_max_bytes=4 * LARGE, max_bytes=4 * LARGE)
    records = bytes(data.responses[0].partitions[0].records or b"")
    assert records[16 : len(sent)] == sent[16:]


def test_a_client_that_writes_faster_than_the_disk_is_read_no_further(
    broker: Broker, writer: WriterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a reply, and yet what is received and not written stays within the bound on waiting requests."""
    ahead, sent = 3, 24
    monkeypatch.setattr(reply_order, "PIPELINED_PRODUCE_BYTES", ahead * LARGE)
    partition = broker._running().services.replicas.partition(TOPIC, 0)
    assert partition is not None
    with connect(broker) as client, ThreadPoolExecutor(1) as sender:
        (connection,) = served(broker, 1)

        def send_all() -> None:
            for _ in range(sent):
                send(client, produce_request(TOPIC, large_batch(b"a"), acks=0))

        sending = sender.submit(send_all)
        try:
            wait_until(
                lambda: (
                    partition.log.next_offset >= ahead
                    and connection._reading_paused
                    and not connection.time_slice.is_awaited
                ),
                "the broker reads no further",
            )
            assert partition.log.next_offset == ahead
        finally:
            writer.go_on.set()
        sending.result(PATIENCE_S)
        assert client.produce(TOPIC, batch(b"b")).base_offset == sent


def test_what_is_asked_behind_a_write_sees_what_was_written(broker: Broker, writer: WriterThread) -> None:
    with connect(broker) as client:
        send(client, produce_request(TOPIC, large_batch(b"a"), acks=0))
        client.send(fetch_request(TOPIC, 0), 12)
        assert writer.begun.wait(PATIENCE_S)
        (connection,) = served(broker, 1)
        wait_until(lambda: connection._reading_paused, "the fetch is here, and waits")
        writer.go_on.set()
        assert client.receive().responses[0].partitions[0].high_watermark == 1
