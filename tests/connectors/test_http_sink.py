"""Bulk requests of the HTTP sink: what is sent again, and what ends the connector.  Needs PySpark and no JVM."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from pybroker.connectors.declared.plugin_kinds import kind_named
from tests.connectors.bulk_server import BulkServer

pytest.importorskip("pyspark")


def sink(url: str, **config: str) -> Any:
    from pybroker.connectors.kinds.connector_runs import Work
    from pybroker.connectors.kinds.http_sink import _HttpSink

    kind = kind_named("HttpSink")
    assert kind is not None
    place: Any = None
    whole = {
        "url": url,
        "errors.retry.timeout": "60000",
        **{key.replace("_", "."): each for key, each in config.items()},
    }
    return _HttpSink(Work("s", kind, whole, None, {}, "", "", lambda _: "", place, threading.Event()))


def row(offset: int, document: dict[str, Any] | None, key: str | None = None) -> dict[str, Any]:
    return {
        **{"_topic": "t", "_partition": 0, "_offset": offset, "_key": key},
        **{"document": json.dumps(document or {}), "is_gone": document is None},
    }


def send(one: Any, *rows: dict[str, Any]) -> None:
    one._send([line for each in rows for line in one._action(each)])


def test_a_document_that_is_sent_again_replaces_itself() -> None:
    with BulkServer() as server:
        one = sink(server.url, index="of-${topic}")
        for _ in range(2):
            send(one, row(0, {"id": 1}), row(1, {"id": 2}))
        assert server.documents == {("of-t", "t+0+0"): {"id": 1}, ("of-t", "t+0+1"): {"id": 2}}


def test_by_key_the_last_record_counts_and_a_tombstone_deletes() -> None:
    with BulkServer() as server:
        one = sink(server.url, id_mode="key")
        for _ in range(2):
            send(one, row(0, {"id": 1}, "a"), row(1, {"id": 2}, "b"), row(2, {"id": 3}, "a"), row(3, None, "b"))
        assert server.documents == {("t", "a"): {"id": 3}}


def test_a_record_without_a_key_has_no_document_by_key() -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    with pytest.raises(RecordRefused, match=r"t\+0\+5 has no key"):
        list(sink("http://h", id_mode="key")._action(row(5, {"id": 1})))


def test_a_server_that_asks_for_patience_gets_the_documents_again() -> None:
    with BulkServer(busy=2) as server:
        send(sink(server.url), row(0, {"id": 1}))
        assert (server.asked, len(server.documents)) == (3, 1)


def test_a_server_that_stays_away_ends_the_connector_after_its_patience() -> None:
    from pybroker.connectors.kinds.http_sink import ServerGone

    with pytest.raises(ServerGone, match=r"127\.0\.0\.1:1/_bulk: does not answer"):
        send(sink("http://127.0.0.1:1", errors_retry_timeout="0"), row(0, {"id": 1}))


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_a_document_that_is_refused_ends_the_connector_unless_errors_are_tolerated(tolerance: str) -> None:
    from pybroker.connectors.kinds.connector_runs import RecordRefused

    one = sink("http://h", errors_tolerance=tolerance)
    answer = {"items": [{"index": {"_id": "a", "status": 201}}, {"index": {"_id": "b", "status": 400, "error": "why"}}]}
    if tolerance == "all":
        assert one._judged(answer) is None
    else:
        with pytest.raises(RecordRefused, match='refuses the document b: "why"'):
            one._judged(answer)
    busy = {"items": [{"index": {"_id": "a", "status": 429, "error": "busy"}}]}
    assert one._judged(busy) == "asks for patience"
