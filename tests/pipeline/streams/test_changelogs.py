"""When a changelog may stand for one that tells each change."""

import pytest

from tests.pipeline.streams.changelogs import Told, difference, differences

EACH: list[Told] = ["1", "2", None, "1", "3"]


@pytest.mark.parametrize("ours", [EACH, ["3"], ["1", "3"], ["2", None, "3"], [None, "3"]])
def test_some_of_the_changes_in_order_with_the_last_one_stand_for_each(ours: list[Told]) -> None:
    assert difference(ours, EACH) is None


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (["4", "3"], "not told"),
        (["2", "2", "3"], "not told"),
        ([None, "2", "3"], "not in this order"),
        (["1", "2"], "another value"),
        (["1", "2", None], "another value"),
        ([], "another value"),
        (["1", "1", "3"], "twice in a row"),
    ],
)
def test_others_do_not(ours: list[Told], reason: str) -> None:
    assert reason in (difference(ours, EACH) or "")


def test_what_is_told_twice_in_a_row_by_both_is_no_difference() -> None:
    assert difference(["1", "1"], ["1", "1", "2", "1"]) is None


def test_of_a_key_that_is_gone_in_the_end_nothing_need_be_told() -> None:
    assert difference([], ["1", None]) is None


def test_keys_of_both_sides_are_looked_at() -> None:
    found = differences({"new": ["1"]}, {"a": ["1"], "b": ["2", None]})
    assert found == [
        "a ends with another value: None, not ['1']",
        "new has what was not told, or not in this order: ['1'], not None",
    ]
