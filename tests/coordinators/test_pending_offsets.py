"""The store of offsets inside open transactions: what it says, against a naive model, and what that costs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.coordinators.group.group_records import offset_key_prefix, pack_partition
from pybroker.coordinators.group.offsets.offset_store import OffsetStore

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1), (1, 2, 3)
PLACES = [(group, topic, partition) for group in GROUPS for topic in TOPICS for partition in PARTITIONS]

places = st.sampled_from(PLACES)
producers = st.sampled_from(PRODUCERS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), producers, places),
        st.tuples(st.just("supersede"), st.integers(0, 30), places),
        st.tuples(st.just("remove"), st.none(), places),
        st.tuples(st.just("end"), producers, st.booleans()),
    ),
    max_size=30,
)


def key_of(group: str, topic: str, partition: int) -> bytes:
    return offset_key_prefix(group, topic) + pack_partition(partition)


@given(steps)
def test_pending_offsets_are_those_that_no_end_tombstone_or_later_record_took_away(steps: list[Any]) -> None:
    store = OffsetStore()
    model: dict[tuple[int, bytes], tuple[bytes, int]] = {}
    for offset, (step, what, where) in enumerate(steps):
        if step == "end":
            ended = {key: pending for (producer, key), pending in model.items() if producer == what}
            model = {known: pending for known, pending in model.items() if known[0] != what}
            made_current = {key: (value, at) for key, value, at in store.end_transaction(what, where)}
            assert made_current == (ended if where else {})
            continue
        key = key_of(*where)
        if step == "add":
            store.add_pending(what, key, b"%d" % offset, offset)
            model[what, key] = b"%d" % offset, offset
        elif step == "supersede":
            store.supersede_pending(key, what)
            model = {known: pending for known, pending in model.items() if known[1] != key or pending[1] >= what}
        else:
            store.remove(key[:-4], where[2])
            model = {known: pending for known, pending in model.items() if known[1] != key}
        unstable = {place for place in PLACES if any(known[1] == key_of(*place) for known in model)}
        assert {place for place in PLACES if store.is_unstable(*place)} == unstable
        assert store.has_open_transactions == bool(unstable)
        for group in GROUPS:
            keys = {key_of(*place) for place in unstable if place[0] == group}
            assert store.unstable_keys(group) == keys
            assert store.has_unstable(group) == bool(keys)
        assert store.unstable_keys_of_topics(["t"]) == {key_of(*place) for place in unstable if place[1] == "t"}


def calls_of(action: Callable[[], Any]) -> int:
    """How many calls, of Python and of C, an action makes."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()  # a collection in between would run what others want to hear of it
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls


@pytest.mark.parametrize(
    "action",
    [
        lambda store: store.supersede_pending(key_of("h", "t", 0), 1_000_000),
        lambda store: store.is_unstable("h", "t", 0),
        lambda store: store.remove(offset_key_prefix("h", "t"), 0),
        lambda store: store.has_unstable("h"),
        lambda store: store.unstable_keys("h"),
    ],
    ids=["commit", "fetch", "delete", "expire", "delete group"],
)
def test_open_transactions_of_other_offsets_cost_nothing(action: Callable[[OffsetStore], Any]) -> None:
    def cost(transactions: int) -> int:
        store = OffsetStore()
        for producer_id in range(transactions):
            store.add_pending(producer_id, key_of("g", "t", producer_id), b"", producer_id)
        return calls_of(lambda: action(store))

    assert cost(200) == cost(1)
