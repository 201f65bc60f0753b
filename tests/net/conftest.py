"""What the tests of connections share: fast paths from the first request or none, sweeps by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from harness.sockets import FrameConnection
from harness.waiting import wait_until

from pybroker import limits
from pybroker.net.connection import Connection as ServedConnection
from pybroker.net.fast_paths import FastPaths
from pybroker.net.processor import Processor
from pybroker.net.socket_server import SocketServer
from pybroker.replication.partition import Partition
from pybroker.server import BrokerServer
from pybroker.testing import Broker

UNKNOWN_TOPIC_ID = bytes(15) + b"\x77"


@pytest.fixture
def fast_paths_from_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.fast_paths._PAUSE", 0)


@pytest.fixture
def without_fast_paths() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPaths, "learn", lambda *_: None)
        patch.setattr(FastPaths, "learn_waiting", lambda *_: None)
        yield patch


@pytest.fixture
def no_sweep_but_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock brings no sweep: a permit ends with the second one of ``sweep``."""
    monkeypatch.setattr(limits, "SWEEP_INTERVAL_MS", 60_000)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each run has appended."""
    lengths: list[int] = []
    append_run = Partition.append_run

    def noted(self: Partition, batches: Sequence[memoryview], required_acks: int, produce_version: int) -> list[int]:
        base_offsets = append_run(self, batches, required_acks, produce_version)
        lengths.append(len(base_offsets))
        return base_offsets

    monkeypatch.setattr(Partition, "append_run", noted)
    return lengths


def sockets_of(broker: Broker) -> SocketServer:
    sockets = broker._running()._sockets
    assert sockets is not None
    return sockets


def processor_of(broker: Broker) -> Processor:
    return sockets_of(broker).processor


@contextmanager
def each_step_taking_a_turn(broker: Broker) -> Iterator[None]:
    """Meanwhile the broker's long requests have a clock by which each of their steps takes a whole share of a turn."""
    processor = processor_of(broker)
    seconds = count(1 << 62, 1_000_000_000)
    with pytest.MonkeyPatch.context() as patch:
        for requests in (processor.long_requests, processor.logins.long_requests):
            patch.setattr(requests, "now_ns", seconds.__next__)
        yield


def connections_of(broker: Broker) -> set[ServedConnection]:
    """The broker's sides of all connections that it knows of now."""
    known: set[ServedConnection] = broker._call(lambda _, done: done(set(processor_of(broker).connections)))
    return known


def sweep(broker: Broker, times: int = 1) -> None:
    """Let the broker look after its connections, at once."""

    def look(server: BrokerServer, done: Callable[[Any], None]) -> None:
        assert server._sockets is not None
        processor = server._sockets.processor
        for _ in range(times):
            assert processor._sweep_timer is not None
            processor._sweep_timer.cancel()
            processor._sweep()
        done(None)

    broker._call(look)


def topic_id(broker: Broker, topic: str) -> bytes:
    """The id of a topic, or one that no topic has."""
    known = broker._running().services.metadata.image.topics_by_name.get(topic)
    return UNKNOWN_TOPIC_ID if known is None else known.topic_id


def served_side(broker: Broker, wire: FrameConnection) -> ServedConnection:
    """What the broker knows of a client's connection, as soon as it does."""
    address = wire._socket.getsockname()
    found: list[ServedConnection] = []

    def is_accepted() -> bool:
        known = connections_of(broker)
        found[:] = [served for served in known if served._transport.get_extra_info("peername") == address]
        return bool(found)

    wait_until(is_accepted, "the connection is accepted")
    return found[0]
