"""Where replicas go that are spread anew."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cli.requests.spreading import spread

NO_RACKS: dict[int, str | None] = {}
IDS = st.integers(1, 8)


@given(
    st.lists(st.lists(IDS, min_size=1, max_size=3, unique=True), max_size=20),
    st.lists(IDS, min_size=3, max_size=8, unique=True),
)
def test_each_partition_has_as_many_replicas_on_different_brokers_of_the_list(
    now: list[list[int]], brokers: list[int]
) -> None:
    plan = spread(dict(enumerate(now)), brokers, NO_RACKS)
    assert {partition: len(chosen) for partition, chosen in plan.items()} == {
        i: len(each) for i, each in enumerate(now)
    }
    for chosen in plan.values():
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(brokers)
    load = Counter(broker for chosen in plan.values() for broker in chosen)
    counts = [load[broker] for broker in brokers]
    # A partition has no two replicas on a broker, which may keep one from having as many as the others.
    assert max(counts) - min(counts) <= 1 or len(now) <= max(counts)


@given(st.lists(IDS, min_size=3, max_size=8, unique=True), st.integers(1, 5))
def test_what_is_spread_evenly_stays_as_it_is(brokers: list[int], rounds: int) -> None:
    count = len(brokers)
    now = {i: [brokers[(i + step) % count] for step in range(3)] for i in range(rounds * count)}
    assert spread(now, brokers, NO_RACKS) == now


def test_new_broker_takes_its_share_and_no_more_is_copied() -> None:
    now = {i: [i % 3 + 1, (i + 1) % 3 + 1] for i in range(12)}
    plan = spread(now, [1, 2, 3, 4], NO_RACKS)
    assert Counter(broker for chosen in plan.values() for broker in chosen) == dict.fromkeys((1, 2, 3, 4), 6)
    assert sum(len(set(plan[i]) - set(now[i])) for i in now) == 6
    assert Counter(chosen[0] for chosen in plan.values()) == dict.fromkeys((1, 2, 3, 4), 3)


def test_broker_that_is_left_out_keeps_nothing_and_the_others_keep_what_they_have() -> None:
    now = {i: [i % 3 + 1, (i + 1) % 3 + 1] for i in range(6)}
    plan = spread(now, [1, 2], NO_RACKS)
    assert {frozenset(chosen) for chosen in plan.values()} == {frozenset({1, 2})}


def test_replicas_of_a_partition_go_to_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = spread({i: [1] for i in range(8)}, [1, 2, 3, 4], racks, 2)
    assert all({racks[broker] for broker in chosen} == {"a", "b"} for chosen in plan.values())


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and there are 2"):
        spread({0: [1]}, [1, 2], NO_RACKS, 3)
