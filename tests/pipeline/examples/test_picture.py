"""The tour's plot: labels, legends and titles, whatever part of the year it shows.

Needs pandas, which `scripts/spark-setup` installs; starts no JVM.
"""

import random
from collections.abc import Iterator
from math import isnan
from typing import Any

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

TITLES = {1: "January 2013", 2: "January to February 2013", 12: "January to December 2013"}


@pytest.fixture(scope="module")
def answers() -> Any:
    """The batch's answers for so many months: what the database would have."""
    from functools import cache

    from examples.tour import check

    return cache(lambda months: (check.hours(months), check.by_weather(months)))


@pytest.fixture(params=sorted(TITLES))
def months(request: pytest.FixtureRequest) -> int:
    months: int = request.param
    return months


@pytest.fixture
def figure(answers: Any, months: int) -> Iterator[Any]:
    """The plot of so many months, laid out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from examples.tour.picture import plot

    figure = plot(*answers(months))
    FigureCanvasAgg(figure).draw()
    yield figure
    figure.clear()


def test_the_title_names_the_months(figure: Any, months: int) -> None:
    assert figure.get_suptitle().endswith(TITLES[months])


def test_labels_lie_inside_the_frame_above_all_data_and_not_on_each_other(figure: Any, months: int) -> None:
    from matplotlib.text import Text

    days = figure.axes[0]
    boxes = [Text.get_window_extent(text) for text in days.texts]  # without the lines that go down from them
    heights = [y for line in days.lines for y in line.get_ydata() if not isnan(y)]
    top_of_data = days.transData.transform((0, max(heights)))[1]
    assert boxes or months == 1, "a year has unusual hours"
    for i, box in enumerate(boxes):
        assert days.bbox.x0 <= box.x0 < box.x1 <= days.bbox.x1
        assert top_of_data <= box.y0 < box.y1 <= days.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_legends_stand_beside_their_frames_and_inside_of_the_picture(figure: Any) -> None:
    from matplotlib.legend import Legend

    found = [(axes, child) for axes in figure.axes for child in axes.get_children() if isinstance(child, Legend)]
    assert len(found) >= 2, "that of the lines, and that of the bars"
    for axes, legend in found:
        box = legend.get_window_extent()
        assert box.x0 >= axes.bbox.x1
        assert box.x1 <= figure.bbox.x1


def test_margins_are_a_small_part_of_what_is_shown(figure: Any) -> None:
    days = figure.axes[0]
    left, right = days.get_xlim()
    data = days.lines[0].get_xdata(orig=False)
    assert data.min() - left == pytest.approx(right - data.max())
    assert data.min() - left <= max((right - left) * 0.02, 0.5)


def test_a_heatmap_shows_one_month_by_day_and_hour(figure: Any, months: int) -> None:
    titles = [axes.get_title() for axes in figure.axes]
    assert any(title.startswith("Delay by day and scheduled hour in ") for title in titles)
    assert ("Delay by month and scheduled hour" in titles) == (months > 1)


def test_a_label_leaves_no_frame_and_lies_on_no_other() -> None:
    from examples.tour.picture import LETTER, placed

    numbers = random.Random(7)
    for _ in range(200):
        places = sorted(numbers.random() for _ in range(numbers.randint(1, 8)))
        texts = ["x" * numbers.randint(5, 40) for _ in places]
        spans = [
            (at, at + len(text) * LETTER, row) for (at, row), text in zip(placed(places, texts), texts, strict=True)
        ]
        assert all(begin >= 0 and end <= 1 for begin, end, _ in spans)
        for i, (begin, end, row) in enumerate(spans):
            assert not any(row == other and begin < until and since < end for since, until, other in spans[:i])
