"""Long replies take memory that peers may leave us with: few are made at once, and none while too much is unsent."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker import limits
from pybroker.handlers.context import Steps
from pybroker.net import long_requests, unsent_replies
from tests.net.fake_network import FakeNetwork, FakeTransport, frame, post, replies

STEPS = 2 * long_requests.LARGE_REQUEST_SHARES
REPLY_BYTES = 2 << 20
LEAST_PER_S = REPLY_BYTES * 1_000 // unsent_replies.SLOW_REPLY_MS


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


class LongAnswers:
    """Answers small requests, each in many shares of a turn; counts those that have had more than a few."""

    def __init__(self, network: FakeNetwork) -> None:
        self._network = network
        self.under_way = self.most_under_way = 0
        network.serve(self.handle)

    def handle(self, _ctx: Any, _request: memoryview) -> Steps:
        for step in range(STEPS):
            if step == long_requests.LARGE_REQUEST_SHARES + 1:  # the first was in the connection's own turn
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
            self._network.world.clock.pass_ns(2 * limits.TIME_SLICE_NS)
            yield
        self.under_way -= 1
        return b""


def ask(network: FakeNetwork, client: FakeTransport) -> None:
    post(client, frame(b"1234"))
    for _ in range(2 * STEPS):
        network.turn()


@pytest.fixture
def stalled(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> FakeTransport:
    """A peer that was sent twice as much as there may be unsent, and has taken nothing yet."""
    monkeypatch.setattr(limits, "UNSENT_REPLIES_BYTES", REPLY_BYTES // 2)
    LongAnswers(network)
    client = network.connect()
    client.unsent_bytes = REPLY_BYTES
    ask(network, client)
    assert replies(client) == 1
    return client


def test_few_requests_whose_answers_take_long_are_under_way_at_once(network: FakeNetwork) -> None:
    answers = LongAnswers(network)
    clients = [network.connect() for _ in range(5 * limits.LARGE_REQUESTS_AT_ONCE)]
    for client in clients:
        post(client, frame(b"1234"))
    for _ in range(2 * STEPS * len(clients)):
        network.turn()
    assert [replies(client) for client in clients] == [1] * len(clients)
    assert answers.most_under_way == limits.LARGE_REQUESTS_AT_ONCE


def test_short_answers_are_made_while_long_ones_are_not_taken(network: FakeNetwork, stalled: FakeTransport) -> None:
    network.serve(lambda _ctx, _request: b"")
    other = network.connect()
    ask(network, other)
    assert (replies(other), stalled.is_closing()) == (1, False)


def test_who_takes_nothing_is_closed_when_another_waits_for_room(network: FakeNetwork, stalled: FakeTransport) -> None:
    network.pass_ms(unsent_replies.SLOW_REPLY_MS)
    assert not stalled.is_closing(), "nobody waits"
    other = network.connect()
    ask(network, other)
    network.pass_ms(limits.SHORTAGE_LOOK_MS)
    assert stalled.is_closing()
    for _ in range(2 * STEPS):
        network.turn()
    assert replies(other) == 1


def test_nothing_is_kept_of_who_is_gone(network: FakeNetwork, stalled: FakeTransport) -> None:
    assert stalled.connection in network.processor.long_requests.unsent._sent
    stalled.close()
    network.turn()
    assert not network.processor.long_requests.unsent._sent


def test_who_takes_enough_is_waited_for(network: FakeNetwork, stalled: FakeTransport) -> None:
    other = network.connect()
    ask(network, other)
    for _ in range(8):
        stalled.unsent_bytes -= LEAST_PER_S * 6 // 5
        network.pass_ms(1_000)
        network.turn()
        assert replies(other) == 0
    assert not stalled.is_closing()
    stalled.unsent_bytes = 0
    network.pass_ms(limits.SHORTAGE_LOOK_MS)
    for _ in range(2 * STEPS):
        network.turn()
    assert (replies(other), stalled.is_closing()) == (1, False)


def test_who_takes_too_little_is_not_waited_for(network: FakeNetwork, stalled: FakeTransport) -> None:
    other = network.connect()
    ask(network, other)
    stalled.unsent_bytes -= LEAST_PER_S
    network.pass_ms(2_000)
    network.pass_ms(limits.SHORTAGE_LOOK_MS)
    assert stalled.is_closing()
