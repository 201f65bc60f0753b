"""Values that references to config providers have found, and texts without them.

A secret may be a part of what fails: of a URL, of an error that quotes it.  So each status and each line of the log has
the reference in place of the value.  Values of numbers, of choices and of true and false are no secrets, and stay.

Owns what is replaced.  A text that is shown by Java, beside Python's log, must not have a value to begin with.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.connectors.declared.secret_texts import parameter_names_a_secret
from pybroker.connectors.state.worker_settings import Found

# A shorter value is replaced where it is a word of its own: else one letter would spoil all lines.
_EVERYWHERE_FROM: Final = 8
_OPEN_TYPES: Final = frozenset({KeyType.BOOLEAN, KeyType.INT, KeyType.LONG})
_PASSWORD_OF_URL: Final = re.compile(r"://[^/@]*:([^/@]*)@")


class HiddenValues:
    """What references of connectors have found so far.  May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._declared: dict[str, str] = {}
        self._expression: re.Pattern[str] | None = None

    def add(self, found: Iterable[Found], keys: Sequence[Key]) -> None:
        """What the references of a connector have found, whose kind has these keys."""
        open_keys = {key.name for key in keys if key.type in _OPEN_TYPES or key.one_of}
        new = {
            part: each.declared for each in found if each.key not in open_keys for part in _parts(each.value) if part
        }
        with self._lock:
            if new.keys() <= self._declared.keys():
                return
            self._declared |= new
            longest_first = sorted(self._declared, key=len, reverse=True)
            self._expression = re.compile("|".join(map(_expression, longest_first)))

    def told(self, text: str) -> str:
        """The text with references in place of what they have found."""
        expression = self._expression
        return text if expression is None else expression.sub(lambda match: self._declared[match[0]], text)

    @contextmanager
    def kept_from_log(self) -> Iterator[None]:
        """Have the log's handlers of now write no value, whatever logger a line is from."""
        hides = _Hides(self)
        handlers = list(logging.getLogger().handlers)
        for handler in handlers:
            handler.addFilter(hides)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(hides)


class _Hides(logging.Filter):
    def __init__(self, values: HiddenValues) -> None:
        super().__init__()
        self._values = values

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._values.told(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None:
            # A formatter takes this text in place of its own.
            record.exc_text = self._values.told("".join(traceback.format_exception(record.exc_info[1])).rstrip())
        return True


def _parts(value: str) -> Iterator[str]:
    """The value, also without a newline at its end, and of a URL what an error may quote without the rest."""
    yield value
    yield value.strip()
    if "://" not in value:
        return
    _, _, query = value.partition("?")
    yield query
    for name, _, text in (each.partition("=") for each in query.split("&")):
        if parameter_names_a_secret(name):
            yield text
            yield unquote(text)
    if (found := _PASSWORD_OF_URL.search(value)) is not None:
        yield found[1]


def _expression(value: str) -> str:
    text = re.escape(value)
    return text if len(value) >= _EVERYWHERE_FROM else rf"(?<![A-Za-z0-9]){text}(?![A-Za-z0-9])"
