"""A query that falls behind is said so once, and once that it has caught up."""

import pytest

from pybroker.pipeline.lag_watch import GROWING_S, LagWatch


@pytest.fixture
def watch() -> LagWatch:
    return LagWatch("orders-read")


def said(watch: LagWatch, lags: list[int], taken: int = 100) -> list[str]:
    """What is said of lags that are seen ten seconds apart."""
    lines = [watch.observe(lag, taken, 10.0 * i) for i, lag in enumerate(lags)]
    return [line for line in lines if line is not None]


def test_a_lag_that_grows_is_said_once_and_once_that_it_is_over(watch: LagWatch) -> None:
    lags = [0, 1_000, 3_000, 5_000, 6_000, 7_908, 9_000, 9_500, 4_000, 60, 0]
    assert said(watch, lags) == ["orders-read is 6,000 records behind, growing for 30 s", "orders-read has caught up"]


def test_a_query_that_falls_behind_again_is_said_again(watch: LagWatch) -> None:
    behind = [500, 900, 1_300, 1_700, 0]
    assert len(said(watch, behind + behind)) == 4


@pytest.mark.parametrize(
    "lags",
    [
        [100] * 20,  # as much as a micro-batch takes comes while it runs
        [5_000] * 20,  # it stays as it is
        [9_000 - 500 * i for i in range(17)],  # it is being worked off, as after a start from the beginning
        [0, 800, 0, 900, 0, 1_000, 0, 1_100, 0],  # bursts
    ],
)
def test_what_does_not_grow_for_long_is_nothing_to_say(watch: LagWatch, lags: list[int]) -> None:
    assert said(watch, lags) == []


def test_growth_shorter_than_the_time_is_nothing_to_say(watch: LagWatch) -> None:
    assert watch.observe(1_000, 100, 0.0) is None
    assert watch.observe(2_000, 100, GROWING_S - 1) is None
