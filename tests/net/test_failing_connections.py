"""What fails on one connection ends it, and leaves the server whole."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker import limits
from pybroker.handlers.context import Parked, Steps
from pybroker.net.connection import Connection
from tests.net.fake_network import API_KEY, FakeNetwork, frame, post, replies, work


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


def test_wait_that_cannot_be_given_up_keeps_no_closed_connection(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    def park(_: Any, __: memoryview) -> Parked:
        parked = Parked()
        parked.on_abandon = fail
        return parked

    network.serve(park, API_KEY)
    client = network.connect()
    post(client, frame(b""))
    network.turn()
    client.close()
    network.turn()
    assert not network.processor.connections
    assert not network.processor._quotas._by_host
    assert "ZeroDivisionError" in caplog.text


def test_reply_that_cannot_be_encoded_closes_its_connection_alone(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    parked = Parked()
    network.serve(lambda _ctx, _request: parked, API_KEY + 1)
    waiting, other = network.connect(), network.connect()
    post(waiting, frame(b"", API_KEY + 1))
    network.turn()
    parked.complete(object())  # has no bytes
    post(other, work(0))
    network.turn()
    assert waiting.closing
    assert replies(other) == 1
    assert "cannot be encoded" in caplog.text


def test_connection_that_cannot_be_looked_after_keeps_no_other_from_it(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [network.connect() for _ in range(3)]
    looked_after = []

    def look_after(connection: Any, _: int) -> None:
        if connection is clients[0].connection:
            raise ZeroDivisionError
        looked_after.append(connection)

    monkeypatch.setattr("pybroker.net.connection.Connection.look_after", look_after)
    for _ in range(2):
        network.processor._sweep()
    assert len(looked_after) == 2 * 2
    assert "ZeroDivisionError" in caplog.text


def test_long_request_whose_reply_fails_keeps_no_other_from_its_turns(
    network: FakeNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def in_steps(_ctx: Any, _request: memoryview) -> Steps:
        for _ in range(3):
            network.world.clock.pass_ns(2 * limits.TIME_SLICE_NS)
            yield
        return b""

    network.serve(in_steps, API_KEY)
    on_reply_ready = Connection.on_reply_ready
    clients = [network.connect() for _ in range(3 * limits.LARGE_REQUESTS_AT_ONCE)]
    failing = {client.connection for client in clients[: 2 * limits.LARGE_REQUESTS_AT_ONCE]}

    def fail_for_some(connection: Connection) -> None:
        if connection in failing:
            raise ZeroDivisionError
        on_reply_ready(connection)

    monkeypatch.setattr(Connection, "on_reply_ready", fail_for_some)
    for client in clients:
        post(client, frame(bytes(limits.WHOLE_FRAME_BYTES)))
    for _ in range(20 * len(clients)):
        network.turn()
    assert [replies(client) for client in clients] == [client.connection not in failing for client in clients]
    assert [client.closing for client in clients] == [client.connection in failing for client in clients]
    assert "ZeroDivisionError" in caplog.text


def test_long_request_whose_wait_cannot_be_given_up_lets_go_of_its_bytes(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    def wait(_ctx: Any, _request: memoryview) -> Steps:
        parked = Parked()
        parked.on_abandon = fail
        yield parked

    network.serve(wait, API_KEY)
    budget = network.processor.budget
    before = budget.bytes_counted
    client = network.connect()
    post(client, frame(bytes(limits.WHOLE_FRAME_BYTES)))
    for _ in range(3):
        network.turn()
    assert budget.bytes_counted > before
    client.close()
    network.turn()
    assert budget.bytes_counted == before
    assert "ZeroDivisionError" in caplog.text
