"""The order of a key's rows in a micro-batch: pure."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pybroker.pipeline.streams.arrival import in_order, merged


class Row(NamedTuple):
    at: int
    offset: int | None
    name: str = ""
    partition: int | None = None


def rows(name: str) -> st.SearchStrategy[list[Row]]:
    times = st.lists(st.integers(0, 9), max_size=6)
    made = times.map(lambda found: [Row(at, offset, name) for offset, at in enumerate(found)])
    return made.flatmap(st.permutations)


def test_of_two_topics_the_older_next_record_comes_first() -> None:
    table = [Row(5, 1, "table"), Row(1, 0, "table")]
    stream = [Row(1, 0, "stream"), Row(4, 1, "stream"), Row(9, 2, "stream")]
    order = [(row.name, row.at) for row in merged(table, stream)]
    assert order == [("table", 1), ("stream", 1), ("stream", 4), ("table", 5), ("stream", 9)]


def test_an_old_record_behind_a_new_one_waits_for_it() -> None:
    table = [Row(8, 0, "table"), Row(2, 1, "table")]
    stream = [Row(5, 0, "stream")]
    assert [row.at for row in merged(table, stream)] == [5, 8, 2]


@given(rows("table"), rows("stream"))
def test_each_topic_keeps_the_order_of_its_offsets(table: list[Row], stream: list[Row]) -> None:
    found = list(merged(table, stream))
    for name, given_rows in (("table", table), ("stream", stream)):
        assert [row for row in found if row.name == name] == sorted(given_rows, key=lambda row: row.offset or 0)


def test_rows_without_offsets_are_in_the_order_of_their_times() -> None:
    assert in_order([Row(200, None, "new"), Row(100, None, "old")]) == [Row(100, None, "old"), Row(200, None, "new")]


def test_rows_of_one_offset_are_in_the_order_of_their_times() -> None:
    assert in_order([Row(2, 7), Row(1, 7), Row(3, 6)]) == [Row(3, 6), Row(1, 7), Row(2, 7)]


def test_offsets_of_two_partitions_are_not_compared() -> None:
    rows = [Row(1, 900, partition=0), Row(5, 901, partition=0), Row(4, 3, partition=1), Row(2, 2, partition=1)]
    assert [row.at for row in in_order(rows)] == [1, 2, 4, 5]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=9))
def test_each_partition_keeps_the_order_of_its_offsets(found: list[tuple[int, int]]) -> None:
    rows = [Row(at, offset, partition=partition) for offset, (at, partition) in enumerate(found)]
    ordered = in_order(rows[::-1])
    assert sorted(ordered, key=lambda row: row.offset or 0) == rows
    for which in range(3):
        offsets = [row.offset or 0 for row in ordered if row.partition == which]
        assert offsets == sorted(offsets)
