"""The list of meant differences: no entry is so wide that a mistake of pybroker's passes as meant."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest
from harness.batches import batch

from comparator.broker import UNREAD, Step
from comparator.compare import Judged, Transcript, judge, stale
from comparator.diff import ABSENT, Difference
from comparator.differences import ANSWERED_AS, MEANT, NOT_SERVED_YET, AnsweredAs, Meant
from comparator.encoding import Tree
from comparator.registry import Scenario, all_scenarios
from comparator.wire import CLOSED, SILENT
from pybroker.apis import APIS

NO_ANSWERS = [tree["connection"] for tree in (CLOSED, SILENT, UNREAD)]
# The requests that pybroker meets by closing the connection, on purpose.
CLOSED_ON_PURPOSE = {
    "strings are UTF-8",
    "null has the length -1 and no other",
    "of strangers nothing is decoded but what a login is made of; Kafka answers the request with an error",
    "a login anew comes in requests; tokens without them are of clients that never log in anew",
}
UNEXPECTED_CODES = (99, -1)
PATHS_OF_CODES = ("error_code", "topics[name=a].error_code", "responses[0].partitions[partition_index=0].error_code")


def named(entry: Meant | AnsweredAs) -> str:
    return " ".join(entry[:3])


def anywhere(entry: Meant, path: str, ours: Tree, kafka: Sequence[Tree]) -> bool:
    """Whether the entry covers such a difference in the scenarios and steps that are its own."""
    wide = entry._replace(scenario="*", step="*")
    return any(wide.covers("s", "Api v0", Difference(path, value, ours)) for value in kafka)


@pytest.mark.parametrize("entry", MEANT, ids=named)
def test_an_entry_says_what_both_brokers_say(entry: Meant) -> None:
    assert entry.path.strip("*"), "a path that is anything has whatever goes wrong meant"
    assert entry.kafka.strip("*"), "what Kafka says has to be pinned"
    assert entry.ours.strip("*"), "what pybroker says has to be pinned"


@pytest.mark.parametrize("entry", MEANT, ids=named)
def test_no_entry_means_a_connection_that_pybroker_closed(entry: Meant) -> None:
    kafka = [ABSENT, *NO_ANSWERS]
    if entry.reason not in CLOSED_ON_PURPOSE:
        assert not any(anywhere(entry, "connection", ours, kafka) for ours in NO_ANSWERS)


@pytest.mark.parametrize("entry", MEANT, ids=named)
def test_no_entry_means_an_error_that_nobody_expects(entry: Meant) -> None:
    every_code = range(-1, 134)
    for path in PATHS_OF_CODES:
        assert not any(anywhere(entry, path, ours, every_code) for ours in UNEXPECTED_CODES)


def test_what_is_served_is_not_meant_to_be_absent() -> None:
    absent = {entry.path for entry in NOT_SERVED_YET}
    assert absent
    assert not absent & {f"api_keys[api_key={api.key}]" for api in APIS}


@pytest.mark.parametrize("entry", [*MEANT, *ANSWERED_AS], ids=named)
def test_an_entry_is_of_a_scenario_that_there_is(entry: Meant | AnsweredAs) -> None:
    assert any(fnmatchcase(each.name, entry.scenario) for each in all_scenarios())


def unmeant(scenario: str, api: str, version: int, note: str, kafka: Tree, ours: Tree) -> list[Judged]:
    """What is judged as not meant when the brokers answer so; the example, where there is one, is Kafka's own."""
    examples = {rule.example for rule in ANSWERED_AS if rule.covers(scenario, note)}
    first = [Step(api, version, example, {}, fetched(THREE_BATCHES)) for example in examples]
    kafka_side, our_side = (Transcript([*first, Step(api, version, note, {}, reply)], None) for reply in (kafka, ours))
    return judge(Scenario(scenario, lambda _: None), kafka_side, our_side).unmeant


HEADER = struct.Struct(">qiibIhiqqqhii")


def batch_of(base_offset: int) -> bytes:
    """A batch as prepare_log's are: three records and 253 bytes behind the length."""
    filling = 253 + 12 - HEADER.size
    return HEADER.pack(base_offset, 253, 0, 2, 0, 0, 2, 1, 1, -1, -1, -1, 3) + bytes(filling)


THREE_BATCHES = b"".join(batch_of(offset) for offset in (3, 6, 9))


def fetched(records: bytes, code: int = 0, mark: int = 12, aborted: Tree = None, start: int = 0) -> Tree:
    partition = {
        "partition_index": 0,
        "error_code": code,
        "high_watermark": mark,
        "last_stable_offset": mark,
        "log_start_offset": start,
        "aborted_transactions": aborted,
        "records": records,
    }
    return {"error_code": 0, "session_id": 0, "responses": [{"topic": "t", "partitions": [partition]}]}


def failed() -> Tree:
    """What Kafka answers where it fails on one partition."""
    return fetched(b"", code=-1, mark=-1, start=-1)


def produced(code: int, base_offset: int = -1, start: int = -1) -> Tree:
    partition = {"index": 0, "error_code": code, "base_offset": base_offset, "log_start_offset": start}
    return {"responses": [{"name": "t", "partition_responses": [partition]}]}


def one(name: str, element: dict[str, Any]) -> Tree:
    return {name: [element]}


ABORTED = [{"producer_id": 5, "first_offset": 1}]
LIMITS, FETCH, PARTITION_LIMIT = "fetch.limits_of_bytes", "boundaries_data.fetch", "topics[0].partitions[0]"
COMMITTED = "transactional_data.committed_readers_among_several_transactions"


@pytest.mark.parametrize(
    ("scenario", "api", "version", "note", "kafka", "ours"),
    [
        (FETCH, "Fetch", 11, "max_bytes: max", fetched(THREE_BATCHES), CLOSED),
        (FETCH, "Fetch", 11, "max_bytes: 0", fetched(THREE_BATCHES), fetched(b"")),
        (FETCH, "Fetch", 11, "max_bytes: -1", failed(), CLOSED),
        (FETCH, "Fetch", 11, "max_bytes: -1", failed(), fetched(b"")),
        (FETCH, "Fetch", 11, "max_bytes: min", failed(), fetched(THREE_BATCHES, mark=77)),
        (FETCH, "Fetch", 11, f"{PARTITION_LIMIT}.partition_max_bytes: 0", fetched(batch_of(3)), fetched(b"", -1, 77)),
        (FETCH, "Fetch", 11, "isolation_level: -1", failed(), CLOSED),
        (FETCH, "Fetch", 11, "isolation_level: -1", failed(), fetched(THREE_BATCHES, start=9)),
        (FETCH, "Fetch", 11, "session_id: min", failed(), fetched(THREE_BATCHES, code=71)),
        (LIMITS, "Fetch", 11, "request limit 400", fetched(batch_of(0) + batch_of(3)), fetched(batch_of(0))),
        (LIMITS, "Fetch", 11, "partition limit 1", fetched(batch_of(0)), fetched(b"")),
        (LIMITS, "Fetch", 11, "negative limit", failed(), SILENT),
        (COMMITTED, "Fetch", 11, "both aborted, from 1, 1 bytes", fetched(b"", aborted=ABORTED), fetched(b"")),
        (
            COMMITTED,
            "Fetch",
            11,
            "all ended, from 2, 1 bytes",
            fetched(b"", aborted=ABORTED),
            fetched(b"", aborted=[]),
        ),
        ("produce.broken_batches", "Produce", 9, "trailing bytes", produced(0, 0, 0), CLOSED),
        ("produce.broken_batches", "Produce", 9, "trailing bytes", produced(0, 0, 0), produced(-1)),
        ("produce.broken_batches", "Produce", 9, "count too high", produced(87), produced(0, 0, 0)),
        ("produce.broken_batches", "Produce", 9, "count too low", produced(87), CLOSED),
        ("produce.broken_batches", "Produce", 9, "log append time flag", produced(0, 0, 0), CLOSED),
        ("produce.acks_that_do_not_exist", "Produce", 8, "acks 2", produced(3), produced(3, start=999)),
        (
            "configs.topic_configs_change_at_once",
            "IncrementalAlterConfigs",
            1,
            "unknown operation",
            one("responses", {"resource_name": "a", "error_code": -1}),
            one("responses", {"resource_name": "a", "error_code": 0}),
        ),
        (
            "boundaries_topics.create_topics",
            "CreateTopics",
            7,
            "topics[0].name: longest",
            one("topics", {"name": "a", "error_code": -1}),
            one("topics", {"name": "a", "error_code": 0}),
        ),
        ("transactions.no_transactions_at_all", "AddPartitionsToTxn", 4, "none", SILENT, CLOSED),
        ("transactions.no_transactions_at_all", "AddPartitionsToTxn", 4, "none", SILENT, {"error_code": 42}),
        ("configs.replacing_one_resource_twice", "AlterConfigs", 2, "twice in one request", SILENT, CLOSED),
        ("produce.null_records_are_not_answered", "Produce", 9, "null records", SILENT, CLOSED),
        ("groups.one_protocol_twice", "JoinGroup", 3, "one protocol twice", SILENT, CLOSED),
        ("produce.one_partition_twice", "Produce", 9, "in one topic", produced(0, 0, 0), CLOSED),
    ],
)
def test_a_mistake_is_not_meant(scenario: str, api: str, version: int, note: str, kafka: Tree, ours: Tree) -> None:
    assert unmeant(scenario, api, version, note, kafka, ours)


@pytest.mark.parametrize(
    ("scenario", "api", "version", "note", "kafka", "ours"),
    [
        (FETCH, "Fetch", 11, "max_bytes: -1", failed(), fetched(THREE_BATCHES)),
        (LIMITS, "Fetch", 11, "request limit 400", fetched(batch_of(0) + batch(b"x")[:9]), fetched(batch_of(0))),
        ("produce.broken_batches", "Produce", 9, "trailing bytes", produced(0, 0, 0), produced(87, start=0)),
        ("transactions.no_transactions_at_all", "AddPartitionsToTxn", 4, "none", SILENT, {"error_code": 0}),
    ],
)
def test_what_is_meant_is_meant(scenario: str, api: str, version: int, note: str, kafka: Tree, ours: Tree) -> None:
    assert not unmeant(scenario, api, version, note, kafka, ours)


def test_a_rule_that_nothing_follows_is_stale() -> None:
    rule = AnsweredAs("fetch.*", "negative", "ordinary")
    assert stale([], [], [rule]) == [rule]
