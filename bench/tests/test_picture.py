"""The picture of the comparison: true to the figures, and readable on light and dark pages."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from bench import picture
from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Measurements

# The backgrounds of a light page and of a dark one.
PAGES = ("#ffffff", "#0d1117")
SVG = "{http://www.w3.org/2000/svg}"


def measured() -> Measurements:
    """A load that pybroker wins by 4, one in which less is better that it wins by 2, and one that Kafka wins by 2."""
    measurements = Measurements()
    for part, metric, kafka, ours in (
        ("tiny", "8×1 requests", [10.0, 10.0, 10.0], [30.0, 40.0, 50.0]),
        ("latency", "50 % end-to-end p99", [8.0], [4.0]),
        ("commits", "8×1 commits", [10.0], [5.0]),
    ):
        for broker, samples in ((KAFKA, kafka), (PYBROKER, ours)):
            for sample in samples:
                measurements.add(part, metric, "", broker, sample)
    return measurements


def drawn() -> ElementTree.Element:
    return ElementTree.fromstring(picture.comparison(measured()))


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_stands_out_from_light_and_dark_pages() -> None:
    colours = set(re.findall(r"#[0-9a-f]{6}\b", picture.comparison(measured())))
    assert colours == {picture.TEXT, picture.AHEAD, picture.BEHIND}
    for page in PAGES:
        assert contrast(picture.TEXT, page) > 4.2
        assert all(contrast(colour, page) > 3.5 for colour in colours)


def test_picture_has_no_background() -> None:
    svg = drawn()
    width = float(svg.attrib["viewBox"].split()[2])
    assert all(float(box.attrib["width"]) < width / 2 for box in svg.iter(f"{SVG}rect"))
    assert "style" not in svg.attrib


def test_bars_are_as_long_as_the_load_is_better_and_point_to_who_wins() -> None:
    svg = drawn()
    one, two, four = (picture.Axis([4.0, 0.5]).at(value) for value in (1, 2, 4))
    assert two - one == pytest.approx(four - two, abs=0.2)
    boxes = [(float(box.attrib["x"]), float(box.attrib["width"])) for box in svg.iter(f"{SVG}rect")]
    axis = picture.Axis([5.0, 0.5])
    assert [(x, round(x + width, 1)) for x, width in boxes] == [
        (axis.at(1), axis.at(4)),
        (axis.at(1), axis.at(2)),
        (axis.at(0.5), axis.at(1)),
    ]
    fills = [box.attrib["fill"] for box in svg.iter(f"{SVG}rect")]
    assert fills == [picture.AHEAD, picture.AHEAD, picture.BEHIND]
    shown = [text.text for text in svg.iter(f"{SVG}text")]
    assert {"tiny requests, 8×1", "4×", "2×", "0.5×"} <= set(shown)


def test_spread_goes_from_the_worst_round_to_the_best() -> None:
    axis = picture.Axis([5.0, 0.5])
    whiskers = [path.attrib["d"] for path in drawn().iter(f"{SVG}path") if "H" in path.attrib["d"]]
    low, high = re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", whiskers[0])[0]
    assert (float(low), float(high)) == (axis.at(3), axis.at(5))


def test_picture_of_nothing_is_empty() -> None:
    assert not list(ElementTree.fromstring(picture.comparison(Measurements())).iter(f"{SVG}rect"))
