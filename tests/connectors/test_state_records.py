"""Records of a supervisor's topics, and what is known by them."""

from __future__ import annotations

import json

import pytest

from pybroker.connectors.state.state_records import (
    Known,
    State,
    Status,
    Target,
    config_record,
    offset_record,
    run_record,
    status_records,
    target_record,
    topic_record,
)


@pytest.fixture
def known() -> Known:
    return Known()


def test_configurations_and_targets_are_read_as_they_were_written(known: Known) -> None:
    for record in (config_record("a", {"x": "1"}), target_record("a", Target.STOPPED), run_record("a", 3)):
        known.take_config(*record)
    assert (known.configs, known.targets, known.runs) == ({"a": {"x": "1"}}, {"a": Target.STOPPED}, {"a": 3})
    known.take_config(*config_record("a", None))
    known.take_config(*target_record("a", None))
    assert (known.configs, known.targets) == ({}, {})


def test_a_stopped_connector_is_paused_to_a_connect_that_knows_no_stopped_ones() -> None:
    _, value = target_record("a", Target.STOPPED)
    assert json.loads(value or b"") == {"state": "PAUSED", "state.v2": "STOPPED"}


def test_what_connect_has_written_is_read(known: Known) -> None:
    known.take_config(b"connector-a", b'{"properties":{"name":"a","tasks.max":"1"}}')
    known.take_config(b"target-state-a", b'{"state":"PAUSED"}')
    known.take_config(b"task-a-0", b'{"properties":{"x":"1"}}')
    known.take_config(b"commit-a", b'{"tasks":1}')
    known.take_config(b"session-key", b'{"key":"secret"}')
    known.take_status(b"status-task-a-0", b'{"state":"FAILED","trace":"x","worker_id":"w","generation":1}')
    known.take_offset(b'["a",{"filename":"f"}]', b'{"position":5}')
    assert known.configs == {"a": {"name": "a", "tasks.max": "1"}}
    assert known.targets == {"a": Target.PAUSED}
    assert known.statuses == {"a": Status(State.FAILED, "x", "w")}
    assert known.offsets == {"a": {'{"filename":"f"}': {"position": 5}}}


def test_a_record_that_is_nested_too_deep_is_passed_over(known: Known) -> None:
    """Whoever may write to the topics must not keep every supervisor from its work."""
    deep = b"[" * 100_000 + b"]" * 100_000
    for take, key in ((known.take_config, b"connector-a"), (known.take_status, b"status-task-a-0")):
        take(key, deep)
    known.take_offset(deep, b"{}")
    known.take_offset(b'["a",{}]', deep)
    assert (known.configs, known.statuses, known.offsets) == ({}, {}, {"a": {}})


def test_the_status_of_a_failed_task_leaves_its_connector_running(known: Known) -> None:
    records = status_records("a", Status(State.FAILED, "why", "w"))
    states = [json.loads(value or b"")["state"] for _, value in records]
    assert states == ["RUNNING", "FAILED"]
    for record in records:
        known.take_status(*record)
    assert known.statuses["a"] == Status(State.FAILED, "why", "w")


def test_names_with_hyphens_and_colons_are_told_apart(known: Known) -> None:
    """A connector's name may have what stands between it and its topic's; a topic's has no colon."""
    name = "a-1:connector-x"
    for record in (*status_records(name, Status(State.RUNNING)), topic_record(name, "t-2")):
        known.take_status(*record)
    assert known.statuses.keys() == {name}
    assert known.topics == {name: {"t-2"}}


def test_offsets_are_those_of_partitions_whatever_the_order_of_their_keys(known: Known) -> None:
    known.take_offset(*offset_record("a", {"x": 1, "y": 2}, {"at": 1}))
    known.take_offset(*offset_record("a", {"y": 2, "x": 1}, {"at": 2}))
    assert known.offsets == {"a": {'{"x":1,"y":2}': {"at": 2}}}
    known.take_offset(*offset_record("a", {"y": 2, "x": 1}, None))
    assert known.offsets == {"a": {}}


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b'"x"', b'{"properties":[]}'])
def test_damaged_records_are_passed_over(known: Known, raw: bytes) -> None:
    for key in (b"connector-a", b"target-state-a", b"run-a", b"status-task-a-0", raw, None):
        known.take_config(key, raw)
        known.take_status(key, raw)
        known.take_offset(key, raw)
    assert known == Known(topics=known.topics, offsets=known.offsets)
