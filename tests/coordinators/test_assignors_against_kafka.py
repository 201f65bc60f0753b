"""Our assignors, hashes and regular expressions against the classes of Apache Kafka."""

from __future__ import annotations

from random import Random

import pytest

from pybroker.coordinators.group.assignors import ASSIGNORS, Assignor
from pybroker.coordinators.group.topic_hashes import group_metadata_hash, topic_hash
from pybroker.coordinators.regular_expressions import InvalidRegularExpression, compile_regex

from .assignor_specs import answer, ask_kafka, kafka_is_here, parsed_answer, question, random_spec

pytestmark = [pytest.mark.jvm, kafka_is_here]

SPECS = 2_000

PATTERNS = (
    *("", "a", "a.*", ".*", "a|b", "(a", "a)", "[a", "*", "a**", "a{1001}", "a{2,1}", "(?=a)", "(?<!a)", "(?i)A.*"),
    *("\\", "\\y", "[z-a]", "(?P<n", "(?P<n>a)+", "a\\.b", "\\Qa.b\\E", "^a$", "\\pN+", "\\p{Greek}", "a\\8", "++"),
    *("[[:alpha:]]+", "[[:foo:]]", "\\pX", "(?z)", "(?i", "\\d+", "\\w*-\\w*", "[^a]", "a.b", "\\bab\\b", "ä", "a?"),
)
# What we say otherwise: re2j fails inside on a bracket too many, and takes for a named capture what begins like one.
MEANT = {
    "a)": "unexpected )",
    "(?<!a)": "invalid or unsupported Perl syntax",
}
NAMES = ("a", "A", "b", "ab", "a.b", "a-b", "12", "orders.eu-1", "_x")


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_random_groups_are_assigned_as_kafka_assigns_them(assignor: Assignor) -> None:
    random = Random(848)
    specs = [random_spec(random) for _ in range(SPECS)]
    lines = [question(assignor.name, spec, topics) for spec, topics in specs]
    answers = ask_kafka(lines)
    for line, (spec, topics), kafkas in zip(lines, specs, answers, strict=True):
        assert answer(assignor.assign(spec, topics), spec) == parsed_answer(kafkas, spec), line


def test_hashes_are_kafkas() -> None:
    random = Random(1101)
    questions, ours = [], []
    for _ in range(300):
        high, low = random.randrange(-(2**63), 2**63), random.randrange(-(2**63), 2**63)
        name = "".join(random.choices("abcXYZ019._-", k=random.randint(1, 249)))
        racks = [
            random.choices(["a", "rack-2", "ä", "𝔯", "B"], k=random.randint(0, 3)) for _ in range(random.randint(1, 50))
        ]
        questions.append(f"topic-hash\t{high},{low}\t{name}\t{';'.join(','.join(each) for each in racks)}")
        topic_id = high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)
        ours.append(topic_hash(topic_id, name, racks))
    for size in range(60):
        hashes = {f"topic{random.randrange(10**6)}": random.randrange(-(2**63), 2**63) for _ in range(size)}
        questions.append("group-hash\t" + ",".join(f"{name}={value}" for name, value in hashes.items()))
        ours.append(group_metadata_hash(hashes))
    assert [str(value) for value in ours] == ask_kafka(questions)


def test_regular_expressions_mean_what_they_mean_to_kafka() -> None:
    lines = ask_kafka([f"regex\t{pattern}\t{','.join(NAMES)}" for pattern in PATTERNS])
    answers = [line.removeprefix("error ") for line in lines]
    ours = []
    for pattern in PATTERNS:
        try:
            is_match = compile_regex(pattern).is_match
            ours.append((pattern, ",".join(name for name in NAMES if is_match(name))))
        except InvalidRegularExpression as error:
            ours.append((pattern, f"SubscribedTopicRegex {error}"))
    expected = [
        (
            pattern,
            answer
            if pattern not in MEANT
            else f"SubscribedTopicRegex {InvalidRegularExpression(pattern, MEANT[pattern])}",
        )
        for pattern, answer in zip(PATTERNS, answers, strict=True)
    ]
    assert ours == expected
