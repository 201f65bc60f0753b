"""Regular expressions of Java's find the topics that they find in Java, or are refused."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.pipeline.topics.directory import chosen
from pybroker.pipeline.topics.source_options import Subscription, read_source_options
from pybroker.pipeline.topics.topic_partitions import TopicPartition
from pybroker.pipeline.topics.topic_patterns import translated

NAMES = ["orders", "Orders-2", "orders.eu", "a", "b", "aa", "ab1", "x_y", "ORDERS", "7", "-", ".", "_", "a]b", "m&n"]
# Those that a topic can have.
TOPICS = [name for name in NAMES if not set(name) & set("]&")]


def found(pattern: str) -> list[str]:
    return [name for name in TOPICS if re.search(translated(pattern), name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^orders$", ["orders"]),
        ("rder", ["orders", "Orders-2", "orders.eu"]),  # anywhere in the name, as Spark's connector has it
        (r"\Qorders.\Eeu", ["orders.eu"]),
        (r"^(?i)orders$", ["orders", "ORDERS"]),
        (r"^o(?i)RDERS$|^a$", ["orders", "a"]),
        (r"^[a-z&&[^b-z]]+$", ["a", "aa"]),
        (r"^[^a-z&&[^b-z]]$", ["b", "7", "-", ".", "_"]),
        (r"^[a[x-z]]$", ["a"]),
        (r"^\p{Upper}", ["Orders-2", "ORDERS"]),
        (r"^\P{L}$", ["7", "-", ".", "_"]),
        (r"^\p{IsAlphabetic}{1}$", ["a", "b"]),
        (r"^(?<twice>.)\k<twice>$", ["aa"]),
        (r"^(a)\1$", ["aa"]),
        (r"^a++b", ["ab1"]),
        (r"(?!orders).*eu\z", ["orders.eu"]),
        (r"^[\w&&\D]+\d\Z", ["ab1"]),
        (r"^[\x{61}-b]$", ["a", "b"]),
    ],
)
def test_a_pattern_of_javas_finds_what_it_finds_in_java(pattern: str, names: list[str]) -> None:
    assert found(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("orders(", "a parenthesis is not closed"),
        ("orders)", "a parenthesis is closed that none has opened"),
        ("[a", "a bracket is not closed"),
        ("a{b", "a brace begins no repetition"),
        (r"(?<=a|bc)d", "look-behind requires fixed-width pattern"),
        (r"(?P<name>a)", r"\(\?P< begins no group"),
        (r"(?x)a b", "the flag x is not served"),
        (r"\p{IsGreek}", "the property IsGreek is not served"),
        (r"\Ga", r"\\G is not served"),
        (r"(a)\2", "there is no group 2 before its reference"),
        ("[a&&b[c]]", "parts of && are one class"),
        ("*", "nothing to repeat"),
        ("7(?i){2}", "a quantifier follows flags"),
        ("[b-a]", "b-a is no range"),
    ],
)
def test_what_cannot_be_read_as_java_reads_it_is_refused_in_one_sentence(pattern: str, why: str) -> None:
    options = {"kafka.bootstrap.servers": "h:9092", "subscribePattern": pattern}
    with pytest.raises(ValueError, match=f"^option subscribePattern: the regular expression .*: {why}") as refused:
        read_source_options(options, streaming=True)
    assert "\n" not in str(refused.value)


def test_a_pattern_finds_a_topic_anywhere_in_its_name() -> None:
    known = {"orders": [0, 1], "reorders": [0], "others": [0]}
    partitions = chosen(Subscription(pattern=translated("orders")), known)
    assert partitions == {TopicPartition(*at) for at in (("orders", 0), ("orders", 1), ("reorders", 0))}


PIECES = [
    r"a",
    r"b",
    r"O",
    r"r",
    r".",
    r"^",
    r"$",
    r"*",
    r"+",
    r"?",
    r"|",
    r"(",
    r")",
    r"(?:",
    r"(?i)",
    r"(?-i)",
    r"(?i:",
    r"(?=",
    r"(?!",
    r"(?>",
    r"(?<n>",
    r"\k<n>",
    r"\1",
    r"\12",
    r"[",
    r"]",
    r"[^",
    r"&&",
    r"-",
    r"&",
    r"\w",
    r"\D",
    r"\p{Lower}",
    r"\P{Lu}",
    r"\pN",
    r"\b",
    r"\B",
    r"\A",
    r"\z",
    r"\Z",
    r"\Q",
    r"\E",
    r"{2}",
    r"{0,1}",
    r"{1,}",
    r"\x61",
    r"\.",
    r"_",
    r"7",
    r"1",
]


@pytest.mark.jvm(needs="spark")
def test_whatever_is_not_refused_is_read_as_java_reads_it(spark: Any) -> None:
    java = spark.sparkContext._jvm.java.util.regex

    @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join))
    def check(pattern: str) -> None:
        try:
            ours = re.compile(translated(pattern))
        except ValueError:
            return
        try:
            theirs = java.Pattern.compile(pattern)
        except Exception:  # PySpark's or py4j's
            return  # who writes it is told by Java, and finds something or nothing here
        for name in TOPICS:
            assert bool(ours.search(name)) == theirs.matcher(name).find(), (pattern, ours.pattern, name)

    check()
