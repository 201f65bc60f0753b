"""The map from keys to offsets: a dict's answers in bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.storage.cleaner.offset_map import ENTRY_BYTES, RECENT_ENTRY_BYTES, OffsetMap

KEYS = st.lists(st.lists(st.binary(max_size=3), max_size=20), max_size=20)


@pytest.mark.parametrize("bytes_max", [1 << 20, 40 * RECENT_ENTRY_BYTES], ids=["in the dict", "through the table"])
@given(slices=KEYS)
def test_map_answers_like_a_dict(bytes_max: int, slices: list[list[bytes]]) -> None:
    offset_map = OffsetMap(bytes_max, 0.9)
    expected: dict[bytes, int] = {}
    offset = 0
    for keys in slices:
        offsets = range(offset, offset + len(keys))
        if not offset_map.put_all(keys, offsets):
            assert len({*expected, *keys}) > 40 * RECENT_ENTRY_BYTES * 7 // 8 // ENTRY_BYTES * 0.9 - 2
            break
        expected.update(zip(keys, offsets, strict=True))
        offset += len(keys)
    assert dict(zip(expected, offset_map.last_offsets([*expected]), strict=True)) == expected
    assert offset_map.last_offsets([b"never put", None]) == [-1, -1]
    in_order = offset_map.offsets_in_order()
    if in_order is not None:
        assert in_order == sorted(expected.values())


def test_map_takes_as_many_keys_as_its_bytes_are_for_and_then_refuses() -> None:
    slots = 50_000
    offset_map = OffsetMap(slots * ENTRY_BYTES * 8 // 7, 0.8)
    count = 0
    while offset_map.put_all([b"key-%d" % i for i in range(count, count + 7)], range(count, count + 7)):
        count += 7
    assert 0.99 * 40_000 < count <= 40_000
    assert offset_map.last_offsets([b"key-%d" % i for i in range(count)]) == list(range(count))
    assert offset_map.last_offsets([b"another"]) == [-1]
    assert offset_map.offsets_in_order() is None


def test_full_map_still_takes_keys_that_it_knows() -> None:
    offset_map = OffsetMap(1000 * ENTRY_BYTES, 0.5)
    keys = [b"%d" % i for i in range(400)]
    for start in range(0, 400_000, 400):
        assert offset_map.put_all(keys, range(start, start + 400))
    assert offset_map.last_offsets(keys) == list(range(399_600, 400_000))
    assert not offset_map.put_all([b"new %d" % i for i in range(400)], range(400))


@pytest.mark.parametrize("key_bytes", [8, 1000])
def test_map_stays_within_the_bytes_that_it_was_allowed(key_bytes: int) -> None:
    allowed = 2 << 20
    offset_map = OffsetMap(allowed, 0.9)
    tracemalloc.start()
    try:
        for start in range(0, 40_000, 100):
            keys = [b"%0*d" % (key_bytes, i) for i in range(start, start + 100)]
            assert offset_map.put_all(keys, range(start, start + 100))
            assert tracemalloc.get_traced_memory()[0] < 1.1 * allowed + 200 * key_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bytes_max", [0, 1, ENTRY_BYTES, 3 * ENTRY_BYTES])
def test_smallest_map_holds_one_key(bytes_max: int) -> None:
    offset_map = OffsetMap(bytes_max, 0.9)
    assert offset_map.put_all([b"a"], [1])
    assert offset_map.last_offsets([b"a", b"b"]) == [1, -1]
    assert offset_map.put_all([b"a"], [2])
    assert offset_map.last_offsets([b"a", b"b"]) == [2, -1]


def test_full_table_finds_what_is_not_there_without_end() -> None:
    offset_map = OffsetMap(116 * ENTRY_BYTES, 1.0)
    for i in range(100):
        assert offset_map.put_all([b"%d" % i], [i])
    assert not offset_map.put_all([b"one more"], [100])
    assert offset_map.last_offsets([b"absent", b"99"]) == [-1, 99]
