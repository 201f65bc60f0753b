"""The judge of replies: what it takes for one shape, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.connectors.reply_shapes import differences


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"a": 1, "b": "x"}, {"b": "y", "a": 2}),
        ({"a": None}, {"a": "x"}),
        ([], [{"a": 1}]),
        ([{"a": None}, {"a": 1}], [{"a": 2}]),
        ({"config": {"x": "1"}}, {"config": {"y": "2", "z": "3"}}),
        ({"state": "RUNNING", "type": "source"}, {"state": "RUNNING", "type": "source"}),
        ({"type": "STRING"}, {"type": "INT"}),
        ([{"a": None}, {"a": {"b": 1}}], [{"a": {"b": 2}}]),
    ],
)
def test_these_have_one_shape(theirs: Any, ours: Any) -> None:
    assert differences(theirs, ours) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ({"a": 1}, {"a": "1"}, [".a: number there, text here"]),
        ({"a": 1}, {"b": 1}, [".a: only there", ".b: only here"]),
        ([{"a": {"b": True}}], [{"a": {}}], [".[].a.b: only there"]),
        (None, "x", [": only here"]),
        ({"a": {"b": 1}}, None, [": only there"]),
        ({"a": []}, {"a": {}}, [".a: list there, object here"]),
        ({"state": "RUNNING"}, {"state": "PAUSED"}, [".state: 'RUNNING' there, 'PAUSED' here"]),
        ({"error_code": 400}, {"error_code": 500}, [".error_code: 400 there, 500 here"]),
        ([{"type": "source"}], [{"type": "sink"}], [".[].type: 'source' there, 'sink' here"]),
        ({"config": {"x": "1"}}, {"config": {"x": 1}}, [".config.*: text there, number here"]),
    ],
)
def test_these_have_not(theirs: Any, ours: Any, told: list[str]) -> None:
    assert differences(theirs, ours) == told


def test_a_map_may_have_other_keys_and_no_other_values() -> None:
    assert differences({"a": {"level": "INFO"}}, {"b": {"level": "WARN"}}, is_map=True) == []
    assert differences({"a": {"level": "INFO"}}, {"b": "WARN"}, is_map=True) == [".*: object there, text here"]
