"""JSON whose numbers keep their digits, and keys of its fields."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.connectors.kinds.exact_json import NestedTooDeep, json_text, key_of, parsed


@pytest.mark.parametrize(
    "text",
    [
        '{"id":12345678901234567.89,"n":1.10,"big":1E400,"small":1e-400}',
        "[1.0,-0.0,1e5,1E+05,12345678901234567890123456789]",
        '{"a":[{"b":null,"c":true},[],{}],"d":"\\u00e9\\n\\ud800"}',
        "0.30000000000000004",
        '"text"',
    ],
)
def test_what_is_read_is_written_as_it_came(text: str) -> None:
    assert json_text(parsed(text)) == text


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}', "1e99999999999999999999", "", "{", "01"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parsed(text)


@pytest.mark.parametrize("depth", [700, 100_000])
def test_what_is_nested_too_deep_is_refused_as_no_json_is(depth: int) -> None:
    """A text may be read that Python cannot write any more."""
    with pytest.raises(NestedTooDeep, match="nested too deep"):
        json_text(parsed("[" * depth + "]" * depth))
    assert issubclass(NestedTooDeep, ValueError)


def test_numbers_compare_by_all_their_digits() -> None:
    less, more = parsed("[12345678901234567.11, 12345678901234567.89]")
    assert less < more
    assert less > parsed("12345678901234567")
    assert parsed("1.50") == Decimal("1.5")


@pytest.mark.parametrize(
    ("row", "fields", "key"),
    [
        ('{"id":12345678901234567.89}', ["id"], b"12345678901234567.89"),
        ('{"id":12345678901234567.11}', ["id"], b"12345678901234567.11"),
        ('{"id":1.10}', ["id"], b"1.10"),
        ('{"id":7}', ["id"], b"7"),
        ('{"id":true}', ["id"], b"true"),
        ('{"id":"é"}', ["id"], "é".encode()),
        ('{"id":"\\ud800"}', ["id"], b"\xed\xa0\x80"),
        ('{"id":{"a":[1.0,null]}}', ["id"], b'{"a":[1.0,null]}'),
        ('{"id":null}', ["id"], None),
        ("{}", ["id"], None),
        ('{"a":1.10,"b":"x","c":0}', ["b", "a"], b'{"b":"x","a":1.10}'),
    ],
)
def test_keys_have_the_text_of_their_fields(row: str, fields: list[str], key: bytes | None) -> None:
    assert key_of(parsed(row), fields) == key


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_any_value_is_written_as_the_standard_library_does(value: object) -> None:
    text = json.dumps(value, separators=(",", ":"))
    assert json_text(parsed(text)) == text
