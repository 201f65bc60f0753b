"""Framing without a socket: which frames there are, what is missing of one, and which is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker import limits
from pybroker.net.framing import LENGTH_BYTES, FrameRefused, Framing, buffer_size_for, frame_bytes

FRAME_BYTES_MAX = 50
sizes = st.lists(st.integers(0, FRAME_BYTES_MAX), max_size=6)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def declared(size: int) -> memoryview:
    return memoryview(size.to_bytes(LENGTH_BYTES, "big", signed=True))


@given(sizes, st.integers(0, 9), st.data())
def test_frames_are_found_one_behind_another_however_many_bytes_are_here(
    sizes: list[int], before: int, data: st.DataObject
) -> None:
    framing = Framing(FRAME_BYTES_MAX)
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    received = memoryview(bytes(before) + b"".join(map(framed, bodies)))
    end = data.draw(st.integers(before, len(received)))
    found, pos = [], before
    while stop := framing.end_of_frame(received, pos, end):
        found.append(bytes(received[pos + LENGTH_BYTES : stop]))
        pos = stop
    whole = [size for number, size in enumerate(sizes) if before + sum(sizes[: number + 1]) + 4 * (number + 1) <= end]
    assert found == bodies[: len(whole)]
    assert not framing.can_be_judged(received, pos, end), "what is left has to be read on"
    rest = sizes[len(whole) :]
    if end - pos >= LENGTH_BYTES:
        assert frame_bytes(received, pos, end) == LENGTH_BYTES + rest[0]
    else:
        assert frame_bytes(received, pos, end) == LENGTH_BYTES, "nothing is known of it but that it has a length"


@pytest.mark.parametrize("size", [-1, -(1 << 31), FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_length_that_is_not_served_is_refused_as_soon_as_it_is_here(size: int) -> None:
    framing = Framing(FRAME_BYTES_MAX)
    length = declared(size)
    assert framing.end_of_frame(length, 0, LENGTH_BYTES - 1) == 0
    assert not framing.can_be_judged(length, 0, LENGTH_BYTES - 1)
    assert framing.can_be_judged(length, 0, LENGTH_BYTES), "nothing more of it is read"
    with pytest.raises(FrameRefused, match=f"a frame of {size} bytes"):
        framing.end_of_frame(length, 0, LENGTH_BYTES)


def test_a_whole_frame_is_served_before_anything_behind_it_is_read() -> None:
    framing = Framing(FRAME_BYTES_MAX)
    two = memoryview(framed(b"one") + framed(b"another"))
    assert framing.can_be_judged(two, 0, 7)
    assert framing.can_be_judged(two, 0, len(two))
    assert not framing.can_be_judged(two, 7, len(two) - 1)


@given(st.integers(1, 1 << 20), st.integers(0, (1 << 31) - 1))
def test_room_is_by_what_is_here_and_never_by_what_is_declared(here: int, size: int) -> None:
    received = memoryview(declared(size).tobytes() + bytes(max(here - LENGTH_BYTES, 0)))
    room = buffer_size_for(received, 0, here)
    assert room <= max(2 * here, limits.FRAME_BUFFER_MIN_BYTES)
    assert room >= min(2 * here, LENGTH_BYTES + size)
