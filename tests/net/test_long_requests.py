"""A request that takes long is served in steps: in its place, beside others, and no longer than somebody waits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker import limits
from pybroker.coordinators.group.classic.group_responses import described_group_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.net import long_requests as long_requests_module
from pybroker.net import requests as requests_module
from pybroker.net.dispatch import FETCH_KEY, PRODUCE_KEY, ServedApi
from pybroker.net.fast_paths import FastPaths
from pybroker.net.long_requests import MANY_LONG_REQUESTS
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from tests.broker.wire_client import WireClient
from tests.net.conftest import each_step_taking_a_turn, processor_of
from tests.net.fake_network import API_KEY, FakeNetwork, frame, post, replies

KEY, VERSION = 15, 5


class Handler:
    """A handler of DescribeGroups in steps: it stops after each group, and where it is told to it waits."""

    def __init__(self) -> None:
        self.requests: list[DescribeGroupsRequest] = []
        self.steps = 0
        self.ended = 0
        self.waits_for: Parked | None = None

    def handle(self, _ctx: RequestContext, request: DescribeGroupsRequest) -> Steps:
        self.requests.append(request)
        described = []
        try:
            for group in request.groups:
                described.append(described_group_error(group, 0))
                self.steps += 1
                yield
            if self.waits_for is not None:
                described.append(described_group_error((yield self.waits_for), 0))
        finally:
            self.ended += 1
        return DescribeGroupsResponse(throttle_time_ms=0, groups=described)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def handler(broker: Broker) -> Iterator[Handler]:
    """In the place of the real one, and with no time at all: each step takes all of a turn."""
    stands_in = Handler()

    def replace(server: Any, done: Any) -> None:
        api: ServedApi = server._sockets.processor.dispatcher.resolve(KEY << 16 | VERSION)
        api.handle = stands_in.handle
        done(None)

    broker._call(replace)
    with each_step_taking_a_turn(broker):
        yield stands_in


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient((broker.host, broker.port)) as connected:
        yield connected


def groups_of(response: DescribeGroupsResponse) -> list[str]:
    return [group.group_id for group in response.groups]


def describe(*groups: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=False)


def long_request() -> DescribeGroupsRequest:
    """More than a frame that is decoded at once."""
    return describe(*(f"group-{index}" for index in range(limits.WHOLE_FRAME_BYTES // 8)))


def test_replies_keep_their_order_behind_a_long_request(client: WireClient, handler: Handler) -> None:
    request = long_request()
    client.send(request, VERSION)
    client.send(describe("short"), VERSION)
    client.send(ListGroupsRequest(), 4)
    assert groups_of(client.receive()) == request.groups
    assert groups_of(client.receive()) == ["short"]
    assert client.receive().error_code == 0
    assert handler.ended == 2


def test_a_reply_to_what_was_one_long_step_is_encoded_in_steps(
    broker: Broker, client: WireClient, handler: Handler
) -> None:
    api = processor_of(broker).dispatcher.resolve(KEY << 16 | VERSION)
    encode, encoded = api.encode_in_steps, []

    def encode_in_steps(response: Any, parts: list[Any]) -> Generator[int, None, None]:
        encoded.append(response)
        yield from encode(response, parts)

    processor_of(broker).dispatcher.served[KEY << 16 | VERSION] = api
    api.handle = handler.handle
    api._encode_in_steps = encode_in_steps
    assert groups_of(client.ask(describe(), VERSION)) == []
    assert len(encoded) == 1


def test_others_are_served_between_the_steps(broker: Broker, client: WireClient, handler: Handler) -> None:
    request = long_request()
    client.send(request, VERSION)
    wait_until(lambda: handler.steps > 0, "the long request is under way")
    with WireClient((broker.host, broker.port)) as other:
        assert groups_of(other.ask(describe("other"), VERSION)) == ["other"]
        assert handler.steps <= len(request.groups), "the other one had to wait for the whole of it"
    assert groups_of(client.receive()) == request.groups


def test_a_handler_goes_on_with_what_it_waited_for(broker: Broker, client: WireClient, handler: Handler) -> None:
    handler.waits_for = parked = Parked()
    client.send(describe("a"), VERSION)
    wait_until(lambda: handler.steps > 0, "the handler waits")

    def complete(_server: BrokerServer, done: Callable[[None], None]) -> None:
        parked.complete("later")
        done(None)

    broker._call(complete)
    assert groups_of(client.receive()) == ["a", "later"]


def test_nothing_goes_on_for_a_client_that_is_gone(broker: Broker, client: WireClient, handler: Handler) -> None:
    handler.waits_for = parked = Parked()
    gone: list[bool] = []
    parked.on_abandon = lambda: gone.append(True)
    client.send(describe("a"), VERSION)
    wait_until(lambda: handler.steps > 0, "the handler waits")
    client.close()
    wait_until(lambda: bool(gone) and handler.ended == 1, "the handler is ended, and so is what it waited for")


def test_the_bytes_of_a_large_frame_are_let_go(broker: Broker, client: WireClient, handler: Handler) -> None:
    pool = processor_of(broker).budget.pool
    in_use = pool.bytes_in_use
    client.ask(long_request(), VERSION)
    wait_until(lambda: pool.bytes_in_use == in_use, "the frame's buffer is free")
    client.send(long_request(), VERSION)
    client.close()
    wait_until(lambda: pool.bytes_in_use == in_use, "the frame's buffer is free, although nobody waits any more")


def test_a_reply_that_would_be_too_long_closes_the_connection(
    client: WireClient, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.net.long_requests.REPLY_BYTES_MAX", 100_000)
    assert client.ask(long_request(), VERSION) is None


def test_few_large_requests_are_decoded_at_once(
    broker: Broker, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind them are served all the same, one when another is done."""
    clients = [WireClient((broker.host, broker.port)) for _ in range(3 * limits.LARGE_REQUESTS_AT_ONCE)]
    most = 0
    decoded_and_handled = long_requests_module.decoded_and_handled
    under_way = 0

    def counted(*arguments: Any) -> Steps:
        nonlocal most, under_way
        yield  # the first step is in the connection's share of its turn
        under_way += 1
        most = max(most, under_way)
        answer = yield from decoded_and_handled(*arguments)
        under_way -= 1
        return answer

    monkeypatch.setattr(requests_module, "decoded_and_handled", counted)
    request = long_request()
    for each in clients:
        each.send(request, VERSION)
    for each in clients:
        assert groups_of(each.receive()) == request.groups
        each.close()
    assert 0 < most <= limits.LARGE_REQUESTS_AT_ONCE


class Crowd:
    """Requests in steps, each of which takes all of a turn; how many of them are begun and not ended."""

    def __init__(self, network: FakeNetwork, steps: int) -> None:
        self._network = network
        self._steps = steps
        self.under_way = self.most = 0

    def handle(self, _ctx: Any, _request: memoryview) -> Steps:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(self._steps):
            self._network.world.clock.pass_ns(2 * limits.TIME_SLICE_NS)
            yield
        self.under_way -= 1
        return b""


def test_of_a_crowd_of_requests_few_are_decoded_and_the_others_keep_their_bytes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = FakeNetwork(monkeypatch)
    crowd, budget = Crowd(network, 3), network.processor.budget
    network.serve(crowd.handle)
    counted = budget.bytes_counted
    begun_max = MANY_LONG_REQUESTS + limits.LARGE_REQUESTS_AT_ONCE + limits.LARGE_REQUESTS_BEGUN_MAX
    size = limits.WHOLE_FRAME_BYTES // 2
    clients = [network.connect() for _ in range(3 * begun_max)]
    for client in clients:
        post(client, frame(bytes(size)))
    most_counted = 0
    for _ in range(20 * len(clients)):
        network.turn()
        most_counted = max(most_counted, budget.bytes_counted)
    assert all(map(replies, clients))
    assert MANY_LONG_REQUESTS < crowd.most <= begun_max
    assert 2 * begun_max * size <= most_counted <= counted + 3 * len(clients) * size
    assert budget.bytes_counted == counted
    assert network.processor.long_requests.whole_frame_bytes == limits.WHOLE_FRAME_BYTES


@pytest.mark.parametrize(("api_key", "size"), [(PRODUCE_KEY, 100_000), (FETCH_KEY, 100_000), (API_KEY, 1_000)])
def test_what_is_mostly_short_waits_for_no_crowd(monkeypatch: pytest.MonkeyPatch, api_key: int, size: int) -> None:
    monkeypatch.setattr(FastPaths, "learn", lambda *_: None)
    network = FakeNetwork(monkeypatch)
    network.serve(lambda _ctx, _request: b"", api_key)
    network.serve(Crowd(network, 1_000).handle, KEY)
    honest, crowd = network.connect(), [network.connect() for _ in range(300)]
    for _ in range(10):  # until it is known to ask for little
        post(honest, frame(b"", api_key))
        network.turn()
    before = replies(honest)
    for client in crowd:
        post(client, frame(bytes(limits.WHOLE_FRAME_BYTES // 2), KEY))
    for _ in range(len(crowd)):
        network.turn()
    assert len(network.processor.long_requests._waiting) > limits.LARGE_REQUESTS_BEGUN_MAX
    post(honest, frame(bytes(size), api_key))
    network.turn()
    assert replies(honest) == before + 1
    assert not any(map(replies, crowd))
