"""HttpSource: a list of JSON values that a server gives, asked for again and again.

A value is new where its ``offset.field`` is greater than the last one's.  The query's parameter ``offset.parameter``
tells the server the last offset.  Without a field every reply is written whole.

Owns the request, which follows no redirection: a secret stays with the server that it is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun
from pybroker.connectors.state.state_records import canonical
from pybroker.operating_system import system_reason

_TIMEOUT_S: Final = 30.0
_BYTES_MAX: Final = 64 * 1024 * 1024
_OFFSET: Final = "offset"


class ReplyRefused(RuntimeError):
    """A server does not give what the configuration says."""


def start(work: Work) -> Run:
    """Start it; what is wrong ends the run."""
    return PolledRun(work, lambda offsets: _HttpPoller(work, offsets))


class _HttpPoller:
    def __init__(self, work: Work, offsets: Mapping[str, Mapping[str, Any]]) -> None:
        self._url: str = work.value("url")
        self._pointer = [part for part in str(work.value("records.path")).split(".") if part]
        self._field: str = work.value("offset.field")
        self._parameter: str = work.value("offset.parameter")
        self._keys: list[str] = work.value("key.fields")
        self._headers = {"Accept": "application/json"}
        if authorization := work.value("http.authorization"):
            self._headers["Authorization"] = authorization
        self._partition = work.partition
        self._last: Any = offsets.get(canonical(self._partition), {}).get(_OFFSET)

    def poll(self) -> Polled:
        """See `Poller`."""
        found = [each for each in self._listed(self._asked()) if self._is_new(each)]
        if not found:
            return Polled()
        polled = Polled([(self._key(each), json.dumps(each, separators=(",", ":")).encode()) for each in found])
        if self._field:
            self._last = max(each[self._field] for each in found)
            polled.offsets.append((self._partition, {_OFFSET: self._last}))
        return polled

    def close(self) -> None:
        """See `Poller`."""

    def _asked(self) -> Any:
        url = self._url
        if self._parameter and self._last is not None:
            url += ("&" if "?" in url else "?") + urlencode({self._parameter: self._last})
        try:
            with build_opener(_NoRedirect).open(Request(url, headers=self._headers), timeout=_TIMEOUT_S) as reply:
                raw = reply.read(_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                raise ReplyRefused(f"{self._url} answers {error.code}") from None
        except (URLError, OSError) as error:
            raise ReplyRefused(f"{self._url} does not answer: {system_reason(error)}") from None
        if len(raw) > _BYTES_MAX:
            raise ReplyRefused(f"{self._url} answers with more than {_BYTES_MAX} bytes")
        try:
            return json.loads(raw)
        except ValueError:
            raise ReplyRefused(f"{self._url} answers with no JSON") from None

    def _listed(self, document: Any) -> list[Any]:
        for part in self._pointer:
            if not isinstance(document, dict) or part not in document:
                raise ReplyRefused(f"the reply of {self._url} has no {'.'.join(self._pointer)}")
            document = document[part]
        return document if isinstance(document, list) else [document]

    def _is_new(self, value: Any) -> bool:
        if not self._field:
            return True
        if not isinstance(value, dict) or not isinstance(value.get(self._field), (int, float, str)):
            raise ReplyRefused(f"a value of {self._url} has no {self._field}, a number or a text")
        try:
            return self._last is None or bool(value[self._field] > self._last)
        except TypeError:
            raise ReplyRefused(f"{self._field} of {self._url} is a number here and a text there") from None

    def _key(self, value: Any) -> bytes | None:
        if not self._keys or not isinstance(value, dict):
            return None
        if len(self._keys) == 1:
            found = value.get(self._keys[0])
            return None if found is None else str(found).encode()
        return json.dumps({name: value.get(name) for name in self._keys}, separators=(",", ":")).encode()


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
