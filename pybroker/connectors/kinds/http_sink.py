"""HttpSink: records as documents, in the form of Elasticsearch's bulk requests, which OpenSearch takes, too.

A document's id is its record's topic, partition and offset, or its key.  So a document that is sent again replaces
itself, and none is there twice.  By key a tombstone deletes, and a record's offset is its document's external version,
as with Connect's sink.  So the server refuses what a supervisor that was replaced sends late, and that counts as taken.

Owns the requests, each of so many documents and bytes at most.  A server that is away, or asks for patience (429,
503), is waited for.  A document that it refuses
ends the connector; where errors are tolerated it is passed over, and its record is a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.dead_letters import REASON_MAX, TARGET
from pybroker.connectors.kinds.exact_json import parsed
from pybroker.connectors.kinds.http_calls import ASKS_FOR_PATIENCE, Away, CallRefused, CodeRefused, body_of, waited_for
from pybroker.connectors.kinds.record_forms import fields_of
from pybroker.connectors.kinds.refused_records import Refusal
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.pipeline.spark_names import spark_name

_TIMEOUT_S: Final = 60.0
# Of a request; a document that has more goes alone.
_BYTES_MAX: Final = 8 * 1024 * 1024
# A request of which one document may be the reason: it is sent again by halves.
_ASKS_FOR_LESS: Final = frozenset({400, 413})
_MISSING: Final = 404
# A document has a greater version, or is deleted by one.
_HAS_A_LATER_ONE: Final = 409


class RequestRefused(RuntimeError):
    """The server refuses a request as a whole, or answers what no bulk request is answered by."""


class _TooMuch(Exception):
    """The server refuses a request as a whole, and may take its parts."""


@dataclass(frozen=True, slots=True)
class _Document:
    """A record's place, and the lines that a request has of it."""

    topic: str
    partition: int
    offset: int
    lines: bytes

    @property
    def size(self) -> int:
        return len(self.lines)

    def refused(self, reason: str) -> Refusal:
        return Refusal(self.topic, self.partition, self.offset, f"{TARGET}: {reason}")


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, _HttpSink(work).write, takes_tombstones=work.value("id.mode").lower() == "key")


class _HttpSink:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._address = _bulk(work.value("url"))
        # As it stands in errors, which Spark writes to its log, and in dead letters: what a reference finds may not.
        self._url = _bulk(work.shown("url"))
        self._by_key: bool = work.value("id.mode").lower() == "key"
        self._headers = {"Content-Type": "application/x-ndjson"}
        if authorization := work.value("http.authorization"):
            self._headers["Authorization"] = authorization

    def write(self, rows: DataFrame, epoch: int) -> list[Refusal]:
        """A micro-batch; of one that is sent again each document replaces itself."""
        fields = [spark_name(name) for name in fields_of(rows)]
        found = rows.orderBy("_origin", "_partition", "_offset").select(
            "_topic", "_origin", "_partition", "_offset", F.col("_key").cast("string").alias("_key"),
            F.to_json(F.struct(*fields)).alias("document"), F.col("_tombstone").alias("is_gone"),
        )  # fmt: skip
        return self._write(found.toLocalIterator())

    def _write(self, rows: Iterator[Any]) -> list[Refusal]:
        refused: list[Refusal] = []
        documents: list[_Document] = []
        size = 0
        for row in rows:
            document = self._document(row)
            if self._by_key and row["_key"] is None:
                refused.append(self._tolerated(document.refused("there is no key, and id.mode is key")))
                continue
            if documents and size + document.size > _BYTES_MAX:
                refused += self._send(documents)
                documents, size = [], 0
            documents.append(document)
            size += document.size
            if len(documents) >= self._work.value("batch.size"):
                refused += self._send(documents)
                documents, size = [], 0
        return refused + (self._send(documents) if documents else [])

    def _document(self, row: Any) -> _Document:
        index = self._work.value("index").replace("${topic}", row["_topic"])
        # Of a record whose topic a transform has changed it is the one before: two may have become one.
        place = (row["_origin"], row["_partition"], row["_offset"])
        action: dict[str, Any] = {"_index": index, "_id": row["_key"] if self._by_key else "+".join(map(str, place))}
        if self._by_key:
            action |= {"version": row["_offset"], "version_type": "external"}
        if self._by_key and row["is_gone"]:
            return _Document(*place, _lines(json.dumps({"delete": action})))
        return _Document(*place, _lines(json.dumps({"index": action}), row["document"]))

    def _send(self, documents: Sequence[_Document]) -> list[Refusal]:
        """Those that are refused; a request that is refused as a whole is sent again by halves."""
        try:
            return self._taken(documents)
        except _TooMuch as error:
            if len(documents) == 1:
                return [self._tolerated(documents[0].refused(str(error)))]
        half = len(documents) // 2
        return self._send(documents[:half]) + self._send(documents[half:])

    def _taken(self, documents: Sequence[_Document]) -> list[Refusal]:
        body = b"".join(each.lines for each in documents)
        return waited_for(self._work, self._url, partial(self._sent, body, documents))

    def _sent(self, body: bytes, documents: Sequence[_Document]) -> list[Refusal]:
        """The documents that are refused; raises `Away` where all have to be sent again."""
        try:
            answer = parsed(body_of(self._address, self._headers, _TIMEOUT_S, body))
        except CallRefused as error:
            if isinstance(error, CodeRefused) and error.code in _ASKS_FOR_LESS:
                raise _TooMuch(f"{self._url} {error}") from None
            raise RequestRefused(f"{self._url} {error}") from None
        except ValueError as error:
            raise RequestRefused(f"{self._url} answers with no JSON: {error}") from None
        return self._judged(answer, documents)

    def _judged(self, answer: Any, documents: Sequence[_Document]) -> list[Refusal]:
        listed = answer.get("items") if isinstance(answer, dict) else None
        if not isinstance(listed, list) or len(listed) != len(documents):
            raise RequestRefused(f"{self._url} answers with no item for each of {len(documents)} documents")
        items = [_outcome(item) for item in listed]
        if None in items:
            raise RequestRefused(f"{self._url} answers with an item that has no status")
        failed = [
            (document, item)
            for document, item in zip(documents, items, strict=True)
            if item["status"] >= 300 and not self._is_settled(item)
        ]
        if any(item["status"] in ASKS_FOR_PATIENCE for _, item in failed):
            raise Away("asks for patience")
        return [self._tolerated(each.refused(_reason(item.get("error", item["status"])))) for each, item in failed]

    def _is_settled(self, item: Mapping[str, Any]) -> bool:
        """Whether a document is not taken because that is done: what is deleted twice is gone."""
        if item["status"] == _HAS_A_LATER_ONE:
            return self._by_key
        return bool(item["status"] == _MISSING and "error" not in item)

    def _tolerated(self, refused: Refusal) -> Refusal:
        if not self._work.tolerates_errors:
            raise RecordRefused(f"{self._url}: {refused}")
        return refused


def _bulk(url: str) -> str:
    """Where a server takes bulk requests: below its path, before its query; a fragment is not sent."""
    path, mark, query = url.strip().partition("#")[0].partition("?")
    return f"{path.rstrip('/')}/_bulk{mark}{query}"


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _outcome(item: Any) -> Any:
    """What became of one document; None for what says nothing of it."""
    outcome = next(iter(item.values()), None) if isinstance(item, dict) else None
    status = outcome.get("status") if isinstance(outcome, dict) else None
    return outcome if isinstance(status, int) else None


def _reason(error: Any) -> str:
    """What the server says of a document, as far as its dead letter has room for it."""
    try:
        told = json.dumps(error, default=str)
    except RecursionError:
        told = "an error that is nested too deep"
    return told if len(told) <= REASON_MAX else f"{told[:REASON_MAX]}…"
