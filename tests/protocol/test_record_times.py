"""The largest time of records is what a reader of whole records finds, however they lie and in whatever pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import varint
from pybroker_protocol.record_codec import NewRecord, build_batch
from pybroker_protocol.record_times import largest_delta, walk_times
from pybroker_protocol.record_walk import WalkNotes, walk_section
from pybroker_protocol.records import HEADER_BYTES

TIME_MS = 1_700_000_000_000
INT64_MAX = (1 << 63) - 1
# Deltas of each width; negative ones, too.
deltas = st.sampled_from([0, 1, 63, 64, 8_191, 8_192, 1 << 40]) | st.integers(-(10**6), 10**6) | st.integers(0, 100)


def section(times: Sequence[int], sizes: Sequence[int]) -> bytes:
    records = [
        NewRecord(None, bytes(size), timestamp_ms=TIME_MS + time) for time, size in zip(times, sizes, strict=True)
    ]
    return build_batch([NewRecord(None, b"", timestamp_ms=TIME_MS), *records], timestamp_ms=TIME_MS)[HEADER_BYTES:]


def by_pieces(data: bytes, count: int, piece_bytes: int) -> int:
    steps = walk_times(iter(pieces(data, piece_bytes)), count)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: int = end.value
            return found


def pieces(data: bytes, size: int) -> Iterator[memoryview]:
    return (memoryview(data)[at : at + size] for at in range(0, len(data), size))


@st.composite
def some_records(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Runs of records that are alike in size, in time, in both or in neither."""
    times: list[int] = []
    sizes: list[int] = []
    for _ in range(draw(st.integers(0, 4))):
        run = draw(st.integers(1, 40))
        of_one_time, of_one_size = draw(st.booleans()), draw(st.booleans())
        some_sizes = st.integers(0, 200) | st.sampled_from([0, 56, 57, 58, 600, 8_200])
        times += [draw(deltas)] * run if of_one_time else draw(st.lists(deltas, min_size=run, max_size=run))
        sizes += [draw(some_sizes)] * run if of_one_size else draw(st.lists(some_sizes, min_size=run, max_size=run))
    return times, sizes


@given(some_records(), st.integers(1, 3_000))
def test_largest_delta_is_that_of_the_latest_record(records: tuple[list[int], list[int]], piece_bytes: int) -> None:
    times, sizes = records
    data = section(times, sizes)
    expected = max([0, *times])
    assert largest_delta(memoryview(data), len(times) + 1) == expected
    assert by_pieces(data, len(times) + 1, piece_bytes) == expected


@given(st.lists(st.integers(-(10**6), -1), min_size=1, max_size=60))
def test_negative_deltas_are_no_positive_ones(times: list[int]) -> None:
    data = section(times, [5] * len(times))
    first = len(section([], []))
    assert largest_delta(memoryview(data[first:]), len(times)) == max(times)


@pytest.mark.parametrize("count", [10, 64, 65, 5_000, 20_000])
@pytest.mark.parametrize("size", [0, 57, 120, 1_000])
@pytest.mark.parametrize("latest", [0, -1])
def test_one_later_record_among_many_that_are_alike_is_found(count: int, size: int, latest: int) -> None:
    if count * size > 5_000_000:
        return
    times = [3] * count
    times[latest] = 7_000
    data = section(times, [size] * count)
    assert largest_delta(memoryview(data), count + 1) == 7_000
    assert by_pieces(data, count + 1, 64 << 10) == 7_000


@given(some_records(), st.integers(1, 3_000), st.data())
def test_records_that_are_not_as_many_or_as_long_as_said_are_damage(
    records: tuple[list[int], list[int]], piece_bytes: int, data: st.DataObject
) -> None:
    """Whatever the whole walk refuses for its lengths is refused; whatever this one takes has the largest time."""
    times, sizes = records
    count, sound = len(times) + 1, bytearray(section(times, sizes))
    for wrong in (count - 1, count + 1):
        with pytest.raises(ProtocolError):
            largest_delta(memoryview(sound), wrong)
        with pytest.raises(ProtocolError):
            by_pieces(bytes(sound), wrong, piece_bytes)
    damaged = sound[: data.draw(st.integers(0, len(sound)))]
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    found = [attempt(bytes(damaged), count, size) for size in (None, piece_bytes)]
    assert found[0] == found[1]
    notes = WalkNotes(keys_wanted=False, base_timestamp=0, earliest=-(1 << 66), latest=1 << 66, faults_max=1)
    try:
        walk_section(bytes(damaged), count, notes)
    except ProtocolError:
        return
    assert found[0] is not None
    assert max(found[0], -1) == notes.largest_timestamp


def attempt(data: bytes, count: int, piece_bytes: int | None) -> int | None:
    try:
        return by_pieces(data, count, piece_bytes) if piece_bytes else largest_delta(memoryview(data), count)
    except ProtocolError:
        return None


def test_the_largest_number_that_there_is_is_found() -> None:
    body = b"\0" + varint(INT64_MAX) + varint(0) + varint(-1) + varint(0) + varint(0)
    data = varint(len(body)) + body
    assert largest_delta(memoryview(data), 1) == INT64_MAX
    assert by_pieces(data, 1, 3) == INT64_MAX
