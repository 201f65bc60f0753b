"""Java's properties syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d", {"a": "b", "c": "d"}),
        ("  a \t= \tb  ", {"a": "b  "}),
        ("# comment\n! another\n\n   \na=1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=x\\", {"a": "x"}),
        ("a=x\\\n# no comment here", {"a": "x# no comment here"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\q\\", {"a": "\t\n\r\fq\\"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("log.dirs=/a,/b\n", {"log.dirs": "/a,/b"}),
    ],
)
def test_syntax_is_javas(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"a=\u"])
def test_malformed_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_properties(text)


@given(st.text(alphabet="ab=: \\\n\r#!u0\t"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ValueError:
        return
    assert all(isinstance(value, str) for value in properties.values())
