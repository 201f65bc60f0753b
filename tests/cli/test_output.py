"""Results on stdout: tables, JSON, closed pipes; and how a command fails."""

from __future__ import annotations

import io
import json

import pytest

from pybroker.cli.failure import CommandFailed, OutputClosed, describe_error, describe_error_code, is_expected
from pybroker.cli.output import Output


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


def test_json_in_a_pipe_is_one_line() -> None:
    stream = io.BytesIO()
    Output(as_json=True, stream=stream).result([{"a": "é"}], ("A",), [("é",)])
    assert stream.getvalue() == '[{"a": "é"}]\n'.encode()
    assert json.loads(stream.getvalue()) == [{"a": "é"}]


def test_a_reader_that_has_gone_is_told_apart_from_other_errors() -> None:
    with pytest.raises(OutputClosed):
        Output(stream=ClosedPipe()).line("x")
    with pytest.raises(OutputClosed):
        Output(stream=ClosedPipe()).flush()


def test_errors_are_one_line_with_kafkas_name() -> None:
    from kafka.errors import KafkaTimeoutError, TopicAlreadyExistsError

    assert describe_error(CommandFailed("no such thing")) == "no such thing"
    assert "TopicAlreadyExistsError" in describe_error(TopicAlreadyExistsError("t"))
    assert describe_error(KafkaTimeoutError()) == "KafkaTimeoutError"
    assert describe_error_code(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert is_expected(KafkaTimeoutError())
    assert not is_expected(TypeError())
