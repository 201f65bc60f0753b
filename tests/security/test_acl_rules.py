"""The rules of ACLs against a naive reading of what Kafka's StandardAuthorizer promises."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.security.acl_bindings import Acl, AclFilter, AclOperation, PatternType, Permission, Resource
from pybroker.security.acl_rules import AclIndex

NAMES = st.text(alphabet="ab*", min_size=1, max_size=4)
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
PRINCIPALS = st.sampled_from(["User:*", "User:anna", "User:bert", "Group:anna"])
ASKED_OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
TYPES = st.sampled_from([Resource.TOPIC, Resource.GROUP, Resource.CLUSTER])
ACLS = st.builds(
    Acl,
    TYPES,
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    PRINCIPALS,
    HOSTS,
    st.sampled_from([AclOperation.ALL, *ASKED_OPERATIONS]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:anna", "User:bert", "Group:anna", "User:carl"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    st.sampled_from(ASKED_OPERATIONS),
    TYPES,
    NAMES,
)
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def index_of(acls: Iterable[Acl]) -> AclIndex:
    index = AclIndex()
    for acl in acls:
        index.add(acl)
    return index


def acl(
    name: str,
    operation: AclOperation = READ,
    *,
    principal: str = "User:anna",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    of: Resource = Resource.TOPIC,
) -> Acl:
    return Acl(of, name, pattern, principal, host, operation, permission)


def may_read(acls: list[Acl], topic: str = "t", *, principal: str = "User:anna", host: str = "10.0.0.1") -> bool | None:
    return index_of(acls).decide(principal, host, READ, Resource.TOPIC, topic).allowed


def naive_decision(
    acls: list[Acl], principal: str, host: str, operation: int, resource_type: int, name: str
) -> bool | None:
    concerned = [
        each
        for each in acls
        if each.resource_type == resource_type
        and (
            (each.pattern_type == PatternType.LITERAL and each.resource_name in (name, "*"))
            or (each.pattern_type == PatternType.PREFIXED and name.startswith(each.resource_name))
        )
    ]
    mine = [each for each in concerned if each.principal in (principal, "User:*") and each.host in (host, "*")]
    implying = {
        AclOperation.DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(AclOperation(operation), set())
    if any(e.permission_type == Permission.DENY and e.operation in (AclOperation.ALL, operation) for e in mine):
        return False
    wanted = {AclOperation.ALL, operation, *implying}
    if any(each.permission_type == Permission.ALLOW and each.operation in wanted for each in mine):
        return True
    return False if concerned else None


def naive_by_type(acls: list[Acl], principal: str, host: str, operation: int, resource_type: int) -> bool:
    """By trying names: every name of the alphabet that is longer than all patterns, and every literal one."""
    relevant = [
        each
        for each in acls
        if each.resource_type == resource_type
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and each.operation in (AclOperation.ALL, operation)
    ]

    def covers(each: Acl, name: str) -> bool:
        if each.pattern_type == PatternType.PREFIXED:
            return name.startswith(each.resource_name)
        return each.resource_name in (name, "*")

    allows = [each for each in relevant if each.permission_type == Permission.ALLOW]
    denies = [each for each in relevant if each.permission_type == Permission.DENY]
    # A name behind a pattern that no other pattern of the alphabet reaches.
    names = {each.resource_name for each in allows} | {each.resource_name + "\x7f" * 9 for each in allows} | {"\x7f"}
    return any(
        any(covers(each, name) for each in allows) and not any(covers(each, name) for each in denies) for name in names
    )


@given(st.lists(ACLS, max_size=12), QUESTIONS)
@settings(max_examples=500)
def test_decisions_are_those_of_a_naive_reading(acls: list[Acl], question: tuple[str, str, int, int, str]) -> None:
    assert index_of(acls).decide(*question).allowed is naive_decision(acls, *question)


@given(st.lists(ACLS, max_size=12), st.lists(ACLS, max_size=6), QUESTIONS, st.randoms())
@settings(max_examples=200)
def test_what_was_added_and_removed_again_changes_nothing(
    kept: list[Acl], others: list[Acl], question: tuple[str, str, int, int, str], random: object
) -> None:
    index = index_of([*others, *kept])
    for each in others:
        if each not in kept:
            index.remove(each)
    assert index.decide(*question).allowed is naive_decision(kept, *question)
    assert index.count == len(set(kept))
    for each in kept:
        index.remove(each)
    assert index.count == 0
    assert index.decide(*question).allowed is None


@given(st.lists(ACLS.filter(lambda each: each.resource_name != "*" or each.pattern_type == 3), max_size=8), QUESTIONS)
@settings(max_examples=500)
def test_whoever_is_allowed_by_type_is_allowed_some_name(
    acls: list[Acl], question: tuple[str, str, int, int, str]
) -> None:
    principal, host, operation, resource_type, _ = question
    by_type = index_of(acls).decide_by_resource_type(principal, host, operation, resource_type)
    reachable = naive_by_type(acls, principal, host, operation, resource_type)
    # Kafka looks at patterns: one that several others deny together, name by name, passes for allowed.
    assert by_type >= reachable
    if len({each.resource_name for each in acls}) <= 1:
        assert by_type is reachable


def test_nothing_is_decided_where_no_acl_concerns_the_resource() -> None:
    assert may_read([acl("other"), acl("t", of=Resource.GROUP)]) is None


def test_acl_of_somebody_else_makes_a_resource_forbidden_for_the_others() -> None:
    assert may_read([acl("t", principal="User:bert")]) is False


def test_denial_wins_over_every_permission() -> None:
    everything = acl("*", AclOperation.ALL, principal="User:*")
    for denying in (
        acl("t", permission=Permission.DENY),
        acl("", pattern=PatternType.PREFIXED, permission=Permission.DENY),
        acl("*", AclOperation.ALL, principal="User:*", permission=Permission.DENY),
    ):
        assert may_read([acl("t"), everything, denying]) is False
        assert may_read([denying, everything, acl("t")]) is False


def test_denial_of_an_operation_denies_none_that_it_would_imply() -> None:
    index = index_of([acl("t", DESCRIBE), acl("t", READ, permission=Permission.DENY)])
    assert index.decide("User:anna", "h", DESCRIBE, Resource.TOPIC, "t").allowed is True
    assert index.decide("User:anna", "h", READ, Resource.TOPIC, "t").allowed is False


def test_prefix_that_is_literal_reaches_its_own_name_alone() -> None:
    assert may_read([acl("t")], "t1") is None
    assert may_read([acl("t", pattern=PatternType.PREFIXED)], "t1") is True
    assert may_read([acl("t1", pattern=PatternType.PREFIXED)], "t") is None


def test_star_is_a_wildcard_as_a_literal_name_alone() -> None:
    assert may_read([acl("*")]) is True
    assert may_read([acl("*", pattern=PatternType.PREFIXED)]) is None
    assert may_read([acl("*", pattern=PatternType.PREFIXED)], "*t") is True


@pytest.mark.parametrize(("host", "expected"), [("10.1.2.3", True), ("11.1.2.3", False), ("::1", False)])
def test_range_of_addresses_is_for_those_that_lie_in_it(host: str, expected: bool) -> None:
    assert may_read([acl("t", host="10.0.0.0/8")], host=host) is expected
    narrower = acl("t", host="10.1.0.0/16", permission=Permission.DENY)
    assert may_read([acl("t", host="10.0.0.0/8"), narrower], host="10.1.2.3") is False
    assert may_read([acl("t", host="10.0.0.0/8"), narrower], host="10.2.2.3") is True


LOOKALIKES = [
    "\u043erders", "orders\n", "\norders", "orders\0", "orders ", "orders\u200b", "ORDERS", '"orders"', "'orders'",
    "orders\\", "orders%00", "orders\r\n*", "\uff4frders", "orders\u0301", "order\u017f",
]  # fmt: skip


@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
@pytest.mark.parametrize("name", LOOKALIKES, ids=ascii)
def test_a_name_that_looks_like_another_is_another(name: str, pattern: PatternType) -> None:
    assert may_read([acl(name, pattern=pattern)], "orders") is None
    assert may_read([acl("orders", pattern=PatternType.LITERAL)], name) is None
    anna = name.replace("rders", "nna") + "anna"
    assert may_read([acl("orders", principal=f"User:{anna}")], "orders") is False
    denied = [acl("orders"), acl(name, pattern=pattern, permission=Permission.DENY)]
    assert may_read(denied, "orders") is True, "nor does it forbid the other"


def test_by_type_wants_the_operation_itself() -> None:
    index = index_of([acl("t", WRITE)])
    assert index.decide_by_resource_type("User:anna", "h", WRITE, Resource.TOPIC)
    assert not index.decide_by_resource_type("User:anna", "h", DESCRIBE, Resource.TOPIC)


def test_by_type_is_denied_by_a_prefix_in_front_of_all_that_is_allowed() -> None:
    allowed = acl("team-a", WRITE, pattern=PatternType.PREFIXED)
    for denied, expected in (("team", False), ("team-a", False), ("team-a-secret", True), ("other", True)):
        denying = acl(denied, WRITE, pattern=PatternType.PREFIXED, permission=Permission.DENY)
        assert index_of([allowed, denying]).decide_by_resource_type("User:anna", "h", WRITE, 2) is expected


def test_thousand_acls_cost_little_more_than_a_few() -> None:
    """A rule of growth, not of time: a hundred times as many may cost ten times as much at most."""
    few = [acl(f"topic-{number}", WRITE, principal=f"User:{number}") for number in range(10)]
    many = [acl(f"topic-{number}", WRITE, principal=f"User:{number}") for number in range(1_000)]

    def best_ns(index: AclIndex) -> int:
        best = 1 << 62
        for _ in range(50):
            begun = time.perf_counter_ns()
            for _ in range(20):
                index.decide("User:7", "h", WRITE, Resource.TOPIC, "topic-7")
            best = min(best, time.perf_counter_ns() - begun)
        return best

    assert best_ns(index_of(many)) < 10 * best_ns(index_of(few))


@given(st.lists(ACLS, unique=True, max_size=20))
def test_acls_have_ids_of_their_own(acls: list[Acl]) -> None:
    assert len({each.acl_id() for each in acls}) == len(acls)


def test_ids_do_not_run_fields_together() -> None:
    assert acl("a\0User:b", principal="c").acl_id() != acl("a", principal="User:b\0c").acl_id()
    assert acl("a\\0", principal="User:b").acl_id() != acl("a\0", principal="User:b").acl_id()


ANY_FILTER = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)


@given(ACLS)
def test_filter_without_conditions_matches_and_its_own_values_match(each: Acl) -> None:
    assert ANY_FILTER.matches(each)
    assert AclFilter(*each).matches(each)
    assert not AclFilter(*each)._replace(principal="User:nobody").matches(each)
    assert not AclFilter(*each)._replace(host="nowhere").matches(each)


@given(ACLS, NAMES)
def test_filter_by_match_means_what_concerns_the_resource(each: Acl, name: str) -> None:
    concerning = ANY_FILTER._replace(resource_name=name, pattern_type=PatternType.MATCH)
    index = index_of([each])
    concerns = index.decide("User:carl", "h", READ, each.resource_type, name).allowed is not None
    assert concerning.matches(each) is concerns
