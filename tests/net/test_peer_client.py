"""Requests to other brokers: answered in order, told apart by whether they may be done, and bounded.

The other broker is a real one, or a server in the same loop that does what no broker should.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import uvloop
from harness.batches import batch
from harness.broker_probe import refusing_port
from harness.waiting import PATIENCE_S
from harness.wire import reply_frame

from pybroker import cluster_limits, limits
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, Endpoint, ImageBuilder
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.peers import REPLICATION, PeerError, PeerFailure
from pybroker.net.loop_env import loop_env
from pybroker.net.peer_client import PEER_LOGIN_REPLY_BYTES_MAX, PeerClient
from pybroker.testing import Broker
from pybroker_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.primitives import STRING_BYTES_MAX
from pybroker_protocol.schema import Request
from tests.broker.wire_client import WireClient, fetch_request, produce_request

OTHER = 2
BROKER_ID_MAX = 0x7FFF_FFFF
LISTENER = "PLAINTEXT"
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
HEARTBEAT_KEY, HEARTBEAT_VERSION = 12, 4

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Outcome = tuple[Any, PeerError | None]


def registered(host: str, port: int, epoch: int = 1, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(OTHER, epoch, bytes(16), {LISTENER: Endpoint(host, port)}, fenced=fenced)


class Asking:
    """A ``PeerClient`` that knows one other broker."""

    def __init__(self, host: str, port: int, broker_id: int = 1, **options: Any) -> None:
        self.metadata = MetadataCache(ClusterImage(epoch=1, brokers={OTHER: registered(host, port)}))
        self.peers = PeerClient(loop_env(), self.metadata, broker_id, LISTENER, **options)

    def begin(
        self, request: Request = HEARTBEAT, version: int = HEARTBEAT_VERSION, timeout_ms: int = 10_000, **options: Any
    ) -> asyncio.Future[Outcome]:
        """Ask; the future is done when ``done`` has been called."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(response: Any | None, error: PeerError | None) -> None:
            assert not calling, "never inside of the call"
            outcome.set_result((response, error))

        calling = True
        self.peers.ask(OTHER, request, version, done, timeout_ms=timeout_ms, **options)
        calling = False
        return outcome

    async def ask(self, *args: Any, **options: Any) -> Outcome:
        return await asyncio.wait_for(self.begin(*args, **options), PATIENCE_S)

    async def fail(self, *args: Any, **options: Any) -> PeerError:
        return failed(await self.ask(*args, **options))

    async def forward(self, frame: bytes, principal: str = "User:alice", timeout_ms: int = 10_000) -> Outcome:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.peers.forward(
            OTHER,
            frame,
            principal,
            "/::1",
            lambda response, error: outcome.set_result((response, error)),
            timeout_ms=timeout_ms,
        )
        return await asyncio.wait_for(outcome, PATIENCE_S)

    def tell_of(self, registration: BrokerRegistration | None) -> None:
        """The image has another registration, or none."""
        before = self.metadata.image
        builder = ImageBuilder(before)
        if registration is not None:
            builder.put_broker(registration)
        else:
            builder._own("brokers", OTHER).pop(OTHER)
        self.metadata.apply(*builder.build(before.epoch + 1))


def failed(outcome: Outcome) -> PeerError:
    response, error = outcome
    assert response is None
    assert error is not None
    return error


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"], autouse=True)
def loop_factory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs on both kinds of loops that a broker runs on."""
    monkeypatch.setitem(globals(), "new_loop", request.param)


def new_loop() -> asyncio.AbstractEventLoop:
    raise NotImplementedError


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(test, PATIENCE_S * 2))


def with_server(
    connected: Connected, test: Callable[[Asking, asyncio.Server], Awaitable[None]], **options: Any
) -> None:
    """Run ``test`` with a server on the same loop, to which each connection is given as ``connected`` says."""

    async def body() -> None:
        serving: set[asyncio.Task[Any]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            serving.add(task)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await connected(reader, writer)
            with suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        asking = Asking(*server.sockets[0].getsockname()[:2], **options)
        try:
            await test(asking, server)
        except BaseException:
            for task in serving:
                task.cancel()  # it may wait for what the test did not come to
            raise
        finally:
            asking.peers.close()
            await asking.peers.wait_closed()
            server.close()
            if serving:
                await asyncio.wait(serving)
        for task in serving:
            task.result()

    run(body())


async def read_request(reader: asyncio.StreamReader) -> int:
    """Read a whole request; gives back its correlation id."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    return int.from_bytes(frame[4:8], "big")


def heartbeat_reply(correlation_id: int, throttle_time_ms: int = 0) -> bytes:
    response = HeartbeatResponse(throttle_time_ms=throttle_time_ms, error_code=0)
    return reply_frame(HEARTBEAT_KEY, response, HEARTBEAT_VERSION, correlation_id)


async def answer_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(heartbeat_reply(await read_request(reader)))


async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while True:
        await read_request(reader)


# --- a broker that answers -------------------------------------------------------------------------------------------


def test_broker_answers_what_it_is_asked_in_the_version_asked(pybroker: Broker) -> None:
    async def body() -> None:
        asking = Asking(pybroker.host, pybroker.port)
        for version in (1, 8, 12):  # both forms of the header, and both of the reply's
            response, error = await asking.ask(MetadataRequest(topics=[]), version)
            assert error is None
            assert [broker.port for broker in response.brokers] == [pybroker.port]
        asking.peers.close()

    run(body())


def test_records_of_a_fetch_are_views_that_hold_while_done_runs() -> None:
    sent = batch(b"v" * 300_000)
    fetch = FetchRequest(
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=10 << 20,
        isolation_level=0,
        topics=[
            FetchTopic(
                topic="copied",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10 << 20)],
            )
        ],
    )

    async def body(broker: Broker) -> None:
        asking = Asking(broker.host, broker.port)
        seen: list[tuple[type, bytes]] = []

        def done(response: Any | None, error: PeerError | None) -> None:
            assert error is None
            assert response is not None
            records = response.responses[0].partitions[0].records
            seen.append((type(records), bytes(records)))

        for _ in range(3):  # the buffer is as long as the reply from the second on
            asking.peers.ask(OTHER, fetch, 12, done, timeout_ms=5_000, channel=REPLICATION)
        async with asyncio.timeout(PATIENCE_S):
            while len(seen) < 3:
                await asyncio.sleep(0.001)
        assert {kind for kind, _ in seen} == {memoryview}
        assert [copy[61:] for _, copy in seen] == [sent[61:]] * 3
        asking.peers.close()

    with Broker() as broker:
        broker.create_topic("copied")
        with WireClient((broker.host, broker.port)) as client:
            client.ask(produce_request("copied", sent), 9)
        run(body(broker))


def test_requests_of_a_channel_are_pipelined_and_answered_in_order() -> None:
    held: list[int] = []

    async def hold_five(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            held.append(await read_request(reader))
        replies = b"".join(heartbeat_reply(number, throttle_time_ms=at) for at, number in enumerate(held))
        for at in range(0, len(replies), 3):  # pieces that are no frames
            writer.write(replies[at : at + 3])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        outcomes = await asyncio.gather(*(asking.begin() for _ in range(5)))
        assert held == sorted(held)
        assert [response.throttle_time_ms for response, _ in outcomes if response is not None] == [0, 1, 2, 3, 4]

    with_server(hold_five, test)


def test_each_channel_is_a_connection_of_its_own() -> None:
    connections: list[int] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        if len(connections) == 1:
            await stay_silent(reader, writer)  # what waits on one channel holds up nothing on the other
        await answer_for_ever(reader, writer)

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        waiting = asking.begin()
        while not connections:
            await asyncio.sleep(0)
        for _ in range(2):
            assert (await asking.ask(channel=REPLICATION))[1] is None
        assert connections == [0, 1]
        assert not waiting.done()

    with_server(count, test)


def test_nothing_is_connected_before_somebody_asks(pybroker: Broker) -> None:
    async def body() -> None:
        asking = Asking(pybroker.host, pybroker.port)
        asking.tell_of(registered(pybroker.host, pybroker.port, epoch=2))
        assert not asking.peers._links
        asking.peers.close()

    run(body())


# --- one that does not -----------------------------------------------------------------------------------------------


def test_broker_that_closes_in_the_middle_of_a_reply_may_have_done_what_was_sent() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = heartbeat_reply(await read_request(reader))
        writer.write(reply[:-1])

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        for _ in range(2):
            error = await asking.fail()
            assert error.reason is PeerFailure.DISCONNECTED
            assert error.may_be_done

    with_server(break_off, test)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda number: heartbeat_reply(number + 1), id="another correlation id"),
        pytest.param(lambda _: b"\xff" * 64, id="a negative length"),
        pytest.param(lambda _: struct.pack(">i", 2) + b"ab", id="no header"),
        pytest.param(lambda n: struct.pack(">iib", 5, n, 0), id="no body"),
        pytest.param(lambda n: struct.pack(">iib6s", 11, n, 0, b"\xff" * 6), id="garbage"),
        pytest.param(lambda n: struct.pack(">iibihbi", 16, n, 0, 0, 0, 0, 7), id="bytes behind the end"),
    ],
)
def test_what_is_no_reply_breaks_the_connection_and_the_next_one_serves(reply: Callable[[int], bytes]) -> None:
    connections = 0

    async def misbehave_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections > 1:
            await answer_for_ever(reader, writer)
        writer.write(reply(await read_request(reader)))
        await reader.read()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        error = await asking.fail()
        assert error.reason in {PeerFailure.BAD_REPLY, PeerFailure.DISCONNECTED}
        assert error.may_be_done
        response, none = await asking.ask()
        assert none is None
        assert isinstance(response, HeartbeatResponse)
        assert connections == 2

    with_server(misbehave_once, test)


def test_reply_is_as_long_as_a_frame_may_be() -> None:
    """Other brokers send batches whole, however long they are."""
    records = memoryview(bytearray(129 << 20))

    async def send_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = PartitionData(
            partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
        )
        topic = FetchableTopicResponse(topic="t", partitions=[data])
        response = FetchResponse(throttle_time_ms=0, responses=[topic])
        writer.write(reply_frame(1, response, 12, await read_request(reader)))
        await reader.read()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        lengths: list[int] = []
        answered = asyncio.Event()

        def done(response: Any | None, error: PeerError | None) -> None:
            if response is not None:
                lengths.append(len(response.responses[0].partitions[0].records))
            answered.set()

        asking.peers.ask(OTHER, fetch_request("t", 0), 12, done, timeout_ms=PATIENCE_S * 1_000)
        await asyncio.wait_for(answered.wait(), PATIENCE_S)
        assert lengths == [len(records)]

    with_server(send_much, test)


def test_who_has_not_proved_to_be_a_broker_is_not_let_say_much() -> None:
    async def say_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(struct.pack(">i", PEER_LOGIN_REPLY_BYTES_MAX + 1))
        await reader.read()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        error = await asking.fail()
        assert (error.reason, error.may_be_done) == (PeerFailure.UNREACHABLE, False)
        assert f"at most {PEER_LOGIN_REPLY_BYTES_MAX} are served" in error.message

    with_server(say_much, test, secret=b"secret")


def test_reply_that_nobody_asked_for_breaks_the_connection() -> None:
    lost = asyncio.Event()

    async def say_too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = await read_request(reader)
        writer.write(heartbeat_reply(number) + heartbeat_reply(number + 1))
        await reader.read()
        lost.set()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        assert (await asking.ask())[1] is None
        await asyncio.wait_for(lost.wait(), PATIENCE_S)

    with_server(say_too_much, test)


def test_broker_that_never_replies_times_out_and_takes_what_waits_behind_along() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        first, second = asking.begin(timeout_ms=50), asking.begin(timeout_ms=60_000)
        (_, late), (_, behind) = await asyncio.wait_for(asyncio.gather(first, second), PATIENCE_S)
        assert late is not None
        assert behind is not None
        assert (late.reason, late.may_be_done) == (PeerFailure.TIMED_OUT, True)
        assert (behind.reason, behind.may_be_done) == (PeerFailure.DISCONNECTED, True)

    with_server(stay_silent, test)


def test_what_is_not_handed_to_a_connection_that_breaks_has_surely_not_been_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNSENT_BYTES", 1 << 10)
    broken = asyncio.Event()

    async def read_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await broken.wait()
        writer.transport.abort()

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        large = HeartbeatRequest(group_id="g" * 16_000, generation_id=1, member_id="m")
        outcomes = [asking.begin(large) for _ in range(900)]  # more than the sockets' buffers hold
        link = asking.peers._links[OTHER]["control"]
        while link._connection is None or link._connection.may_write:
            await asyncio.sleep(0)
        broken.set()
        errors = [error for _, error in await asyncio.wait_for(asyncio.gather(*outcomes), PATIENCE_S)]
        may_be_done = [error.may_be_done for error in errors if error is not None]
        assert len(may_be_done) == 900
        assert may_be_done == sorted(may_be_done, reverse=True)
        assert may_be_done[0]
        assert not may_be_done[-1]

    with_server(read_nothing, test)


def test_time_out_before_the_sending_takes_its_request_alone() -> None:
    async def test(asking: Asking, server: asyncio.Server) -> None:
        port = server.sockets[0].getsockname()[1]
        asking.tell_of(registered("127.0.0.1", 9))  # nobody listens there
        assert (await asking.fail()).reason is PeerFailure.UNREACHABLE
        early, later = asking.begin(timeout_ms=0), asking.begin()
        _, error = await asyncio.wait_for(early, PATIENCE_S)
        assert error is not None
        assert (error.reason, error.may_be_done) == (PeerFailure.TIMED_OUT, False)
        asking.tell_of(registered("127.0.0.1", port, epoch=2))
        _, error = await asyncio.wait_for(later, PATIENCE_S)
        assert error is not None
        assert (error.reason, error.may_be_done) == (PeerFailure.DISCONNECTED, False)

    with_server(answer_for_ever, test)


# --- away, and back --------------------------------------------------------------------------------------------------


def test_broker_that_takes_no_connection_has_surely_done_nothing() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        with refusing_port() as port:
            asking.tell_of(registered("127.0.0.1", port, epoch=2))
            error = await asking.fail()
        assert (error.reason, error.may_be_done) == (PeerFailure.UNREACHABLE, False)
        assert str(error) == "no connection to it can be made: Connection refused"

    with_server(answer_for_ever, test)


def test_each_connection_that_breaks_or_cannot_be_made_is_told() -> None:
    async def test(asking: Asking, server: asyncio.Server) -> None:
        told: list[int] = []
        asking.peers.on_broken = told.append
        await asking.fail()
        assert told == [OTHER]
        server.close()
        await server.wait_closed()
        await asking.fail()
        assert told == [OTHER, OTHER]

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    with_server(hang_up, test)


@pytest.mark.parametrize(("leaving", "lines"), [(None, 2), (1, 0), (OTHER, 0), ("this process", 0)])
def test_end_of_a_connection_is_a_warning_unless_one_of_the_two_leaves_in_good_order(
    caplog: pytest.LogCaptureFixture, leaving: int | str | None, lines: int
) -> None:
    async def test(asking: Asking, server: asyncio.Server) -> None:
        if isinstance(leaving, str):
            asking.peers.is_leaving = True
        elif leaving is not None:
            endpoints = asking.metadata.image.brokers[OTHER].endpoints
            asking.tell_of(BrokerRegistration(leaving, 1, bytes(16), endpoints, in_controlled_shutdown=True))
        await asking.fail()
        server.close()
        await server.wait_closed()
        await asking.fail()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    with_server(hang_up, test)
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == lines


def test_broker_of_unknown_address_is_unreachable() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        asking.tell_of(BrokerRegistration(OTHER, 2, bytes(16), {"OTHERS": Endpoint("127.0.0.1", 1)}))
        assert (await asking.fail()).reason is PeerFailure.UNREACHABLE
        asking.tell_of(None)
        error = await asking.fail()
        assert (error.reason, error.may_be_done) == (PeerFailure.UNREACHABLE, False)

    with_server(answer_for_ever, test)


def test_tries_to_connect_keep_a_growing_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.peer_link.RECONNECT_BACKOFF_MS", 20)
    monkeypatch.setattr("pybroker.net.peer_link.RECONNECT_BACKOFF_MAX_MS", 80)
    monkeypatch.setattr("pybroker.net.peer_link.RECONNECT_JITTER", 0)

    async def test(asking: Asking, server: asyncio.Server) -> None:
        server.close()
        await server.wait_closed()
        loop, ends = asyncio.get_running_loop(), []
        for _ in range(5):
            assert (await asking.fail()).reason is PeerFailure.UNREACHABLE
            ends.append(loop.time())
        distances = [later - earlier for earlier, later in pairwise(ends)]
        for distance, least_ms in zip(distances, (20, 40, 80, 80), strict=True):
            assert distance >= (least_ms - 2) / 1000

    with_server(answer_for_ever, test)


def test_broker_that_registers_anew_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.peer_link.RECONNECT_BACKOFF_MS", 10**8)
    monkeypatch.setattr("pybroker.net.peer_link.RECONNECT_BACKOFF_MAX_MS", 10**8)

    async def test(asking: Asking, server: asyncio.Server) -> None:
        asking.tell_of(registered("127.0.0.1", 9, epoch=2))
        assert (await asking.fail()).reason is PeerFailure.UNREACHABLE
        waiting = asking.begin()
        asking.tell_of(registered("127.0.0.1", server.sockets[0].getsockname()[1], epoch=3))
        _, error = await asyncio.wait_for(waiting, PATIENCE_S)
        assert error is not None, "what waits for a broker that has moved is told so"
        assert (error.reason, error.may_be_done) == (PeerFailure.DISCONNECTED, False)
        assert (await asking.ask())[1] is None

    with_server(answer_for_ever, test)


def test_broker_that_moves_gets_a_new_connection() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        sent = asking.begin()
        link = asking.peers._links[OTHER]["control"]
        while not link._sent_count:
            await asyncio.sleep(0)
        with Broker() as moved:
            asking.tell_of(registered(moved.host, moved.port, epoch=2))
            _, error = await asyncio.wait_for(sent, PATIENCE_S)
            assert error is not None
            assert (error.reason, error.may_be_done) == (PeerFailure.DISCONNECTED, True)
            response, none = await asking.ask(MetadataRequest(topics=[]), 12)
            assert none is None
            assert response.brokers[0].port == moved.port

    with_server(stay_silent, test)


def test_nobody_waits_for_a_broker_that_is_fenced() -> None:
    async def test(asking: Asking, server: asyncio.Server) -> None:
        port = server.sockets[0].getsockname()[1]
        sent = asking.begin(timeout_ms=60_000)
        link = asking.peers._links[OTHER]["control"]
        while not link._sent_count:
            await asyncio.sleep(0)
        asking.tell_of(registered("127.0.0.1", port, fenced=True))
        _, error = await asyncio.wait_for(sent, PATIENCE_S)
        assert error is not None
        assert (error.reason, error.may_be_done) == (PeerFailure.DISCONNECTED, True)

    with_server(stay_silent, test)


# --- bounds and ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("PEER_REQUESTS_MAX", 3), ("PEER_REQUEST_BYTES_MAX", 100)])
def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(f"pybroker.net.peer_link.{name}", value)

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        taken = [asking.begin() for _ in range(3)]
        error = await asking.fail()
        assert (error.reason, error.may_be_done) == (PeerFailure.BUSY, False)
        assert not any(outcome.done() for outcome in taken)

    with_server(stay_silent, test)


def test_one_request_is_taken_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.peer_link.PEER_REQUEST_BYTES_MAX", 10)

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        for _ in range(2):
            assert (await asking.ask())[1] is None

    with_server(answer_for_ever, test)


REQUEST_BYTES_MAX = 1_000


def test_envelope_adds_no_more_than_brokers_let_each_other_send() -> None:
    received: list[int] = []

    async def measure(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        received.append(len(await reader.readexactly(size)))

    async def test(asking: Asking, _server: asyncio.Server) -> None:
        longest = "t" * STRING_BYTES_MAX + ":" + "n" * STRING_BYTES_MAX
        assert failed(await asking.forward(bytes(REQUEST_BYTES_MAX), longest)).reason is PeerFailure.DISCONNECTED
        (size,) = received
        assert REQUEST_BYTES_MAX + 2 * STRING_BYTES_MAX < size <= REQUEST_BYTES_MAX + cluster_limits.ENVELOPE_BYTES_MAX

    with_server(measure, test, broker_id=BROKER_ID_MAX, request_bytes_max=REQUEST_BYTES_MAX)


@pytest.mark.parametrize(
    ("size", "principal"),
    [(REQUEST_BYTES_MAX + 1, "User:alice"), (REQUEST_BYTES_MAX, "User:" + "n" * (STRING_BYTES_MAX + 1))],
    ids=["longer than a request may be", "whose principal no envelope takes"],
)
def test_what_is_too_long_to_be_forwarded_fails_by_itself_before_anything_is_sent(size: int, principal: str) -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        with pytest.raises(ValueError, match="bytes is"):
            await asking.forward(bytes(size), principal)
        assert not asking.peers._links

    with_server(stay_silent, test, request_bytes_max=REQUEST_BYTES_MAX)


def test_close_fails_what_waits_and_whoever_asks_later() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        sent, unsent = asking.begin(), asking.begin(channel=REPLICATION)
        link = asking.peers._links[OTHER]["control"]
        while not link._sent_count:
            await asyncio.sleep(0)
        asking.peers._links[OTHER][REPLICATION]._drop_attempt()
        asking.peers.close()
        assert sent.done()
        assert unsent.done()
        for outcome in (sent, unsent):
            error = outcome.result()[1]
            assert error is not None
            assert error.reason is PeerFailure.CLOSED
        assert (await asking.fail()).reason is PeerFailure.CLOSED

    with_server(stay_silent, test)


def test_close_while_a_connection_is_made_leaves_nothing_behind() -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        waiting = asking.begin()
        await asyncio.sleep(0)
        asking.peers.close()
        assert waiting.done()
        await asking.peers.wait_closed()
        assert not asking.peers._shared.attempts
        link_tasks = [task for task in asyncio.all_tasks() if "_try_to_connect" in repr(task)]
        assert not link_tasks

    with_server(stay_silent, test)


def test_done_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test(asking: Asking, _server: asyncio.Server) -> None:
        def fail(_response: Any, _error: Any) -> None:
            raise ZeroDivisionError

        asking.peers.ask(OTHER, HEARTBEAT, HEARTBEAT_VERSION, fail, timeout_ms=1_000)
        assert (await asking.ask())[1] is None

    with caplog.at_level(logging.ERROR):
        with_server(answer_for_ever, test)
    assert "ZeroDivisionError" in caplog.text
