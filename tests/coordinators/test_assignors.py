"""The assignors: Kafka's recorded answers, and what must hold for any group."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.coordinators.group.assignors import ASSIGNORS, Assignor, GroupSpec
from pybroker.coordinators.group.assignors.spec import GroupAssignment

from .assignor_specs import (
    ANSWERS,
    Topics,
    answer,
    by_numbers,
    group,
    member,
    parsed_answer,
    parsed_question,
    random_spec,
    topic_id,
)

UNIFORM, RANGE = ASSIGNORS
BY_NAME = {each.name: each for each in ASSIGNORS}

specs = st.integers(0, 2**32).map(lambda seed: random_spec(Random(seed)))
assignors = st.sampled_from(ASSIGNORS)


def with_assignment(spec: GroupSpec, assignment: GroupAssignment) -> GroupSpec:
    """The group after it took over an assignment."""
    return group(*(each._replace(assigned=assignment[each.member_id]) for each in spec.members.values()))


def without(spec: GroupSpec, *member_ids: str) -> GroupSpec:
    return group(*(each for each in spec.members.values() if each.member_id not in member_ids))


def pairs(spec: GroupSpec, assignment: GroupAssignment) -> dict[tuple[bytes, int], str]:
    """The owner of every partition; fails on one with two owners and on an owner that is not subscribed."""
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, share in assignment.items():
        for id_, partitions in share.items():
            assert not partitions or id_ in spec.members[member_id].subscribed_topic_ids
            for partition in partitions:
                assert (id_, partition) not in owners, f"{id_.hex()}-{partition} has two owners"
                owners[id_, partition] = member_id
    return owners


def subscribed(spec: GroupSpec) -> set[bytes]:
    return set().union(*(each.subscribed_topic_ids for each in spec.members.values()))


def sizes(assignment: GroupAssignment) -> list[int]:
    return sorted(sum(map(len, share.values())) for share in assignment.values())


@pytest.mark.parametrize(
    ("line", "kafkas"),
    json.loads(ANSWERS.read_text()),
    ids=[str(i) for i in range(len(json.loads(ANSWERS.read_text())))],
)
def test_assignments_are_those_that_kafka_makes(line: str, kafkas: str) -> None:
    name, spec, topics = parsed_question(line)
    assert answer(BY_NAME[name].assign(spec, topics), spec) == parsed_answer(kafkas, spec)


@given(specs, assignors)
def test_every_partition_goes_to_exactly_one_of_its_subscribers(
    spec_and_topics: tuple[GroupSpec, Topics], assignor: Assignor
) -> None:
    spec, topics = spec_and_topics
    assignment = assignor.assign(spec, topics)
    assert assignment.keys() == spec.members.keys()
    expected = {(id_, index) for id_ in subscribed(spec) for index in range(topics.partition_count(id_))}
    assert pairs(spec, assignment).keys() == expected


@given(specs, assignors, st.randoms())
def test_the_order_of_members_and_of_what_they_have_does_not_matter(
    spec_and_topics: tuple[GroupSpec, Topics], assignor: Assignor, random: Random
) -> None:
    spec, topics = spec_and_topics
    members = [
        each._replace(assigned=dict(random.sample(list(each.assigned.items()), len(each.assigned))))
        for each in spec.members.values()
    ]
    random.shuffle(members)
    assert by_numbers(assignor.assign(spec, topics)) == by_numbers(assignor.assign(group(*members), topics))


@given(specs, assignors)
def test_assigning_again_changes_nothing_and_hands_back_the_same_objects(
    spec_and_topics: tuple[GroupSpec, Topics], assignor: Assignor
) -> None:
    spec, topics = spec_and_topics
    first = assignor.assign(spec, topics)
    second = assignor.assign(with_assignment(spec, first), topics)
    if assignor is RANGE or spec.subscription_is_homogeneous:
        assert all(second[member_id] is first[member_id] for member_id in first)
    assert pairs(spec, second).keys() == pairs(spec, first).keys()


@given(specs, assignors)
def test_what_it_is_handed_stays_as_it_was(spec_and_topics: tuple[GroupSpec, Topics], assignor: Assignor) -> None:
    spec, topics = spec_and_topics
    before = {each.member_id: dict(each.assigned) for each in spec.members.values()}
    assignor.assign(spec, topics)
    assert before == {each.member_id: each.assigned for each in spec.members.values()}


@given(specs)
def test_uniform_is_balanced_and_moves_no_more_than_balance_takes(spec_and_topics: tuple[GroupSpec, Topics]) -> None:
    spec, topics = spec_and_topics
    common = frozenset(subscribed(spec))
    spec = group(*(each._replace(subscribed_topic_ids=common) for each in spec.members.values()))
    assignment = UNIFORM.assign(spec, topics)
    assert sizes(assignment)[-1] - sizes(assignment)[0] <= 1

    had = [
        sum(len(partitions) for id_, partitions in each.assigned.items() if id_ in common)
        for each in spec.members.values()
    ]
    quota, members_with_one_more = divmod(sum(sizes(assignment)), len(had))
    could_stay = sum(min(count, quota) for count in had) + min(members_with_one_more, sum(c > quota for c in had))
    stayed = sum(
        len(partitions & assignment[member_id].get(id_, frozenset()))
        for member_id, each in spec.members.items()
        for id_, partitions in each.assigned.items()
    )
    assert stayed == could_stay


@given(specs, st.randoms())
def test_uniform_moves_only_what_a_leaver_had_and_what_a_joiner_needs(
    spec_and_topics: tuple[GroupSpec, Topics], random: Random
) -> None:
    spec, topics = spec_and_topics
    common = frozenset(subscribed(spec))
    spec = group(*(each._replace(subscribed_topic_ids=common) for each in spec.members.values()))
    settled = with_assignment(spec, UNIFORM.assign(spec, topics))
    before = pairs(settled, {each.member_id: each.assigned for each in settled.members.values()})

    if len(settled.members) > 1:
        leaver = random.choice(sorted(settled.members))
        after = pairs(settled, UNIFORM.assign(without(settled, leaver), topics))
        assert all(before[partition] in {leaver, owner} for partition, owner in after.items())

    joiner = member(f"member-{random.randrange(1000):03}-new", [])._replace(subscribed_topic_ids=common)
    grown = group(*settled.members.values(), joiner)
    after = pairs(grown, UNIFORM.assign(grown, topics))
    assert all(owner in {before[partition], joiner.member_id} for partition, owner in after.items())


@given(specs)
def test_uniform_balances_exactly_where_topics_have_the_same_subscribers_or_none_in_common(
    spec_and_topics: tuple[GroupSpec, Topics],
) -> None:
    spec, topics = spec_and_topics
    members = sorted(spec.members.values())
    halves = (members[::2], members[1::2])
    known = sorted(map(topic_id, range(len(topics.counts))))
    split = [
        each._replace(subscribed_topic_ids=frozenset(known[side::2]))
        for side, half in enumerate(halves)
        for each in half
    ]
    assignment = UNIFORM.assign(GroupSpec({each.member_id: each for each in split}, False), topics)
    for half in halves:
        loads = sizes({each.member_id: assignment[each.member_id] for each in half})
        assert not loads or loads[-1] - loads[0] <= 1


@given(specs, assignors)
def test_unknown_topics_and_partitions_are_passed_over(
    spec_and_topics: tuple[GroupSpec, Topics], assignor: Assignor
) -> None:
    spec, topics = spec_and_topics
    fewer = Topics([-1, *(max(count // 2, 1) for count in topics.counts[1:])])
    assignment = assignor.assign(spec, fewer)
    expected = {(id_, index) for id_ in subscribed(spec) for index in range(max(fewer.partition_count(id_), 0))}
    assert pairs(spec, assignment).keys() == expected


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_a_partition_that_two_members_have_stays_with_one(assignor: Assignor) -> None:
    everything = {0: [0, 1, 2, 3]}
    spec = group(member("a", [0], everything), member("b", [0], everything))
    assignment = assignor.assign(spec, Topics([4]))
    assert len(pairs(spec, assignment)) == 4
    assert sizes(assignment) == [2, 2]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_groups_without_members_or_subscriptions_get_nothing(assignor: Assignor) -> None:
    assert by_numbers(assignor.assign(GroupSpec({}, True), Topics([4]))) == {}
    assert by_numbers(assignor.assign(group(member("a", [], {0: [1]})), Topics([4]))) == {"a": {}}


def test_uniform_is_what_a_group_gets_by_default() -> None:
    assert [assignor.name for assignor in ASSIGNORS] == ["uniform", "range"]


def test_range_gives_the_same_partitions_of_topics_with_equally_many() -> None:
    spec = group(member("a", [0, 1]), member("b", [0, 1]))
    assert by_numbers(RANGE.assign(spec, Topics([3, 3]))) == {
        "a": {0: [0, 1], 1: [0, 1]},
        "b": {0: [2], 1: [2]},
    }


def test_range_goes_by_instance_ids_first_so_that_a_static_member_finds_its_ranges_again() -> None:
    before = group(member("a", [0]), member("z", [0], instance_id="i1"), member("b", [0], instance_id="i2"))
    after = group(member("a", [0]), member("q", [0], instance_id="i1"), member("r", [0], instance_id="i2"))
    topics = Topics([3])
    assert by_numbers(RANGE.assign(before, topics)) == {"a": {0: [2]}, "b": {0: [1]}, "z": {0: [0]}}
    assert by_numbers(RANGE.assign(after, topics)) == {"a": {0: [2]}, "q": {0: [0]}, "r": {0: [1]}}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    spec = group(member("a", [0]), member("b", [0, 1]), member("c", [1]))
    assert by_numbers(RANGE.assign(spec, Topics([3, 2]))) == {
        "a": {0: [0, 1]},
        "b": {0: [2], 1: [0]},
        "c": {1: [1]},
    }
