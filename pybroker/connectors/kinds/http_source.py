"""HttpSource: a list of JSON values that a server gives, asked for again and again.

A value is new where its ``offset.field`` is greater than the last one's.  The query's parameter ``offset.parameter``
tells the server the last offset.  Without a field every reply is written whole, one at each interval.

Numbers compare as numbers and texts as texts.  So texts that are numbers of several lengths are refused, whatever is
tolerated: of them "10" would stand before "9", and would never be new.

Owns what of a reply is new, and what of it is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import urlencode

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.exact_json import Digits, NestedTooDeep, json_text, key_of, parsed
from pybroker.connectors.kinds.http_calls import CallRefused, body_of, waited_for
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun
from pybroker.connectors.state.state_records import canonical

_TIMEOUT_S: Final = 30.0
_OFFSET: Final = "offset"


class ReplyRefused(RuntimeError):
    """A server does not give what the configuration says."""


class _ValueRefused(Exception):
    """A value of a reply cannot be told from those before, or cannot be written."""


def start(work: Work) -> Run:
    """Start it; what is wrong ends the run."""
    return PolledRun(work, lambda offsets: _HttpPoller(work, offsets))


class _HttpPoller:
    def __init__(self, work: Work, offsets: Mapping[str, Mapping[str, Any]]) -> None:
        self._work = work
        self._address: str = work.value("url").partition("#")[0]
        # As it stands in errors, statuses and the log: what a reference finds may not.
        self._url = work.shown("url")
        self._pointer = [part for part in str(work.value("records.path")).split(".") if part]
        self._field: str = work.value("offset.field")
        self._parameter: str = work.value("offset.parameter")
        self._keys: list[str] = work.value("key.fields")
        self._headers = {"Accept": "application/json"}
        if authorization := work.value("http.authorization"):
            self._headers["Authorization"] = authorization
        self._partition = work.partition
        self._last: Any = offsets.get(canonical(self._partition), {}).get(_OFFSET)
        # Those of the last reply: a server gives them again and again.
        self._refused: set[str] = set()

    def poll(self) -> Polled:
        """See `Poller`."""
        listed = self._listed(waited_for(self._work, self._url, self._asked))
        # Without a field a reply that is asked for at once is the same one.
        polled = Polled(has_more=bool(self._field))
        found = self._new(listed, polled) if self._field else listed
        for each in found:
            try:
                key = key_of(each, self._keys) if self._keys and isinstance(each, dict) else None
                polled.records.append((key, json_text(each).encode()))
            except NestedTooDeep as error:
                reason = f"a value of {self._url} cannot be written: {error}"
                if not self._work.tolerates_errors:
                    raise ReplyRefused(reason) from None
                polled.passed_over, polled.reason = polled.passed_over + 1, reason
        if self._field and found:
            self._last = max(each[self._field] for each in found)
            # A float of the topic of offsets would round it.
            told = self._last.text if isinstance(self._last, Digits) else self._last
            polled.offsets.append((self._partition, {_OFFSET: told}))
        return polled

    def close(self) -> None:
        """See `Poller`."""

    def _asked(self) -> Any:
        url = self._address
        if self._parameter and self._last is not None:
            url += ("&" if "?" in url else "?") + urlencode({self._parameter: self._last})
        try:
            return parsed(body_of(url, self._headers, _TIMEOUT_S))
        except CallRefused as error:
            raise ReplyRefused(f"{self._url} {error}") from None
        except ValueError as error:
            raise ReplyRefused(f"{self._url} answers with no JSON: {error}") from None

    def _listed(self, document: Any) -> list[Any]:
        for part in self._pointer:
            if not isinstance(document, dict) or part not in document:
                raise ReplyRefused(f"the reply of {self._url} has no {'.'.join(self._pointer)}")
            document = document[part]
        return document if isinstance(document, list) else [document]

    def _new(self, listed: Sequence[Any], polled: Polled) -> list[Any]:
        """The values behind the last offset; those that cannot be compared are noted where they are tolerated."""
        found: list[Any] = []
        refused: set[str] = set()
        texts: list[str] = []
        compared = self._last
        for value in listed:
            try:
                offset = self._offset_of(value)
                compared = _comparable(compared, offset, f"{self._field} of {self._url}")
            except _ValueRefused as error:
                if not self._work.tolerates_errors:
                    raise ReplyRefused(str(error)) from None
                refused.add(_known_by(value))
                polled.reason = str(error)
                continue
            if isinstance(offset, str):
                texts += [compared, offset]
            if self._last is None or offset > compared:
                found.append(value)
        self._check_lengths(texts)
        polled.passed_over = len(refused - self._refused)
        self._refused = refused
        return found

    def _offset_of(self, value: Any) -> int | Decimal | str:
        offset = value.get(self._field) if isinstance(value, dict) else None
        if not isinstance(offset, (int, Decimal, str)) or isinstance(offset, bool):
            raise _ValueRefused(f"a value of {self._url} has no {self._field}, a number or a text")
        return offset

    def _check_lengths(self, offsets: Iterable[str]) -> None:
        numbers = [each for each in offsets if each.isascii() and each.isdigit()]
        shortest, longest = min(numbers, key=len, default=""), max(numbers, key=len, default="")
        if len(shortest) != len(longest):
            raise ReplyRefused(
                f"{self._field} of {self._url} is a text that is a number: {longest} does not stand behind {shortest}, "
                "because texts compare by their characters.  Another field, or a number, tells what is new"
            )


def _comparable(last: Any, offset: int | Decimal | str, what: str) -> Any:
    """The last offset as the next one compares with it; the next one where there is none."""
    if last is None:
        return offset
    if isinstance(last, str) and not isinstance(offset, str):
        try:
            return Decimal(last)  # the topic of offsets has numbers with a fraction as texts
        except InvalidOperation:
            pass
    if isinstance(last, str) != isinstance(offset, str):
        raise _ValueRefused(f"{what} is a number here and a text there")
    return last


def _known_by(value: Any) -> str:
    """What tells a value that is passed over from another one."""
    try:
        return json_text(value)
    except NestedTooDeep as error:
        return str(error)
