"""Which offsets a micro-batch takes, and how tasks share them."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.pipeline.topics.admission import limited
from pybroker.pipeline.topics.ranges import OffsetRange, divide
from pybroker.pipeline.topics.topic_partitions import TopicPartition

PARTITIONS = [TopicPartition("t", i) for i in range(4)]


def as_ranges(found: list[tuple[int, int]]) -> list[OffsetRange]:
    return [OffsetRange(at, start, start + size) for at, (start, size) in zip(PARTITIONS, found, strict=False)]


starts_and_sizes = st.tuples(st.integers(0, 1000), st.integers(-5, 2000))
ranges = st.lists(starts_and_sizes, min_size=1, max_size=len(PARTITIONS)).map(as_ranges)


@given(ranges, st.none() | st.integers(1, 50), st.none() | st.integers(1, 500))
def test_tasks_read_every_offset_once_and_in_order(
    found: list[OffsetRange], min_partitions: int | None, records_max: int | None
) -> None:
    tasks = divide(found, min_partitions, records_max)
    assert all(task.size > 0 for task in tasks)
    assert records_max is None or all(task.size <= records_max for task in tasks)
    for whole in found:
        parts = [task for task in tasks if task.topic_partition == whole.topic_partition]
        offsets = [offset for part in parts for offset in range(part.start, part.end)]
        assert offsets == list(range(whole.start, whole.end))


def test_a_partition_is_one_task_unless_more_are_asked_for() -> None:
    found = [OffsetRange(PARTITIONS[0], 0, 10), OffsetRange(PARTITIONS[1], 5, 5)]
    assert divide(found, None, None) == found[:1]
    assert divide(found, 1, None) == found[:1]


def test_large_partitions_are_divided_and_small_ones_stay_whole() -> None:
    tasks = divide([OffsetRange(PARTITIONS[0], 0, 900), OffsetRange(PARTITIONS[1], 0, 10)], 4, None)
    assert [task.size for task in tasks] == [300, 300, 300, 10]


offsets = st.fixed_dictionaries(dict.fromkeys(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 2000))))


@given(offsets, st.integers(1, 500))
def test_a_limited_batch_moves_on_everywhere_and_never_past_the_end(
    found: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    starts = {at: start for at, (start, _) in found.items()}
    ends = {at: start + size for at, (start, size) in found.items()}
    chosen = limited(starts, ends, offsets_max)
    assert chosen.keys() == ends.keys()
    for at, end in ends.items():
        assert starts[at] <= chosen[at] <= end
        assert chosen[at] > starts[at] or end == starts[at], "no partition starves"
    taken = sum(chosen[at] - starts[at] for at in ends)
    assert taken <= offsets_max + len(PARTITIONS)


def test_shares_go_by_what_is_there() -> None:
    starts, ends = dict.fromkeys(PARTITIONS[:2], 100), {PARTITIONS[0]: 1000, PARTITIONS[1]: 200}
    assert limited(starts, ends, 100) == {PARTITIONS[0]: 190, PARTITIONS[1]: 110}
