"""Regular expressions of clients: RE2's dialect, Kafka's words, and bounds."""

from __future__ import annotations

import sys
import time

import pytest

from pybroker.coordinators.regular_expressions import (
    REGULAR_EXPRESSION_BYTES_MAX,
    InvalidRegularExpression,
    compile_regex,
)


def test_a_name_must_match_as_a_whole() -> None:
    regex = compile_regex("a|ab")
    assert [name for name in ("a", "ab", "abc", "xab", "") if regex.is_match(name)] == ["a", "ab"]


def test_the_empty_expression_matches_no_name() -> None:
    assert not compile_regex("").is_match("a")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("\\", "trailing backslash at end of expression"),
        ("\\y", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
    ],
)
def test_an_invalid_expression_is_refused_in_kafkas_words(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRegularExpression) as refusal:
        compile_regex(pattern)
    assert str(refusal.value) == f"`{pattern}` is not a valid regular expression: {reason}."


@pytest.mark.parametrize("pattern", ["(((a{100}){100}){100})", "[\\p{L}]{1000}", "(.{500}){2}|" * 20])
def test_an_expression_that_would_compile_to_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        compile_regex(pattern)


def test_an_expression_that_is_too_long_is_refused_without_repeating_it() -> None:
    compile_regex("a" * 1000)
    with pytest.raises(InvalidRegularExpression) as refusal:
        compile_regex("ä" * REGULAR_EXPRESSION_BYTES_MAX)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("pattern", ["(a+a+)+b", "(a|aa)+b", "(.*a){25}b", "((a{0,30}){0,30})b"])
def test_no_expression_takes_exponential_time(pattern: str) -> None:
    regex = compile_regex(pattern)
    begin = time.process_time()
    assert not regex.is_match("a" * 249)
    # Backtracking would take ages.
    assert time.process_time() - begin < 5


def test_without_the_library_only_expressions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidRegularExpression, match="runs without the google-re2 package"):
        compile_regex("a.*")
