"""Format strings, delimiters and the JSON envelope of produce and consume."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cli.records.record_format import Header, compile_format, from_json, to_json, unescape


@dataclass
class Consumed:
    """A consumed record as the client library shapes it."""

    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: list[Header] = field(default_factory=list)
    topic: str = "flights"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_700_000_000_000


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("%s", b"value"),
        ("%t/%p@%o %T\\n", b"flights/3@42 1700000000000\n"),
        ("%k=%s", b"key=value"),
        ("%K:%S", b"3:5"),
        ("%h", b"a=1,b=NULL"),
        ("%R%s", b"\0\0\0\x05value"),
        ("100%%\\x41\\t\\\\", b"100%A\t\\"),
        ("", b""),
        ("plain é", "plain é".encode()),
    ],
)
def test_every_token_prints_its_part_of_the_record(form: str, line: bytes) -> None:
    assert compile_format(form)(Consumed(headers=[("a", b"1"), ("b", None)])) == line


def test_nulls_print_as_nothing_with_length_minus_one() -> None:
    assert compile_format("[%k][%s]%K,%S,%R")(Consumed(key=None, value=None)) == b"[][]-1,-1,\xff\xff\xff\xff"


@pytest.mark.parametrize("form", ["%z", "%", "\\q", "tail\\"])
def test_unknown_tokens_and_escapes(form: str) -> None:
    if form in {"%", "tail\\"}:
        # Nothing follows that could be a token: the character stands for itself, as in printf of most shells.
        assert compile_format(form)(Consumed()) == form.encode()
    else:
        with pytest.raises(ValueError, match="unknown"):
            compile_format(form)


def test_delimiters_take_escapes_and_leave_percent_signs_alone() -> None:
    assert unescape("\\t") == b"\t"
    assert unescape("\\x00%s:\\n") == b"\0%s:\n"


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3),
)
def test_the_json_envelope_gives_the_same_bytes_back(
    key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    line = to_json(Consumed(key=key, value=value, headers=headers))
    assert line.count(b"\n") == 1
    record = from_json(line)
    assert (record.key, record.value, record.headers) == (key, value, headers)
    assert (record.partition, record.timestamp_ms) == (3, 1_700_000_000_000)


def test_a_value_that_is_an_object_is_produced_as_json() -> None:
    record = from_json(b'{"value": {"a": [1, "\\u00e9"]}}')
    assert record.value is not None
    assert json.loads(record.value) == {"a": [1, "é"]}
    assert (record.key, record.headers, record.partition, record.timestamp_ms) == (None, [], None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"value_base64": "%"}',
        b'{"value_base64": 7}',
        b'{"partition": -1}',
        b'{"partition": true}',
        b'{"timestamp": "now"}',
        b'{"headers": [7]}',
        b'{"headers": 5}',
        b'{"headers": {"key": "a", "value": "b"}}',
        b"[" * 5000,
        b'{"timestamp": 9223372036854775808}',
        b'{"timestamp": 1' + b"0" * 5000 + b"}",
        b'{"partition": 2147483648}',
        b'{"headers": [{"value": "x"}]}',
    ],
)
def test_lines_that_are_no_record_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w+ "):
        from_json(line)
