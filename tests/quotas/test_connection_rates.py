"""How fast connections may come: who waits, who goes, and what counts (KIP-612)."""

from __future__ import annotations

import pytest

from pybroker import limits
from pybroker.quotas.connection_rates import ConnectionRates
from pybroker.quotas.rates import Window

WINDOW = Window(2, 1000)  # one second's worth may come at once
CLIENTS, BROKERS = "CLIENTS", "BROKERS"
FAST = 1_000


class Door:
    """Rates on a clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.rates = ConnectionRates(lambda: self.now_ms, WINDOW)

    def arrivals(self, count: int, listener: str = CLIENTS) -> list[int]:
        """For how long each of so many is to wait."""
        return [self.rates.on_arrival(listener, is_protected=listener == BROKERS) for _ in range(count)]

    def entries(self, count: int, host: str = "10.0.0.1", listener: str = CLIENTS) -> list[int]:
        return [self.rates.on_entry(listener, host, is_protected=listener == BROKERS) for _ in range(count)]


@pytest.fixture
def door() -> Door:
    return Door()


def test_nothing_is_bounded_unless_somebody_says_so(door: Door) -> None:
    assert not door.rates.bounds_anything
    assert door.arrivals(5_000) == [0] * 5_000
    assert door.entries(5_000) == [0] * 5_000
    assert len(door.rates._hosts) == 0
    door.rates.set_bounds(1 << 30, {})
    assert door.rates.bounds_anything


def test_whoever_comes_too_fast_waits_until_the_rate_is_its_bound_and_a_second_at_most(door: Door) -> None:
    door.rates.set_bounds(FAST, {CLIENTS: 2})
    assert door.arrivals(4) == [0, 0, 500, 1_000]
    assert door.arrivals(3) == [1_000] * 3, "Kafka's bound on a wait is a sample"
    door.now_ms += 10_000
    assert door.arrivals(1) == [0]


def test_the_longer_of_two_waits_counts_and_each_listener_has_a_rate_of_its_own(door: Door) -> None:
    door.rates.set_bounds(4, {CLIENTS: 2, "OTHERS": FAST})
    assert door.arrivals(3) == [0, 0, 500]
    assert door.arrivals(2, "OTHERS") == [0, 250], "of the broker's rate"


def test_the_brokers_listener_knows_its_own_bound_alone(door: Door) -> None:
    door.rates.set_bounds(1, {CLIENTS: FAST, BROKERS: 3})
    assert door.arrivals(3, BROKERS) == [0, 0, 0]
    assert door.arrivals(1) == [0], "brokers do not count for the broker's rate"
    assert door.arrivals(1) == [1_000]
    assert door.arrivals(1, BROKERS) == [333]


def test_an_address_has_its_own_bound_or_the_default(door: Door) -> None:
    rate = "connection_creation_rate"
    door.rates.set_quotas({(("ip", "10.0.0.1"),): {rate: 1.0}, (("ip", None),): {rate: 2.0}})
    assert door.entries(2) == [0, 1_000]
    assert door.entries(3, "10.0.0.2") == [0, 0, 500]
    door.rates.set_quotas({(("ip", "0:0::1"),): {rate: 1.0}})
    assert door.entries(9, "10.0.0.1") == [0] * 9
    assert door.entries(2, "::1") == [0, 1_000], "an address may be written in several ways"
    assert door.entries(1, "nowhere") == [0]


def test_who_is_sent_away_for_its_address_counts_nowhere(door: Door) -> None:
    door.rates.set_bounds(3, {CLIENTS: 3})
    door.rates.set_quotas({(("ip", None),): {"connection_creation_rate": 1.0}})
    assert (door.arrivals(1), door.entries(1)) == ([0], [0])
    for _ in range(20):
        assert (door.arrivals(1), door.entries(1)) == ([0], [1_000])
    assert (door.arrivals(2), door.entries(1, "10.0.0.2")) == ([0, 0], [0])
    assert door.arrivals(1) == [333]


def test_a_bound_of_nothing_is_a_second_for_each(door: Door) -> None:
    door.rates.set_bounds(0, {})
    assert door.arrivals(2) == [1_000, 1_000]


def test_addresses_are_forgotten(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUOTA_CLIENTS", 3)
    door.rates.set_quotas({(("ip", None),): {"connection_creation_rate": 1.0}})
    for last in range(9):
        door.entries(1, f"10.0.0.{last}")
    assert len(door.rates._hosts) == 3
    door.now_ms += 10_000
    assert door.entries(1, "10.0.0.8") == [0]
    door.entries(1, "10.0.1.1")
    assert len(door.rates._hosts) == 2, "who has not come for a window is as if it had never come"
