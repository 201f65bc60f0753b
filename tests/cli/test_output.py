"""Results on stdout: tables, JSON, closed pipes; and how a command fails."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from pybroker.cli.terminal.failure import (
    CommandFailed,
    OutputClosed,
    describe_error,
    describe_error_code,
    is_expected,
    named_error,
)
from pybroker.cli.terminal.output import Output, plain_cell, remark, show_duration, show_size, show_time


class ClosedPipe(io.BytesIO):
    """A stdout whose reader has gone."""

    def write(self, _data: object) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_off_a_terminal_a_table_is_tab_separated_lines() -> None:
    stream = io.BytesIO()
    Output(stream=stream).table(("NAME", "N"), [("é", 1), (None, True), ("", [1, 2])])
    assert stream.getvalue().decode() == "NAME\tN\né\t1\n-\tyes\n-\t1,2\n"


class Terminal(io.BytesIO):
    """A stdout that somebody looks at."""

    def isatty(self) -> bool:
        return True


LONG_NAME = [("n" * 30, 7, None), ("m", 12, 3)]


def shown(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    columns: Sequence[str] = ("NAME", "OFFSET", "LAG"),
    rows: Sequence[Sequence[object]] = LONG_NAME,
) -> list[str]:
    """What a table looks like on a terminal so wide, without colours and blank lines."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    Output(stream=stream).table(columns, rows)
    text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue().decode())
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_no_name_makes_rows_of_its_own_or_turns_the_terminal_round() -> None:
    assert plain_cell("topic\n*\tUser:root") == "topic\\n*\\tUser:root"
    assert plain_cell("\x1b[2J") == "\\x1b[2J"
    assert plain_cell(["a\u202eb", "ü b", "\u0430dmin"]) == "a\\u202eb,ü b,\u0430dmin"


def test_a_table_that_fits_the_terminal_has_one_line_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, _, first, second = shown(monkeypatch, 80)
    assert heading.split() == ["NAME", "OFFSET", "LAG"]
    assert first.split() == ["n" * 30, "7", "-"]
    assert second.split() == ["m", "12", "3"]
    # Numbers and what stands for none end in the same columns.
    assert len(heading) == len(first) == len(second)


@pytest.mark.parametrize("width", [80, 5])
def test_heading_is_shown_as_it_is_and_gives_no_commands(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """A query's columns have the names that records give them."""
    lines = shown(monkeypatch, width, ("[/b]", "[red]x", "\x1b[2J"), [(1, 2, 3)])
    assert [word for line in lines for word in line.split() if word in ("[/b]", "[red]x", "\\x1b[2J")] == [
        "[/b]",
        "[red]x",
        "\\x1b[2J",
    ]


def test_on_a_narrow_terminal_no_value_is_cut_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [line.split() for line in shown(monkeypatch, 30)] == [
        ["NAME", "n" * 30],
        ["OFFSET", "7"],
        ["LAG", "-"],
        ["NAME", "m"],
        ["OFFSET", "12"],
        ["LAG", "3"],
    ]


def test_an_empty_table_says_so_on_a_terminal_and_has_its_heading_in_a_pipe() -> None:
    told, stream = Terminal(), io.BytesIO()
    Output(stream=told).table(("NAME", "LAG"), [])
    Output(stream=told).table(("NAME", "LAG"), [], none="(no topics)")
    Output(stream=stream).table(("NAME", "LAG"), [])
    assert (told.getvalue(), stream.getvalue()) == (b"(none)\n(no topics)\n", b"NAME\tLAG\n")


@pytest.mark.parametrize(
    ("heading", "width", "expected"),
    [
        ("REASON", 60, ["west  a sentence that is longer than what is left of the", "      terminal's line"]),
        ("VALUE", 60, ["VALUE  a sentence that is longer than what is left of the terminal's line"]),
        ("REASON", 30, ["REASON  a sentence that is longer than what is left of the terminal's line"]),
    ],
    ids=["sentences", "values are copied", "no room for words"],
)
def test_sentences_at_the_end_of_a_table_are_broken_between_words_alone(
    monkeypatch: pytest.MonkeyPatch, heading: str, width: int, expected: list[str]
) -> None:
    text = "a sentence that is longer than what is left of the terminal's line"
    lines = shown(monkeypatch, width, ("LINK", heading), [("west", text)])
    assert [line.removeprefix(" ") for line in lines[-len(expected) :]] == expected


def test_sentence_is_broken_between_words_on_a_terminal_and_nowhere_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "ok      rights: on topics: describe-configs, read"
    told, stream = Terminal(), io.BytesIO()
    Output(stream=told).sentence(text, indent=8)
    Output(stream=stream).sentence(text, indent=8)
    assert told.getvalue() == b"ok      rights: on topics:\n        describe-configs, read\n"
    assert stream.getvalue() == f"{text}\n".encode()


def test_times_and_durations_are_for_people() -> None:
    assert show_time(-1) is None
    assert show_time(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert show_time(2**62) == str(2**62)
    durations = {0: "0ms", 999: "999ms", 59_999: "59s", 60_000: "1m", 3_661_000: "1h1m", 90_000_000: "1d1h"}
    assert {ms: show_duration(ms) for ms in durations} == durations
    assert show_duration(None) is None


def test_json_in_a_pipe_is_one_line() -> None:
    stream = io.BytesIO()
    Output(as_json=True, stream=stream).result([{"a": "é"}], ("A",), [("é",)])
    assert stream.getvalue() == '[{"a": "é"}]\n'.encode()
    assert json.loads(stream.getvalue()) == [{"a": "é"}]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, None),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (12_345_678_901, "12.3 GB"),
        (2**63 - 1, "9.2 EB"),
    ],
)
def test_size_is_shown_in_units_of_a_thousand(size: int | None, shown: str | None) -> None:
    assert show_size(size) == shown


def test_a_reader_that_has_gone_is_told_apart_from_other_errors() -> None:
    with pytest.raises(OutputClosed):
        Output(stream=ClosedPipe()).line("x")
    with pytest.raises(OutputClosed):
        Output(stream=ClosedPipe()).flush()


def test_remark_gives_no_commands_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    remark("topic \x1b[2J\u202e: no\nsecond line, é")
    assert capsys.readouterr().err == "topic \\x1b[2J\\u202e: no\nsecond line, é\n"


def test_errors_are_one_line_with_kafkas_name() -> None:
    assert describe_error(CommandFailed("no such thing")) == "no such thing"
    exists, timed_out = (KafkaException(KafkaError(code)) for code in (36, KafkaError._TIMED_OUT))
    assert describe_error(FileNotFoundError(2, "No such file or directory", "a.txt")) == "a.txt: no such file"
    assert describe_error(PermissionError(13, "Permission denied", "a.txt")) == "a.txt: permission denied"
    assert describe_error(OSError("no more")) == "OSError: no more"
    assert describe_error(exists) == "TOPIC_ALREADY_EXISTS: A topic of that name exists already."
    assert describe_error(timed_out) == "Timed out"
    assert describe_error_code(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert describe_error_code(128) == "INVALID_REGULAR_EXPRESSION"
    assert describe_error_code(12345) == "error code 12345"
    assert named_error(36, "Topic 't' already exists.") == "TOPIC_ALREADY_EXISTS: Topic 't' already exists."
    assert named_error(12345) == "error code 12345"
    assert is_expected(timed_out)
    assert not is_expected(TypeError())
