"""Bulk requests of the HTTP sink: what is sent again, what is refused, and what ends the connector.

Needs PySpark and no JVM.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from pybroker.connectors.declared.plugin_kinds import kind_named
from tests.connectors.bulk_server import BulkServer

pytest.importorskip("pyspark")

ALL = {"errors.tolerance": "all"}


def sink(url: str, config: dict[str, str] | None = None, declared: dict[str, str] | None = None) -> Any:
    from pybroker.connectors.kinds.connector_runs import Work
    from pybroker.connectors.kinds.http_sink import _HttpSink

    kind = kind_named("HttpSink")
    assert kind is not None
    place: Any = None
    whole = {"url": url, "errors.retry.timeout": "60000", **(config or {})}
    return _HttpSink(Work("s", kind, whole, None, {}, "", "", lambda _: "", place, threading.Event(), declared or {}))


def row(offset: int, document: dict[str, Any] | None, key: str | None = None, origin: str = "t") -> dict[str, Any]:
    return {
        **{"_topic": "t", "_origin": origin, "_partition": 0, "_offset": offset, "_key": key},
        **{"document": json.dumps(document or {}), "is_gone": document is None},
    }


def send(one: Any, *rows: dict[str, Any]) -> list[tuple[int, str]]:
    """The offsets that are refused, each with the reason."""
    return [(each.offset, each.reason) for each in one._write(iter(rows))]


def test_a_document_that_is_sent_again_replaces_itself() -> None:
    with BulkServer() as server:
        one = sink(server.url, {"index": "of-${topic}"})
        for _ in range(2):
            send(one, row(0, {"id": 1}), row(1, {"id": 2}))
        assert server.documents == {("of-t", "t+0+0"): {"id": 1}, ("of-t", "t+0+1"): {"id": 2}}


def test_records_of_two_topics_that_became_one_are_two_documents() -> None:
    with BulkServer() as server:
        send(sink(server.url), row(0, {"id": 1}, origin="a"), row(0, {"id": 2}, origin="b"))
        assert server.documents == {("t", "a+0+0"): {"id": 1}, ("t", "b+0+0"): {"id": 2}}


def test_by_key_the_last_record_counts_and_a_tombstone_deletes() -> None:
    with BulkServer() as server:
        one = sink(server.url, {"id.mode": "key"})
        for _ in range(2):
            send(one, row(0, {"id": 1}, "a"), row(1, {"id": 2}, "b"), row(2, {"id": 3}, "a"), row(3, None, "b"))
        assert server.documents == {("t", "a"): {"id": 3}}


def test_by_key_what_a_sink_that_was_replaced_sends_late_replaces_nothing() -> None:
    """One that slept half way through its rows wakes when another one has written all of them, and newer ones."""
    old = [row(0, {"id": 1}, "a"), row(1, {"id": 2}, "b"), row(2, {"id": 3}, "c")]
    with BulkServer() as server:
        former, latter = (sink(server.url, {"id.mode": "key"}) for _ in range(2))
        send(former, old[0])
        send(latter, *old, row(3, {"id": 4}, "b"), row(4, None, "c"))
        assert send(former, *old[1:]) == []
        assert server.documents == {("t", "a"): {"id": 1}, ("t", "b"): {"id": 4}}


def test_a_conflict_of_versions_is_refused_where_no_version_was_sent() -> None:
    one = sink("http://h", ALL)
    conflict = {"items": [{"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}}]}
    assert [each.offset for each in one._judged(conflict, [one._document(row(7, {}))])] == [7]


def test_a_record_without_a_key_has_no_document_by_key() -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    rows = (row(5, {"id": 1}), row(6, {"id": 2}, "a"))
    with BulkServer() as server:
        with pytest.raises(RecordRefused, match="the record of t-0 at offset 5: target: there is no key"):
            send(sink(server.url, {"id.mode": "key"}), *rows)
        refused = send(sink(server.url, {"id.mode": "key", **ALL}), *rows)
        assert refused == [(5, "target: there is no key, and id.mode is key")]
        assert server.documents == {("t", "a"): {"id": 2}}


def test_a_server_that_asks_for_patience_gets_the_documents_again() -> None:
    with BulkServer(busy=2) as server:
        send(sink(server.url), row(0, {"id": 1}))
        assert (server.asked, len(server.documents)) == (3, 1)


def test_one_document_for_which_there_is_no_room_now_makes_all_be_sent_again() -> None:
    from pybroker.connectors.kinds.http_calls import Away

    one = sink("http://h", ALL)
    documents = [one._document(row(offset, {})) for offset in range(2)]
    refused = {"index": {"status": 400, "error": "no"}}
    with pytest.raises(Away, match="asks for patience"):
        one._judged({"items": [{"index": {"status": 429}}, refused]}, documents)
    assert [each.offset for each in one._judged({"items": [{"index": {"status": 201}}, refused]}, documents)] == [1]


def test_a_server_that_stays_away_ends_the_connector_after_its_patience() -> None:
    from pybroker.connectors.kinds.http_calls import ServerGone

    with pytest.raises(ServerGone, match=r"127\.0\.0\.1:1/_bulk: does not answer"):
        send(sink("http://127.0.0.1:1", {"errors.retry.timeout": "0"}), row(0, {"id": 1}))


def test_a_document_that_is_refused_ends_the_connector_unless_errors_are_tolerated() -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    rows = [row(offset, {"id": "poison" if offset in (3, 4) else offset}) for offset in range(7)]
    reason = '{"type": "document_parsing_exception", "reason": "poison"}'
    with BulkServer() as server:
        with pytest.raises(RecordRefused, match=f"the record of t-0 at offset 3: target: {reason}"):
            send(sink(server.url), *rows)
        small = {"batch.size": "2", **ALL}
        assert send(sink(server.url, small), *rows) == [(3, f"target: {reason}"), (4, f"target: {reason}")]
        assert sorted(each["id"] for each in server.documents.values()) == [0, 1, 2, 5, 6]


def test_a_request_that_is_too_large_is_sent_in_parts() -> None:
    with BulkServer(most=2) as server:
        assert send(sink(server.url), *(row(offset, {"id": offset}) for offset in range(9))) == []
        assert len(server.documents) == 9


def test_a_document_that_is_too_large_by_itself_is_refused_alone() -> None:
    with BulkServer(most=0) as server:
        refused = send(sink(server.url, ALL), row(0, {"id": 1}), row(1, {"id": 2}))
        assert refused == [(offset, f"target: {server.url}/_bulk answers 413") for offset in range(2)]


def test_a_url_that_a_reference_finds_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Neither by an error, which Spark writes to its own log, nor in a dead letter."""
    from pybroker.connectors.kinds.http_calls import ServerGone

    declared = {"url": "${file:/p:url}"}
    with BulkServer(most=0) as server:
        refused = send(sink(server.url, ALL, declared), row(0, {"id": 1}))
        assert refused == [(0, "target: ${file:/p:url}/_bulk answers 413")]
    with pytest.raises(ServerGone, match=r"^\$\{file:/p:url\}/_bulk: does not answer"):
        send(sink("http://127.0.0.1:1", {"errors.retry.timeout": "0"}, declared), row(0, {"id": 1}))
    assert "127.0.0.1:1" not in caplog.text


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h:9200/", "http://h:9200/_bulk"),
        ("http://h/es?pipeline=p", "http://h/es/_bulk?pipeline=p"),
        ("http://h/?a=b/", "http://h/_bulk?a=b/"),
        ("http://h/es#top", "http://h/es/_bulk"),
    ],
)
def test_documents_go_below_the_path_of_the_url_and_before_its_query(url: str, asked: str) -> None:
    one = sink(url)
    assert (one._address, one._url) == (asked, asked)


def test_a_request_has_so_many_bytes_unless_one_document_has_more() -> None:
    with BulkServer() as server:
        large = [row(offset, {"text": "x" * 3_000_000}) for offset in range(5)]
        assert send(sink(server.url), *large, row(5, {"text": "x" * 9_000_000}), row(6, {})) == []
        assert (server.asked, len(server.documents)) == (5, 7)


def test_bytes_of_a_request_are_those_that_are_sent() -> None:
    text = json.dumps({"text": "é" * 3_000_000}, ensure_ascii=False)
    with BulkServer() as server:
        assert send(sink(server.url), *({**row(offset, {}), "document": text} for offset in range(3))) == []
        assert (server.asked, len(server.documents)) == (3, 3)


def test_what_a_server_says_of_a_document_is_told_up_to_a_bound() -> None:
    """It is a header of the dead letter, which must not become too large for its topic."""
    nested: list[Any] = []
    for _ in range(2_000):
        nested = [nested]
    one = sink("http://h", ALL)
    documents = [one._document(row(offset, {})) for offset in range(2)]
    items = [{"index": {"status": 400, "error": each}} for each in ("x" * 1_000_000, nested)]
    long, deep = (each.reason for each in one._judged({"items": items}, documents))
    assert len(long) < 2_100
    assert deep == "target: an error that is nested too deep"


@pytest.mark.parametrize("item", [None, [], {}, {"index": None}, {"index": {}}, {"index": {"status": "201"}}])
def test_an_answer_that_says_nothing_of_a_document_ends_the_connector(item: Any) -> None:
    from pybroker.connectors.kinds.http_sink import RequestRefused

    one = sink("http://h", ALL)
    with pytest.raises(RequestRefused, match="an item that has no status"):
        one._judged({"items": [item]}, [one._document(row(0, {}))])


@pytest.mark.parametrize("answer", [{}, [], {"items": []}, {"items": [{"index": {"status": 201}}]}])
def test_an_answer_that_has_no_item_for_each_document_ends_the_connector(answer: Any) -> None:
    from pybroker.connectors.kinds.http_sink import RequestRefused

    one = sink("http://h", ALL)
    with pytest.raises(RequestRefused, match="no item for each of 2 documents"):
        one._judged(answer, [one._document(row(offset, {})) for offset in range(2)])
