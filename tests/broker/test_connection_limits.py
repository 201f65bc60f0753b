"""Bounds on connections: how many there may be, and how long one may idle."""

from __future__ import annotations

import socket

import pytest
from harness.waiting import PATIENCE_S, wait_until

from pybroker import limits
from pybroker.config.broker import BrokerConfig
from pybroker.config.schema import ConfigError
from pybroker.net.connection_quotas import ConnectionQuotas
from pybroker.testing import Broker


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections": "2"},
        {"max.connections.per.ip": "2"},
        {"max.connections.per.ip": "99", "max.connections.per.ip.overrides": "10.0.0.1:1,127.0.0.1:2"},
    ],
    ids=["in all", "per address", "override"],
)
def test_newcomer_over_the_bound_is_closed_until_somebody_leaves(settings: dict[str, str]) -> None:
    with Broker(settings) as broker:
        sockets = broker._running()._sockets
        assert sockets is not None
        kept = [connect(broker) for _ in range(2)]
        with connect(broker) as over:
            assert is_closed(over)
        kept.pop().close()
        wait_until(lambda: len(sockets.processor.connections) == 1, "the one that left is forgotten")
        kept.append(connect(broker))
        kept[-1].sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert len(kept[-1].recv(4)) == 4
        for connection in kept:
            connection.close()


def test_connections_leave_descriptors_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.connection_quotas.os_process.raise_open_files_limit", lambda: 4)
    with Broker() as broker:
        kept = [connect(broker) for _ in range(3)]
        with connect(broker) as over:
            assert is_closed(over)
        for connection in kept:
            connection.close()


def quotas(settings: dict[str, str], *listeners: str) -> ConnectionQuotas:
    made = ConnectionQuotas(BrokerConfig(settings), "REPLICATION")
    for name in listeners:
        made.add_listener(name)
    return made


def test_clients_do_not_keep_brokers_out_that_come_by_a_listener_of_their_own() -> None:
    apart = quotas({"max.connections": "2"}, "CLIENTS", "REPLICATION")
    assert [apart.add("/a", "CLIENTS") is None for _ in range(3)] == [True, True, False]
    assert apart.add("/b", "REPLICATION") is None
    apart.remove("/a", "CLIENTS")
    assert apart.add("/a", "CLIENTS") is not None, "a broker's connection counts"
    together = quotas({"max.connections": "1"}, "REPLICATION")
    assert [together.add("/a", "REPLICATION") is None for _ in range(2)] == [True, False]
    ours = quotas({"max.connections": "9", "max.connections.per.ip": "1"}, "CLIENTS", "REPLICATION")
    assert [ours.add("/a", "REPLICATION") is None for _ in range(2)] == [True, False]


def test_a_listener_has_its_own_bound_or_that_of_all() -> None:
    own = "listener.name.clients.max.connections"
    made = quotas({"max.connections": "3", own: "1"}, "CLIENTS", "OTHERS", "REPLICATION")
    assert [made.add("/a", "CLIENTS") is None for _ in range(2)] == [True, False]
    made.remove("/a", "CLIENTS")
    assert [made.add("/a", "OTHERS") is None for _ in range(3)] == [True, True, False], "of three there are two left"
    assert [made.add("/b", "REPLICATION") is None for _ in range(4)] == [True, True, True, False]
    made.remove("/a", "CLIENTS")
    made.remove("/a", "OTHERS")
    made._config.apply_dynamic({}, {own: "2", "max.connections": "99"})
    made.follow_settings()
    assert [made.add("/a", "CLIENTS") is None for _ in range(3)] == [True, True, False]
    with pytest.raises(ConfigError, match=own):
        quotas({own: "many"}, "CLIENTS")


def test_clients_leave_descriptors_to_brokers_that_come_by_a_listener_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pybroker.net.connection_quotas.os_process.raise_open_files_limit", lambda: 64)
    apart = quotas({}, "CLIENTS", "REPLICATION")
    assert sum(apart.add("/a", "CLIENTS") is None for _ in range(46)) == 45
    apart.remove("/a", "CLIENTS")
    assert sum(apart.add("/b", "REPLICATION") is None for _ in range(4)) == 3


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_INTERVAL_MS", 20)
    with Broker({"connections.max.idle.ms": "100"}) as broker, connect(broker) as idle:
        assert is_closed(idle)


def test_peer_that_takes_nothing_of_its_replies_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_INTERVAL_MS", 20)
    monkeypatch.setattr("pybroker.net.muting.WRITE_STALL_MS", 200)
    with Broker() as broker, connect(broker) as stalled:
        sockets = broker._running()._sockets
        assert sockets is not None
        request = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff" * 1_000
        stalled.setblocking(False)
        unsent = request

        def flood() -> bool:
            nonlocal unsent
            try:
                # A part of a request would make what follows it a frame of any size, which takes no reply.
                unsent = unsent[stalled.send(unsent) :] or request
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            return not sockets.processor.connections

        wait_until(flood, "the stalled connection is closed")
