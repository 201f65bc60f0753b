"""Resolving the regular expressions of a group: in slices, whatever the expressions and however many there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pybroker.cluster.image.cluster_image import ClusterImage, TopicImage
from pybroker.coordinators.group.consumer import regexes
from pybroker.coordinators.group.consumer.regexes import REGEX_MATCHES_PER_SLICE, REGEX_SLICE_MS, Resolution
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.regular_expressions import CompiledRegex, compile_regex


class Work:
    """What was done since it was last asked for: expressions compiled, and names matched."""

    def __init__(self) -> None:
        self.compiled = 0
        self.matched = 0

    def taken(self) -> tuple[int, int]:
        done = self.compiled, self.matched
        self.compiled = self.matched = 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    work = Work()

    def compile_one(pattern: str) -> CompiledRegex:
        work.compiled += 1
        regex = compile_regex(pattern)

        class Counting(CompiledRegex):
            def __init__(self) -> None:
                self.pattern = pattern

            def is_match(self, name: str) -> bool:
                work.matched += 1
                return regex.is_match(name)

        return Counting()

    monkeypatch.setattr(regexes, "compile_regex", compile_one)
    return work


def topics(count: int) -> Topics:
    names = [f"t{number}" for number in range(count)]
    return Topics(ClusterImage(epoch=1, topics_by_name={name: TopicImage(name, bytes(16), ()) for name in names}))


def stands_still() -> int:
    return 0


def slices(resolution: Resolution, work: Work) -> Iterator[tuple[int, int]]:
    """What each slice does."""
    is_done = False
    while not is_done:
        is_done = resolution.advance(stands_still)
        yield work.taken()


@pytest.mark.parametrize(("regexes", "names"), [(3, 7_000), (3_000, 3), (300, 100), (500, 0)])
def test_no_slice_does_more_than_its_share(work: Work, regexes: int, names: int) -> None:
    resolution = Resolution([f"t.*{number}" for number in range(regexes)], topics(names), lambda _: True)
    assert work.taken() == (0, 0), "the request that asks for it waits for nothing"
    done = list(slices(resolution, work))
    assert sum(compiled for compiled, _ in done) == regexes
    assert sum(matched for _, matched in done) == regexes * names
    assert max(matched for _, matched in done) <= REGEX_MATCHES_PER_SLICE
    assert max(compiled for compiled, _ in done) <= REGEX_MATCHES_PER_SLICE / 50


def test_slice_of_costly_expressions_ends_when_its_time_is_over(work: Work) -> None:
    resolution = Resolution([".*a.*b", "t.*"], topics(1_000), lambda _: True)
    now_ms = 0

    def each_read_comes_a_millisecond_later() -> int:
        nonlocal now_ms
        now_ms += 1
        return now_ms

    is_done, matched = False, []
    while not is_done:
        is_done = resolution.advance(each_read_comes_a_millisecond_later)
        matched.append(work.taken()[1])
    assert sum(matched) == 2_000
    assert max(matched) <= REGEX_SLICE_MS, "the clock is read after each match"


def test_every_expression_finds_what_it_matches_as_a_whole() -> None:
    patterns = ["t1", "t1.*", "t[0-9]", "", "x.*", "t(2|3)0+"]
    resolution = Resolution(patterns, topics(2_500), lambda _: True)
    while not resolution.advance(stands_still):
        pass
    names = [f"t{number}" for number in range(2_500)]
    resolved = resolution.resolved(7)
    assert {pattern: found.topics for pattern, found in resolved.items()} == {
        pattern: {name for name in names if re.fullmatch(pattern, name)} for pattern in patterns
    }


def test_expression_that_is_not_taken_any_more_names_nothing_and_is_in_no_other_ones_way() -> None:
    resolution = Resolution(["(", "t1"], topics(3), lambda _: True)
    assert resolution.advance(stands_still)
    assert resolution.matches == {"(": set(), "t1": {"t1"}}
