"""Hostile and broken peers: the right error or a closed connection, bounded memory, nobody else disturbed.

Frames are written by hand: no client would send them.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S, wait_until

from pybroker.limits import BUFFER_POOL_BYTES, UNSENT_BYTES
from pybroker.net.connection import Connection
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient, fetch_request, produce_request

FRAME_BYTES_MAX = 4 << 20
QUEUED_BYTES_MAX = 16 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "queued.max.request.bytes": str(QUEUED_BYTES_MAX),
    }
    with Broker(settings) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def peer(broker: Broker) -> Iterator[socket.socket]:
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as connection:
        yield connection


@pytest.fixture(autouse=True)
def others_are_served(broker: Broker) -> Iterator[None]:
    """Another client works before and after whatever the test did."""
    with WireClient((broker.host, broker.port)) as client:
        assert client.produce("t", batch(b"before")).error_code == ErrorCode.NONE
        yield
        assert client.produce("t", batch(b"after")).error_code == ErrorCode.NONE


def is_closed_by_broker(connection: socket.socket) -> bool:
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, client_id: bytes = b"test") -> bytes:
    return struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id


@pytest.mark.parametrize("length", [-1, -(1 << 31), FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_impossible_frame_length_closes_the_connection(peer: socket.socket, length: int) -> None:
    peer.sendall(struct.pack(">i", length))
    assert is_closed_by_broker(peer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        header(3, 9)[:9],
        header(3, 1, b"x")[:-1],
        struct.pack(">hhih", 3, 1, 1, 30_000) + b"short",
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + struct.pack(">i", 0),
        header(999, 0),
        header(-1, 0),
        header(3, 99),
        header(3, -1),
        header(0, 2),
        header(3, 1) + struct.pack(">i", 1_000_000),
        header(3, 1) + struct.pack(">ih", 1, 3_000) + b"t",
        header(3, 9) + b"\xff\xff\xff\xff\xff\xff",
        header(0, 9) + b"\x00\x00" + b"\xff" * 20,
    ],
)
def test_frame_that_is_no_request_closes_the_connection(peer: socket.socket, body: bytes) -> None:
    peer.sendall(frame(body))
    assert is_closed_by_broker(peer)


def test_bytes_behind_the_last_field_are_ignored(peer: socket.socket) -> None:
    """librdkafka asks for the metadata of all topics with three bytes too many."""
    null_topics_and_flags, behind = b"\x00\x00\x00\x00", b"\x01\x00\x00"
    peer.sendall(frame(header(3, 13) + b"\x00" + null_topics_and_flags + behind))
    (length,) = struct.unpack(">i", peer.recv(4))
    assert length > 0


def test_random_bytes_close_the_connection_or_starve_alone(broker: Broker) -> None:
    noise = random.Random(7)
    for _ in range(200):
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as connection:
            connection.sendall(noise.randbytes(noise.randrange(1, 400)))
            connection.shutdown(socket.SHUT_WR)
            assert is_closed_by_broker(connection)


def test_future_version_of_api_versions_is_told_which_versions_are_known(peer: socket.socket) -> None:
    peer.sendall(frame(header(18, 77) + b"\x00whatever a later version may hold"))
    (length,) = struct.unpack(">i", peer.recv(4))
    payload = peer.recv(length)
    response = codec.decode(ApiVersionsResponse, 0, payload[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize("name", ["", "-bad", "bad-", "with space", "x" * 10 + "\n"])
def test_client_software_name_must_be_a_name(broker: Broker, name: str) -> None:
    with WireClient((broker.host, broker.port)) as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert client.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_request_sent_a_byte_at_a_time_is_served(peer: socket.socket) -> None:
    request = frame(header(18, 0))
    for position in range(len(request)):
        peer.sendall(request[position : position + 1])
    assert len(peer.recv(4)) == 4


def test_declared_length_alone_allocates_nothing(broker: Broker) -> None:
    before = anonymous_bytes()
    connections = [socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) for _ in range(200)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", FRAME_BYTES_MAX) + header(0, 9))
        with WireClient((broker.host, broker.port)) as client:
            assert client.ask(MetadataRequest(topics=None), 1) is not None
        assert anonymous_bytes() - before < 32 << 20  # 200 declared lengths are 800 MiB
    finally:
        for connection in connections:
            connection.close()


def test_unfinished_frames_stop_growing_at_the_budget_and_others_are_still_served(broker: Broker) -> None:
    before = anonymous_bytes()
    connections = [socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) for _ in range(40)]
    try:
        for connection in connections:
            connection.setblocking(False)
            connection.send(struct.pack(">i", FRAME_BYTES_MAX) + header(0, 9))
        # All of each frame but its end: nothing else than the budget keeps the broker from taking that.
        unsent = dict.fromkeys(connections, FRAME_BYTES_MAX - 1024)
        chunk = memoryview(bytes(1 << 16))
        accepted_at = time.monotonic()
        while any(unsent.values()) and time.monotonic() - accepted_at < 0.5:
            for connection, left in unsent.items():
                # One that was allowed to finish its frame is closed in the end, because it does not.
                with suppress(BlockingIOError, ConnectionResetError, BrokenPipeError):
                    sent = connection.send(chunk[:left])
                    unsent[connection] -= sent
                    accepted_at = time.monotonic() if sent else accepted_at
            select.select([], [connection for connection, left in unsent.items() if left], [], 0.05)
        with WireClient((broker.host, broker.port)) as client:
            assert client.produce("t", batch(b"meanwhile")).error_code == ErrorCode.NONE
        assert broker._server is not None
        assert broker._server._sockets is not None
        # Beside the budget one frame may be finished, whose buffer is there twice while it grows.
        assert broker._server._sockets.processor.budget.bytes_counted <= QUEUED_BYTES_MAX + 2 * FRAME_BYTES_MAX
        # Buffers that were outgrown stay in the pool, and the allocator keeps fragments.  Whole frames are 160 MiB.
        assert anonymous_bytes() - before < QUEUED_BYTES_MAX + BUFFER_POOL_BYTES + (48 << 20)
    finally:
        for connection in connections:
            connection.close()


def test_client_that_never_reads_is_served_no_further_than_its_bound(broker: Broker) -> None:
    payload = batch(b"x" * 100_000)
    with WireClient((broker.host, broker.port)) as client:
        base_offset = client.produce("t", payload).base_offset
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        request = fetch_request("t", base_offset, max_bytes=1 << 20)
        encoded = frame(header(1, 4) + codec.encode(request, 4))
        connection.setblocking(False)
        before = anonymous_bytes()
        accepted = 0
        refused_since = None
        while refused_since is None or time.monotonic() - refused_since < 0.3:
            try:
                accepted += connection.send(encoded * 100)
                refused_since = None
            except BlockingIOError:
                refused_since = refused_since or time.monotonic()
                time.sleep(0.005)
            # Every request asks for 100 kB: without a bound this would be gigabytes of replies.
            assert accepted < 64 << 20
        assert broker._server is not None
        assert broker._server._sockets is not None
        served = [each for each in broker._server._sockets.processor.connections if isinstance(each, Connection)]
        unsent = max(each.unsent_bytes for each in served)
        assert unsent <= UNSENT_BYTES + (8 << 20)  # the turn that reaches the bound is served to its end
        assert anonymous_bytes() - before < 48 << 20


def test_client_that_leaves_while_its_fetch_waits_leaves_nothing_behind(broker: Broker) -> None:
    broker.create_topic("left")
    # The loop alone makes and opens partitions.
    partition = broker._call(lambda server, done: done(server.services.replicas.partition("left", 0)))
    with WireClient((broker.host, broker.port)) as client:
        client.send(fetch_request("left", 0, max_wait_ms=600_000), 12)
        wait_until(lambda: len(partition.waiting) == 1, "the fetch waits")
    wait_until(lambda: not partition.waiting, "the fetch of a client that is gone is forgotten")


def test_endless_pipelining_does_not_hold_up_another_client(broker: Broker) -> None:
    flood = frame(header(18, 0)) * 2_000
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as flooding:
        flooding.setblocking(False)
        most_ns = 0
        with WireClient((broker.host, broker.port)) as client:
            for _ in range(100):
                try:
                    flooding.send(flood)
                    while len(flooding.recv(1 << 20)) == 1 << 20:
                        pass
                except BlockingIOError:
                    pass
                begun_ns = time.process_time_ns()
                client.produce("t", batch(b"beside the flood"))
                most_ns = max(most_ns, time.process_time_ns() - begun_ns)
        assert most_ns < 2e9, "two seconds of work: the broker is in this process"


def test_failed_produce_of_one_client_leaves_its_pipeline_in_order(broker: Broker) -> None:
    good, broken = batch(b"good"), bytearray(batch(b"broken"))
    broken[-1] ^= 1
    with WireClient((broker.host, broker.port)) as client:
        for payload in (good, bytes(broken), good):
            client.send(produce_request("t", payload), 9)
        errors = [client.receive().responses[0].partition_responses[0].error_code for _ in range(3)]
        assert errors == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


def anonymous_bytes() -> int:
    """Anonymous memory of this process, which the broker lives in."""
    with open(f"/proc/{os.getpid()}/status") as status:
        (line,) = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
