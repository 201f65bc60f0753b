"""The arithmetic of replication quotas, and which partitions they hold to a bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.virtual_world import VirtualWorld
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import LogConfig
from pybroker.config.resources import BROKER, TOPIC
from pybroker.replication.replication_quota import ReplicationQuota, ReplicationQuotas, SlidingRate

LEADER, FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def test_nothing_exceeds_nothing() -> None:
    rate = SlidingRate(11, 1000)
    assert not rate.exceeds(0, 5)
    assert rate.ms_above(0, 5) == 0


def test_a_second_is_the_least_time_that_bytes_are_spread_over() -> None:
    rate = SlidingRate(11, 1000)
    rate.record(1000, 50)
    assert not rate.exceeds(1000, 50)
    rate.record(1, 50)
    assert rate.exceeds(1000, 50)
    assert rate.ms_above(1000, 50) == 1001, "a begun millisecond is a whole one"


def test_bytes_are_paid_for_by_time_at_the_bound() -> None:
    rate = SlidingRate(11, 1000)
    rate.record(4000, 0)
    assert rate.ms_above(1000, 0) == 4000
    assert rate.ms_above(1000, 3999) == 1
    assert not rate.exceeds(1000, 4000)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    rate = SlidingRate(11, 1000)
    rate.record(1_000_000, 0)
    assert rate.ms_above(1, 0) == 11_000
    assert rate.exceeds(1, 10_999)
    assert not rate.exceeds(1, 11_000)


def test_a_bound_of_nothing_lets_something_through_once_in_a_window() -> None:
    rate = SlidingRate(2, 1000)
    rate.record(1, 0)
    assert rate.ms_above(0, 0) == 2000
    assert not rate.exceeds(0, 2000)


@given(
    bound=st.integers(0, 5_000),
    events=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 20_000)), min_size=1, max_size=40),
)
def test_whoever_waits_as_long_as_it_says_may_go_on_and_not_before(bound: int, events: list[tuple[int, int]]) -> None:
    rate, now_ms = SlidingRate(3, 1000), 0
    for pause_ms, size in events:
        now_ms += pause_ms
        rate.record(size, now_ms)
        wait_ms = rate.ms_above(bound, now_ms)
        assert (wait_ms > 0) == rate.exceeds(bound, now_ms)
        assert wait_ms <= 3_000
        if wait_ms > 1:
            now_ms += wait_ms - 1
            assert rate.exceeds(bound, now_ms)


@given(
    bound=st.integers(5_000, 50_000),
    fetches=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 10_000)), min_size=1, max_size=120),
)
def test_fetches_that_wait_are_never_ahead_of_the_bound_by_more_than_a_second_and_a_fetch(
    bound: int, fetches: list[tuple[int, int]]
) -> None:
    """Nothing is forgotten here: what one fetch brings is below the bound times the window."""
    rate, now_ms, total = SlidingRate(11, 1000), 0, 0
    for pause_ms, size in fetches:
        now_ms += pause_ms
        while rate.exceeds(bound, now_ms):
            now_ms += rate.ms_above(bound, now_ms)
        rate.record(size, now_ms)
        total += size
        assert total <= bound * (now_ms + 12_000) / 1000 + size
        if now_ms < 11_000:
            assert total <= bound * max(now_ms, 1000) / 1000 + size


def quotas(overrides: dict[tuple[int, str], dict[str, str]], broker_id: int = 2) -> ReplicationQuotas:
    broker = SimpleNamespace(
        broker_id=broker_id,
        env=VirtualWorld().env,
        image=ClusterImage(configs=cast(Any, overrides)),
        config=BrokerConfig.load(),
    )
    return ReplicationQuotas(broker)


def test_a_quota_without_throttled_partitions_is_not_in_use() -> None:
    found = quotas({(TOPIC, "t"): {"retention.ms": "5"}, (BROKER, ""): {"leader.replication.throttled.rate": "5"}})
    assert not found.leader.is_in_use
    assert not found.follower.is_in_use
    assert not found.leader.throttles("t", 0)


@pytest.mark.parametrize(
    ("replicas", "throttled"), [("*", {0, 1, 2}), ("0:2,1:3,2:2", {0, 2}), ("00:02", {0}), ("1:3", set()), ("", set())]
)
def test_a_topic_says_which_of_its_replicas_are_throttled(replicas: str, throttled: set[int]) -> None:
    found = quotas({(TOPIC, "t"): {LEADER: replicas, FOLLOWER: "1:2"}})
    assert {index for index in range(3) if found.leader.throttles("t", index)} == throttled
    assert [index for index in range(3) if found.follower.throttles("t", index)] == [1]
    assert not found.leader.throttles("u", 0)


def test_a_topic_that_says_so_no_more_is_throttled_no_more() -> None:
    found = quotas({(TOPIC, "t"): {LEADER: "*", FOLLOWER: "*"}})
    found.learn("t", LogConfig())
    assert not found.leader.is_in_use
    assert not found.follower.is_in_use


def test_the_bound_is_the_one_of_now() -> None:
    bounds = [10]
    quota = ReplicationQuota(VirtualWorld().clock, lambda: bounds[-1], 11, 1000)
    quota.record(11)
    assert quota.wait_ms() > 0
    bounds.append(11)
    assert not quota.is_exceeded
    assert quota.wait_ms() == 0
