"""How produce turns its input into records."""

from __future__ import annotations

import io

import pytest
import typer

from pybroker.cli.commands.produce import READ_CHUNK_BYTES, LineFormat, parse_headers, parse_line, split_lines
from pybroker.cli.records.record_format import NewRecord
from pybroker.cli.terminal.failure import CommandFailed


def test_every_line_is_a_record_and_an_unfinished_last_one_counts() -> None:
    assert list(split_lines(io.BytesIO(b"a\n\nb\nc"), b"\n", 10)) == [b"a", b"", b"b", b"c"]
    assert list(split_lines(io.BytesIO(b"a\n"), b"\n", 10)) == [b"a"]
    assert list(split_lines(io.BytesIO(b""), b"\n", 10)) == []


def test_a_delimiter_across_two_reads_is_found() -> None:
    first = b"x" * (READ_CHUNK_BYTES - 1)
    assert list(split_lines(io.BytesIO(first + b"||y||"), b"||", 2 * READ_CHUNK_BYTES)) == [first, b"y"]


@pytest.mark.parametrize("delimiter", [b"|", b"||", b"|a|", b"aa"])
def test_lines_are_the_same_however_their_bytes_come(delimiter: bytes) -> None:
    class Bytewise(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(1)

    data = b"|a||aa|a|a|||aaa||b|a|c"
    expected = data.split(delimiter)
    assert list(split_lines(Bytewise(data), delimiter, 100)) == expected


def test_an_input_without_a_delimiter_ends_at_a_bound_and_is_searched_once() -> None:
    class Endless:
        """Counts what was read, a byte at a time: were it searched anew for each, it would never end."""

        count = 0

        def read1(self, _size: int, /) -> bytes:
            self.count += 1
            return b"x"

    endless = Endless()
    with pytest.raises(CommandFailed, match="no delimiter comes within 1000000 bytes"):
        list(split_lines(endless, b"\n", 1_000_000))
    assert endless.count == 1_000_001


def test_the_key_ends_at_the_first_delimiter() -> None:
    form = LineFormat(key_delimiter=b":")
    assert parse_line(b"k:v:w", form) == NewRecord(b"v:w", key=b"k")
    assert parse_line(b"v", form) == NewRecord(b"v")


def test_a_fixed_key_is_overridden_by_one_in_the_line() -> None:
    form = LineFormat(key=b"fixed", key_delimiter=b":")
    assert parse_line(b"k:v", form).key == b"k"
    assert parse_line(b"v", form).key == b"fixed"


def test_empty_parts_are_null_only_when_asked() -> None:
    assert parse_line(b"k:", LineFormat(key_delimiter=b":")).value == b""
    tombstone = parse_line(b"k:", LineFormat(key_delimiter=b":", empty_as_null=True))
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert parse_line(b":v", LineFormat(key_delimiter=b":", empty_as_null=True)).key is None


def test_headers_of_the_command_come_before_those_of_a_json_line() -> None:
    form = LineFormat(as_json=True, headers=parse_headers(["a=1", "a=x=y"]), partition=4)
    record = parse_line(b'{"value": "v", "partition": 1, "headers": [{"key": "b", "value": "2"}]}', form)
    assert record.headers == [("a", b"1"), ("a", b"x=y"), ("b", b"2")]
    assert record.partition == 4


def test_a_header_without_a_value_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="--header must be KEY=VALUE"):
        parse_headers(["a"])
