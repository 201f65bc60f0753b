"""JSON whose numbers keep their digits, which floats would round; and the keys that records have of its fields.

Owns reading and writing.  Pure: what comes is text, and what is read is written as the same text but for the spaces
between, and escapes.  What is no JSON, as NaN, is refused, and so is what is nested too deep for Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from pybroker.connectors.declared.json_constants import refuse_constant


class NestedTooDeep(ValueError):
    """A value in a value, some hundred times."""

    def __init__(self) -> None:
        super().__init__("it is nested too deep")


class Digits(Decimal):
    """A number with a fraction or an exponent: it compares as it is, and ``text`` is how it was written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Digits:
        """Raises ValueError for an exponent that no Decimal has."""
        try:
            made = super().__new__(cls, text)
        except InvalidOperation:
            raise ValueError(f"no number: {text}") from None
        made.text = text
        return made


def parsed(text: str | bytes) -> Any:
    """The value of a text; ValueError where it is no JSON."""
    try:
        return json.loads(text, parse_float=Digits, parse_constant=refuse_constant)
    except RecursionError:
        raise NestedTooDeep from None


def json_text(value: Any) -> str:
    """The text of a value that was `parsed`, or is made of such; raises `NestedTooDeep`."""
    try:
        return _text(value)
    except RecursionError:
        raise NestedTooDeep from None


def _text(value: Any) -> str:
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{json.dumps(name)}:{_text(each)}" for name, each in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_text(each) for each in value]) + "]"
    return json.dumps(value)


def key_of(value: Mapping[str, Any], fields: Sequence[str]) -> bytes | None:
    """The key of a record: a text as it is, any other value of one field as JSON, several fields as an object."""
    if len(fields) != 1:
        return json_text({name: value.get(name) for name in fields}).encode()
    found = value.get(fields[0])
    if found is None:
        return None
    # JSON may have half of a pair of surrogates, of which UTF-8 has no form.
    return found.encode(errors="surrogatepass") if isinstance(found, str) else json_text(found).encode()
