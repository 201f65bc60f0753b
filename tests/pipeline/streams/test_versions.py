"""Versions of a key by the times from which they hold: pure."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.pipeline.streams.versions import Versions

HISTORY_US = 10

changes = st.lists(st.tuples(st.integers(0, 40), st.none() | st.sampled_from("abc")), max_size=12)


def versions(found: list[tuple[int, str | None]]) -> Versions:
    made = Versions(HISTORY_US)
    for at, text in found:
        made = Versions(HISTORY_US, made.kept())
        made.put(at, text)
    return made


@given(changes, st.integers(-5, 50))
def test_what_held_at_a_time_is_the_last_change_before_it(found: list[tuple[int, str | None]], at: int) -> None:
    """Against all changes that came in time, within the history."""
    newest, known = 0, dict[int, str | None]()
    for time, text in found:
        if time >= newest - HISTORY_US:
            known[time] = text
        newest = max(newest, time)
    before = [time for time in known if time <= at]
    expected = known[max(before)] if before and at >= newest - HISTORY_US else None
    assert versions(found).at(at) == expected


@given(changes)
def test_no_more_is_kept_than_the_history_needs(found: list[tuple[int, str | None]]) -> None:
    made = versions(found)
    if found:
        newest = max(at for at, _ in found)
        kept = [at for at, _ in found if at > newest - HISTORY_US]
        assert len(made) <= len(set(kept)) + 1


def test_a_change_older_than_the_history_is_left_out() -> None:
    made = versions([(30, "new"), (19, "too old"), (20, "old")])
    assert [made.at(at) for at in (19, 20, 29, 30)] == [None, "old", "old", "new"]
