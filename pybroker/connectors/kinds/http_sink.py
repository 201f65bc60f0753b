"""HttpSink: records as documents, in the form of Elasticsearch's bulk requests, which OpenSearch takes, too.

A document's id is its record's topic, partition and offset, or its key.  So a document that is sent again replaces
itself, and none is there twice.  By key a tombstone deletes.

Owns the requests.  A server that is away, or asks for patience (429, 503), is waited for; a document that it refuses
ends the connector, unless errors are tolerated.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.declared.transforms import quoted
from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.record_forms import fields_of
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.operating_system import system_reason

_TIMEOUT_S: Final = 60.0
_AGAIN_AFTER_S: Final = 0.5
_ASKS_FOR_PATIENCE: Final = frozenset({429, 502, 503, 504})
_MISSING: Final = 404

_log = logging.getLogger(__name__)


class ServerGone(RuntimeError):
    """The server did not take the documents for longer than the connector waits."""


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, _HttpSink(work).write, takes_tombstones=work.value("id.mode").lower() == "key")


class _HttpSink:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._url = f"{str(work.value('url')).rstrip('/')}/_bulk"
        self._by_key = work.value("id.mode").lower() == "key"
        self._headers = {"Content-Type": "application/x-ndjson"}
        if authorization := work.value("http.authorization"):
            self._headers["Authorization"] = authorization

    def write(self, rows: DataFrame, epoch: int) -> None:
        """A micro-batch; of one that is sent again each document replaces itself."""
        fields = [quoted(name) for name in fields_of(rows)]
        found = rows.orderBy("_partition", "_offset").select(
            "_topic", "_partition", "_offset", F.col("_key").cast("string").alias("_key"),
            F.to_json(F.struct(*fields)).alias("document"), F.col("_tombstone").alias("is_gone"),
        )  # fmt: skip
        lines: list[str] = []
        for row in found.toLocalIterator():
            lines += self._action(row)
            if len(lines) >= 2 * self._work.value("batch.size"):
                self._send(lines)
                lines = []
        if lines:
            self._send(lines)

    def _action(self, row: Any) -> Iterator[str]:
        index = self._work.value("index").replace("${topic}", row["_topic"])
        own = f"{row['_topic']}+{row['_partition']}+{row['_offset']}"
        if self._by_key and row["_key"] is None:
            raise RecordRefused(f"the record {own} has no key, and id.mode is key")
        action = {"_index": index, "_id": row["_key"] if self._by_key else own}
        if self._by_key and row["is_gone"]:
            yield json.dumps({"delete": action})
        else:
            yield json.dumps({"index": action})
            yield row["document"]

    def _send(self, lines: list[str]) -> None:
        body = "".join(f"{line}\n" for line in lines).encode()
        deadline = monotonic() + self._work.patience_s
        while (told := self._sent(body)) is not None:
            if monotonic() > deadline or self._work.ends.is_set():
                raise ServerGone(f"{self._url}: {told}")
            _log.warning("%s: %s: %s; it is sent again", self._work.name, self._url, told)
            self._work.ends.wait(_AGAIN_AFTER_S)

    def _sent(self, body: bytes) -> str | None:
        """Why it has to be sent again; raises `RecordRefused` for what will never be taken."""
        try:
            request = Request(self._url, body, self._headers, method="POST")
            with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as reply:
                answer = json.loads(reply.read())
        except HTTPError as error:
            with error:
                if error.code in _ASKS_FOR_PATIENCE:
                    return f"answers {error.code}"
            raise RecordRefused(f"{self._url} answers {error.code}") from None
        except (URLError, OSError) as error:
            return f"does not answer: {system_reason(error)}"
        except ValueError:
            raise RecordRefused(f"{self._url} answers with no JSON") from None
        return self._judged(answer)

    def _judged(self, answer: Any) -> str | None:
        items = [next(iter(item.values())) for item in answer.get("items", [])] if isinstance(answer, dict) else []
        failed = [item for item in items if int(item.get("status", 200)) >= 300]
        # What is deleted twice is gone.
        failed = [item for item in failed if not (item["status"] == _MISSING and "error" not in item)]
        if any(item["status"] in _ASKS_FOR_PATIENCE for item in failed):
            return "asks for patience"
        if failed and not self._work.tolerates_errors:
            reason = json.dumps(failed[0].get("error", failed[0]["status"]))
            raise RecordRefused(f"{self._url} refuses the document {failed[0].get('_id')}: {reason}")
        if failed:
            _log.warning("%s: %s refuses %d documents", self._work.name, self._url, len(failed))
        return None


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
