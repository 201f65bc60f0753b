"""Receive buffers and their pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker import limits
from pybroker.net.buffers import BufferPool


@given(st.integers(1, 200 << 20))
def test_size_class_holds_the_frame_and_wastes_at_most_an_eighth(size: int) -> None:
    from pybroker.net.buffers import _size_class

    capacity = _size_class(size)
    assert capacity >= size
    assert capacity - size <= max(size, limits.FRAME_BUFFER_MIN_BYTES) // 8 or capacity == limits.FRAME_BUFFER_MIN_BYTES


def test_released_buffer_is_used_again() -> None:
    pool = BufferPool()
    buffer = pool.take(100_000)
    buffer.release()
    assert pool.take(100_000) is buffer


def test_held_buffer_stays_out_of_the_pool_until_the_last_release() -> None:
    pool = BufferPool()
    buffer = pool.take(100_000)
    buffer.hold()
    buffer.release()
    assert pool.take(100_000) is not buffer
    buffer.release()
    assert pool.take(100_000) is buffer


def test_releasing_twice_is_caught() -> None:
    buffer = BufferPool().take(1)
    buffer.release()
    with pytest.raises(AssertionError):
        buffer.release()


def test_pool_counts_what_is_in_use_and_keeps_a_bounded_rest() -> None:
    pool = BufferPool()
    buffers = [pool.take(4 << 20) for _ in range(20)]
    assert pool.bytes_in_use == 20 * (4 << 20)
    for buffer in buffers:
        buffer.release()
    assert pool.bytes_in_use == 0
    assert pool.bytes_free <= limits.BUFFER_POOL_BYTES


def test_a_buffer_that_nobody_needed_between_two_calls_is_forgotten() -> None:
    pool = BufferPool()
    needed, unused = pool.take(100_000), pool.take(200_000)
    for buffer in (needed, unused):
        buffer.release()
    pool.forget_unused()
    assert pool.take(100_000) is needed, "what is free may be used in between"
    needed.release()
    pool.forget_unused()
    assert pool.bytes_free == needed.capacity
    assert pool.take(100_000) is needed
    assert pool.take(200_000) is not unused
    assert pool.bytes_free == 0
