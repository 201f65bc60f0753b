"""Regular expressions of subscriptions, and the hash that notices changed topics."""

from __future__ import annotations

import sys
import time

import pytest

from pybroker.coordinators.group.subscriptions import (
    InvalidRegularExpression,
    compile_regex,
    group_metadata_hash,
    topic_hash,
)
from pybroker.limits import REGULAR_EXPRESSION_BYTES_MAX

TOPIC_ID = bytes(range(16))


def test_a_name_must_match_as_a_whole() -> None:
    assert compile_regex("a|ab").matches(["a", "ab", "abc", "xab", ""]) == {"a", "ab"}


def test_the_empty_expression_matches_no_topic() -> None:
    assert compile_regex("").matches(["a", "b"]) == set()


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
    assert str(refusal.value) == f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."


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
    assert regex.matches(["a" * 249]) == set()
    # Backtracking would take ages.
    assert time.process_time() - begin < 5


def test_without_the_library_only_expressions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidRegularExpression, match="runs without the google-re2 package"):
        compile_regex("a.*")
    assert topic_hash(TOPIC_ID, "orders", [[]])


# Answers of Apache Kafka 4.3.1 (test_assignors_against_kafka asks it anew).
@pytest.mark.parametrize(
    ("name", "racks", "kafkas"),
    [
        ("t", [[]], 3950613343815327311),
        ("orders.eu", [["rack-1"], ["rack-2", "rack-1"]], 2933027616447355590),
        ("x" * 249, [["a", "b", "b"]] * 10, 3330761734266896193),
    ],
)
def test_the_hash_of_a_topic_is_kafkas(name: str, racks: list[list[str]], kafkas: int) -> None:
    assert topic_hash(TOPIC_ID, name, racks) == kafkas


@pytest.mark.parametrize(
    ("hashes", "kafkas"),
    [
        ({}, 0),
        ({"a": 1}, 3439722301264460078),
        ({"a": 1, "b": -2}, 1559002273794826001),
        ({"b": 3, "a": -(2**63), "c": 2**63 - 1}, 7471545271790073230),
        ({f"t{i}": i * 7919 for i in range(40)}, 2587499329099430084),
    ],
)
def test_the_hash_of_a_groups_topics_is_kafkas(hashes: dict[str, int], kafkas: int) -> None:
    assert group_metadata_hash(hashes) == kafkas


def test_the_hash_does_not_depend_on_the_order_of_racks_or_topics() -> None:
    assert topic_hash(TOPIC_ID, "t", [["b", "a"]]) == topic_hash(TOPIC_ID, "t", [["a", "b"]])
    assert group_metadata_hash({"a": 1, "b": 2}) == group_metadata_hash({"b": 2, "a": 1})


def test_the_hash_tells_every_change_of_a_topic() -> None:
    hashes = [
        topic_hash(TOPIC_ID, "t", [["a"]]),
        topic_hash(TOPIC_ID[::-1], "t", [["a"]]),
        topic_hash(TOPIC_ID, "u", [["a"]]),
        topic_hash(TOPIC_ID, "t", [["a"], ["a"]]),
        topic_hash(TOPIC_ID, "t", [["b"]]),
        topic_hash(TOPIC_ID, "t", [["a", "a"]]),
        topic_hash(TOPIC_ID, "t", [[]]),
    ]
    assert len(set(hashes)) == len(hashes)
