"""What a meter counts for its client, by the clock of the world that it is in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.net.metering import Meter

FRAME = memoryview(b"\0\x12" + bytes(10))  # of ApiVersions


class Share:
    """What counts for the client."""

    def __init__(self) -> None:
        self.worked_ns: list[int] = []

    def worked(self, ns: int) -> None:
        self.worked_ns.append(ns)


class Metered:
    """A connection whose requests take the time that a test says."""

    def __init__(self) -> None:
        self.world = VirtualWorld(has_threads=False)
        self.share = Share()
        self.request_ms = 0
        self.client = ("User:alice", "c")
        quotas: Any = SimpleNamespace(share=lambda *_: self.share)
        connection: Any = SimpleNamespace(requests=self)
        self.meter = Meter(connection, quotas, self.world.env)

    def serve(self, _frame: memoryview) -> None:
        self.world.clock.pass_ms(self.request_ms)


@pytest.fixture
def metered() -> Metered:
    return Metered()


def test_the_time_of_a_request_is_that_of_the_worlds_clock(metered: Metered) -> None:
    metered.request_ms = 7
    metered.meter.serve(FRAME)
    assert metered.share.worked_ns == [7_000_000]


def test_what_takes_no_time_counts_for_none(metered: Metered) -> None:
    metered.meter.serve(FRAME)
    assert metered.share.worked_ns == [0]


def test_time_between_requests_counts_for_nobody(metered: Metered) -> None:
    metered.request_ms = 1
    for _ in range(2):
        metered.meter.serve(FRAME)
        metered.world.clock.pass_ms(1_000)
    assert metered.share.worked_ns == [1_000_000] * 2
