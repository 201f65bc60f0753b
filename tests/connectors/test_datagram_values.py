"""Datagrams of syslog and StatsD as values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.connectors.declared.datagram_values import statsd, syslog


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (
            b'<165>1 2026-01-31T12:00:00.003Z web app 7 ID47 [a@1 k="v\\"]"][b@2] \xef\xbb\xbfit failed\n',
            {
                **{"facility": 20, "severity": 5, "timestamp": "2026-01-31T12:00:00.003Z", "host": "web"},
                **{"app": "app", "pid": "7", "id": "ID47", "data": '[a@1 k="v\\"]"][b@2]', "message": "it failed"},
            },
        ),
        (b"<34>1 - - - - - -", {"facility": 4, "severity": 2, "message": ""}),
        (
            b"<13>Jan  5 12:00:00 web sshd[77]: who: is there",
            {
                **{"facility": 1, "severity": 5, "timestamp": "Jan  5 12:00:00", "host": "web"},
                **{"app": "sshd", "pid": "77", "message": "who: is there"},
            },
        ),
        (b"<999>x", {"message": "<999>x"}),
        (b"<13>plain", {"facility": 1, "severity": 5, "message": "plain"}),
        (b"", {"message": ""}),
        (b"\xff", {"message": "\ufffd"}),
    ],
)
def test_datagrams_of_both_forms_of_syslog_are_read(raw: bytes, value: dict[str, Any]) -> None:
    assert syslog(raw) == value


def test_metrics_are_read_line_by_line_and_lines_that_are_none_are_counted() -> None:
    found, no_metrics = statsd(b"a:1|c\nb:-2.5|g\nu:ann|s\nbad\nc:x|c\n\nd:1|c|@0.1|#x:1,y\ne:1|c|@.\n")
    assert [(each["name"], each["value"]) for each in found] == [("a", 1.0), ("b", -2.5), ("u", "ann"), ("d", 1.0)]
    assert found[1]["is_change"]
    assert (found[3]["rate"], found[3]["tags"]) == (0.1, ["x:1", "y"])
    assert no_metrics == 3


def test_several_values_of_a_line_are_a_metric_each_but_for_those_of_a_set() -> None:
    found, no_metrics = statsd(b"a:1:2|c|#x\ng:-1:2|g\nu:a:b|s\nbad:1:x|c\nbad:1:|c")
    assert [(each["name"], each["value"]) for each in found] == [
        *(("a", 1.0), ("a", 2.0)),
        *(("g", -1.0), ("g", 2.0)),
        ("u", "a:b"),
    ]
    assert [each["tags"] for each in found[:2]] == [["x"], ["x"]]
    assert [each.get("is_change") for each in found[2:4]] == [True, None]
    assert no_metrics == 2


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity", "1e999", "-1e999", "1_0", "0x1", "", " 1"])
def test_what_is_no_number_of_json_is_no_metric(number: str) -> None:
    assert statsd(f"a:{number}|g\nb:1|c|@{number or 'x'}\nc:{number}:1|ms".encode()) == ([], 3)


def test_a_line_does_not_become_many_times_its_size() -> None:
    line = b"n" * 30_000 + b":1" * 15_000 + b"|c"
    assert statsd(line) == ([], 1)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(raw: bytes) -> None:
    assert "message" in syslog(raw)
    found, _ = statsd(raw)
    json.dumps(found, allow_nan=False)
