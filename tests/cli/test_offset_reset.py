"""Which offset a reset chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cli.requests.offset_reset import PartitionOffsets, Target, new_offset, parse_topic_partitions

KNOWN = PartitionOffsets(earliest=10, latest=100, committed=50, at_timestamp=70)


@pytest.mark.parametrize(
    ("target", "value", "offset"),
    [
        (Target.EARLIEST, 0, 10),
        (Target.LATEST, 0, 100),
        (Target.CURRENT, 0, 50),
        (Target.OFFSET, 60, 60),
        (Target.OFFSET, 5, 10),
        (Target.OFFSET, 500, 100),
        (Target.SHIFT, 7, 57),
        (Target.SHIFT, -7, 43),
        (Target.SHIFT, -500, 10),
        (Target.SHIFT, 500, 100),
        (Target.DATETIME, 0, 70),
    ],
)
def test_each_target_chooses_its_offset_within_the_log(target: Target, value: int, offset: int) -> None:
    assert new_offset(target, value, KNOWN) == offset


def test_a_time_after_the_last_record_means_the_end() -> None:
    assert new_offset(Target.DATETIME, 0, PartitionOffsets(10, 100)) == 100


def test_without_a_committed_offset_there_is_nothing_to_shift() -> None:
    with pytest.raises(ValueError, match="nothing is committed"):
        new_offset(Target.SHIFT, 1, PartitionOffsets(10, 100))
    assert new_offset(Target.CURRENT, 0, PartitionOffsets(10, 100)) == 100


@given(
    target=st.sampled_from([Target.OFFSET, Target.SHIFT, Target.CURRENT]),
    value=st.integers(-(2**40), 2**40),
    committed=st.integers(0, 2**40),
    bounds=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(sorted),
)
def test_a_new_offset_never_leaves_the_log(target: Target, value: int, committed: int, bounds: list[int]) -> None:
    earliest, latest = bounds
    assert earliest <= new_offset(target, value, PartitionOffsets(earliest, latest, committed)) <= latest


def test_topics_may_name_some_of_their_partitions() -> None:
    assert parse_topic_partitions("t") == ("t", None)
    assert parse_topic_partitions("t:0,2") == ("t", [0, 2])


@pytest.mark.parametrize("text", ["", ":0", "t:", "t:a", "t:0,", "t:-1"])
def test_a_topic_without_a_name_or_with_strange_partitions_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no topic|must be numbers"):
        parse_topic_partitions(text)
