"""The map from keys to offsets: a dict's answers in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62))))
def test_map_answers_like_a_dict(pairs: list[tuple[bytes, int]]) -> None:
    offset_map = OffsetMap(1 << 16, 0.9)
    for key, offset in pairs:
        assert offset_map.put(key, offset)
    expected = dict(pairs)
    assert {key: offset_map.get(key) for key in expected} == expected
    assert offset_map.size == len(expected)
    assert offset_map.get(b"never put") == -1


def test_map_grows_up_to_its_bytes_and_then_refuses() -> None:
    offset_map = OffsetMap(50_000 * ENTRY_BYTES, 0.8)
    count = 0
    while offset_map.put(b"key-%d" % count, count):
        count += 1
    assert 0.99 * 40_000 < count <= 40_000
    assert all(offset_map.get(b"key-%d" % i) == i for i in range(count))
    assert offset_map.get(b"key-%d" % count) == -1


@pytest.mark.parametrize("bytes_max", [0, 1, ENTRY_BYTES, 3 * ENTRY_BYTES])
def test_smallest_map_holds_one_key(bytes_max: int) -> None:
    offset_map = OffsetMap(bytes_max, 0.9)
    assert offset_map.put(b"a", 1)
    assert offset_map.get(b"a") == 1
    assert offset_map.get(b"b") == -1


def test_full_map_finds_what_is_not_there_without_end() -> None:
    offset_map = OffsetMap(101 * ENTRY_BYTES, 1.0)
    for i in range(100):
        assert offset_map.put(b"%d" % i, 1)
    assert not offset_map.put(b"one more", 1)
    assert offset_map.get(b"absent") == -1
