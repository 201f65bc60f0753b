"""Whose turn it is: a connection's turn is time, and who asks for little does not wait for those who ask for much."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker import limits
from pybroker.net.connection import Connection
from pybroker.net.inbox import OWN_BUFFER_BYTES
from tests.net.fake_network import FakeNetwork, FakeTransport, post, replies, work

HEAVY_CLIENTS = 100
HEAVY_US = 3_000
LIGHT_US = 50
MS = 1_000_000


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


def waited_ns(network: FakeNetwork, client: FakeTransport, request: bytes) -> int:
    """How long a request takes to be answered."""
    begun_ns, before = network.world.clock.elapsed_ns, replies(client)
    post(client, request)
    while replies(client) == before:
        network.turn()
    return network.world.clock.elapsed_ns - begun_ns


def pipeline(client: FakeTransport, requests: int) -> None:
    post(client, *[work(HEAVY_US)] * requests)


def one_by_one(client: FakeTransport, requests: int) -> None:
    for _ in range(requests):
        post(client, work(HEAVY_US))


@pytest.mark.parametrize("send", [pipeline, one_by_one])
@pytest.mark.parametrize("is_new", [False, True])
def test_small_request_waits_for_one_long_one_at_most_however_many_clients_ask_for_those(
    network: FakeNetwork, send: Callable[[FakeTransport, int], None], is_new: bool
) -> None:
    light = network.connect()
    if not is_new:
        for _ in range(10):
            waited_ns(network, light, work(LIGHT_US))
    crowd = [network.connect() for _ in range(HEAVY_CLIENTS)]
    for client in crowd:
        send(client, 50)
    while any(replies(client) == 0 for client in crowd):
        network.turn()
    for _ in range(2 * HEAVY_CLIENTS):
        light = network.connect() if is_new else light
        assert waited_ns(network, light, work(LIGHT_US)) <= (2 + is_new) * HEAVY_US * 1_000
    assert min(replies(client) for client in crowd) >= 2


def test_newcomers_without_end_do_not_starve_who_waits(network: FakeNetwork) -> None:
    crowd = [network.connect() for _ in range(10)]
    for client in crowd:
        pipeline(client, 50)
    new_connections = 0
    while any(replies(client) < 10 for client in crowd):
        for _ in range(2):
            post(network.connect(), work(HEAVY_US))
            new_connections += 1
        network.turn()
        assert new_connections < 50 * len(crowd)


def test_clients_of_long_requests_get_the_same_time_however_long_each_is(network: FakeNetwork) -> None:
    lengths_us = [500, 1_500, 3_000, 6_000]
    clients = [network.connect() for _ in lengths_us]
    for client, length_us in zip(clients, lengths_us, strict=True):
        post(client, *[work(length_us)] * 1_000)
    while network.world.clock.elapsed_ns < 400 * MS:
        network.turn()
    times_us = [replies(client) * length_us for client, length_us in zip(clients, lengths_us, strict=True)]
    assert max(times_us) - min(times_us) <= 2 * max(lengths_us)


def test_client_that_comes_back_gains_nothing_for_the_time_it_asked_for_nothing(network: FakeNetwork) -> None:
    idle, busy = network.connect(), network.connect()
    post(idle, work(HEAVY_US))
    post(busy, *[work(HEAVY_US)] * 200)
    while replies(busy) < 100:
        network.turn()
    post(idle, *[work(HEAVY_US)] * 100)
    idle_before, busy_before = replies(idle), replies(busy)
    while replies(busy) < busy_before + 20:
        network.turn()
    assert abs(replies(idle) - idle_before - 20) <= 2


def test_client_alone_owes_nothing_for_the_time_it_used(network: FakeNetwork) -> None:
    first = network.connect()
    for _ in range(200):
        waited_ns(network, first, work(HEAVY_US))
    others = [network.connect() for _ in range(3)]
    for client in others:
        post(client, *[work(HEAVY_US)] * 100)
    network.turn()
    assert waited_ns(network, first, work(HEAVY_US)) <= (len(others) + 3) * HEAVY_US * 1_000


def test_requests_behind_one_another_are_served_for_the_length_of_a_turn(network: FakeNetwork) -> None:
    client = network.connect()
    requests = 1_000
    post(client, *[work(10)] * requests)
    per_turn = limits.TIME_SLICE_NS // 10_000
    turns = 0
    while replies(client) < requests:
        before = replies(client)
        network.turn()
        turns += 1
        assert replies(client) - before <= per_turn + 1
    assert turns <= requests // per_turn + 2


def test_long_request_is_looked_at_behind_any_number_of_short_ones(network: FakeNetwork) -> None:
    client = network.connect()
    post(client, work(10), work(HEAVY_US), work(HEAVY_US), work(HEAVY_US))
    network.turn()
    assert network.world.clock.elapsed_ns < 2 * HEAVY_US * 1_000


def test_frame_in_pieces_makes_a_client_of_long_requests_no_lighter(network: FakeNetwork) -> None:
    crowd = [network.connect() for _ in range(20)]
    long_request = work(HEAVY_US, size=20_000)
    for _ in range(3):
        for client in crowd:
            for start in range(0, len(long_request), 100):
                client.unread.append(memoryview(long_request)[start : start + 100])
    light = network.connect()
    for _ in range(10):
        waited_ns(network, light, work(LIGHT_US))
    while any(replies(client) < 3 for client in crowd):
        assert waited_ns(network, light, work(LIGHT_US)) <= 2 * HEAVY_US * 1_000


def test_turn_that_fails_takes_no_other_connection_along(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [network.connect() for _ in range(3)]
    for client in clients:
        post(client, *[work(HEAVY_US)] * 3)
    network.turn()
    run_slice = Connection.run_slice

    def failing(connection: Connection) -> int:
        if connection is clients[1].connection:
            raise ZeroDivisionError
        return run_slice(connection)

    monkeypatch.setattr(Connection, "run_slice", failing)
    while replies(clients[0]) < 3 or replies(clients[2]) < 3:
        network.turn()
    assert clients[1].closing
    assert "ZeroDivisionError" in caplog.text


def test_frame_of_a_forbidden_length_is_refused_though_it_is_not_our_turn(network: FakeNetwork) -> None:
    crowd = [network.connect() for _ in range(3)]
    for client in crowd:
        pipeline(client, 3)
    network.turn()
    bad = network.connect()
    post(bad, (network.processor.framing.frame_bytes_max + 1).to_bytes(4, "big"), b"x" * 100)
    network.turn()
    for _ in range(20):
        network.turn()
    assert bad.closing


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_request_is_answered_in_order_whatever_the_turns_are(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = FakeNetwork(patch)
        clients = [network.connect() for _ in range(4)]
        lengths = st.lists(st.sampled_from([5, 40, 300, 1_200, 5_000]), max_size=12)
        asked = [data.draw(lengths) for _ in clients]
        for client, lengths_us in zip(clients, asked, strict=True):
            for length_us in lengths_us:
                post(client, work(length_us, size=data.draw(st.sampled_from([4, 100, 100_000]))))
        for _ in range(200):
            network.turn()
        assert [replies(client) for client in clients] == [len(lengths_us) for lengths_us in asked]
        assert not network.processor.scheduler._waiting


def test_what_came_with_a_login_waits_for_its_turn_and_nothing_is_read_behind_it(network: FakeNetwork) -> None:
    client = network.connect()
    request = work(LIGHT_US, OWN_BUFFER_BYTES)
    client.connection.time_slice.average_ns = HEAVY_US * 1_000
    client.unread.append(memoryview(request))
    client.connection.take_over(request)
    client.read_once()
    while client.unread or replies(client) < 2:
        network.turn()
