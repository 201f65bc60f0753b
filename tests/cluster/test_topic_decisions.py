"""The rules of CreateTopics, DeleteTopics and CreatePartitions, as pure decisions."""

from __future__ import annotations

from random import Random
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.decisions.operations import MorePartitions, NewTopic, TopicCreation
from pybroker.cluster.decisions.placement import Refused, place
from pybroker.cluster.decisions.topic_changes import TopicRules, create_partitions, create_topics, delete_topics
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, ImageBuilder
from pybroker.cluster.image.topic_names import colliding_name, invalid_reason
from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import validate_topic_configs
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import ZERO_UUID
from tests.steps import end_of


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 0, bytes(16), {}, rack, fenced=fenced)


def builder_of(*brokers: BrokerRegistration) -> ImageBuilder:
    builder = ImageBuilder(ClusterImage())
    for each in brokers or (broker(1),):
        builder.put_broker(each)
    return builder


def rules(**settings: str) -> TopicRules:
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    return TopicRules(config, validate_topic_configs, lambda: uuid4().bytes, Random(7))


def create(builder: ImageBuilder, *topics: NewTopic, **settings: str) -> list[TopicCreation]:
    return end_of(create_topics(builder, topics, rules(**settings)))


def created(builder: ImageBuilder) -> set[str]:
    return set(builder.view().topics_by_name)


def test_defaults_are_the_brokers() -> None:
    builder = builder_of(broker(1), broker(2))
    (result,) = create(builder, NewTopic("a"), num_partitions="3", default_replication_factor="2")
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 2)
    topic = builder.view().topics_by_name["a"]
    assert topic.topic_id == result.topic_id
    assert len(topic.partitions) == 3
    for partition in topic.partitions:
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_mixed_request_creates_the_valid_topics() -> None:
    builder = builder_of()
    results = create(builder, NewTopic("good", 1, 1), NewTopic("bad name", 1, 1), NewTopic("also-good", 1, 1))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert created(builder) == {"good", "also-good"}


def test_name_that_comes_twice_is_refused_once() -> None:
    builder = builder_of()
    results = create(builder, NewTopic("twice", 1, 1), NewTopic("once", 1, 1), NewTopic("twice", 2, 1))
    assert [(result.name, result.error_code) for result in results] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", 0),
    ]
    assert created(builder) == {"once"}


REFUSALS = [
    (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
    (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
    (NewTopic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION),
    (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
    (NewTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
    (NewTopic("t", -1, -1, ((0, (7,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", -1, -1, ((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", -1, -1, ((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", -1, -1, ((0, (1,)), (0, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (NewTopic("t", 1, 1, (), (("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
    (NewTopic("t", 1, 1, (), (("retention.ms", "soon"),)), ErrorCode.INVALID_CONFIG),
    (NewTopic("t", 1, 1, (), (("no.such.setting", "1"),)), ErrorCode.INVALID_CONFIG),
    (NewTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("a" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (NewTopic("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("topic", "error"), REFUSALS)
def test_refused_topic_has_its_code_and_leaves_no_trace(topic: NewTopic, error: ErrorCode) -> None:
    builder = builder_of()
    (result,) = create(builder, topic)
    assert result.error_code == error
    assert result.error_message
    assert not created(builder)
    assert not builder.view().configs


def test_topic_that_exists_is_refused() -> None:
    builder = builder_of()
    create(builder, NewTopic("a", 1, 1))
    (result,) = create(builder, NewTopic("a", 1, 1))
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_partitions_of_one_request_are_limited_together() -> None:
    builder = builder_of()
    results = create(builder, NewTopic("a", 6_000, 1), NewTopic("b", 6_000, 1))
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}


def test_configs_become_overrides_of_the_topic() -> None:
    builder = builder_of()
    (result,) = create(builder, NewTopic("a", 1, 1, (), (("retention.ms", "5"),)))
    assert result.overrides == {"retention.ms": "5"}
    assert builder.view().overrides(2, "a") == {"retention.ms": "5"}


def test_manual_assignment_is_taken_as_it_is_with_live_replicas_in_sync() -> None:
    builder = builder_of(broker(1), broker(2, fenced=True), broker(3))
    (result,) = create(builder, NewTopic("a", -1, -1, ((1, (2, 3)), (0, (3, 1)))))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    first, second = builder.view().topics_by_name["a"].partitions
    assert (first.replicas, first.isr, first.leader) == ((3, 1), (3, 1), 3)
    assert (second.replicas, second.isr, second.leader) == ((2, 3), (3,), 3)


def test_manual_assignment_to_fenced_brokers_alone_is_refused() -> None:
    builder = builder_of(broker(1), broker(2, fenced=True))
    (result,) = create(builder, NewTopic("a", -1, -1, ((0, (2,)),)))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_each_replica_gets_the_log_dir_of_its_broker_that_has_the_fewest() -> None:
    one = broker(1)._replace(log_dirs=(b"d" * 16,))
    two = broker(2)._replace(log_dirs=(b"e" * 16, b"f" * 16))
    builder = builder_of(one, two)
    create(builder, NewTopic("a", -1, -1, tuple((index, (1, 2)) for index in range(5))))
    image, _ = builder.build(1)
    builder = ImageBuilder(image)
    create(builder, NewTopic("b", 3, 2))
    partitions = [p for topic in builder.view().topics_by_name.values() for p in topic.partitions]
    assert {p.directory(1) for p in partitions} == {b"d" * 16}
    counts = [sum(p.directory(2) == directory for p in partitions) for directory in two.log_dirs]
    assert counts == [4, 4]


def test_directory_of_a_broker_that_names_no_log_dirs_stays_unassigned() -> None:
    builder = builder_of(broker(1))
    create(builder, NewTopic("a"))
    (partition,) = builder.view().topics_by_name["a"].partitions
    assert partition.directories == (bytes(15) + b"\x01",)


@pytest.mark.parametrize(
    ("name", "existing", "collides"),
    [
        ("a.b", {"a_b"}, "a_b"),
        ("a_b", {"a.b"}, "a.b"),
        ("a.b", {"a.b"}, None),
        ("ab", {"a.b"}, None),
        ("a.b.c", {"a.b", "a_b.c", "x"}, "a_b.c"),
        ("a-b", {"a_b"}, None),
    ],
)
def test_names_that_differ_in_dot_and_underscore_collide(name: str, existing: set[str], collides: str | None) -> None:
    assert colliding_name(name, existing) == collides
    # Among many topics the spellings are looked up instead of compared.
    assert colliding_name(name, existing | {f"other-{number}" for number in range(100)}) == collides


@given(st.text("ab._-", min_size=1, max_size=12), st.sets(st.text("ab._-", min_size=1, max_size=12), max_size=40))
def test_collision_is_found_both_ways(name: str, existing: set[str]) -> None:
    expected = {other for other in existing if other != name and other.replace(".", "_") == name.replace(".", "_")}
    found = colliding_name(name, existing)
    assert (found in expected) if expected else found is None


@pytest.mark.parametrize(("name", "valid"), [("a" * 249, True), ("a.b_c-D9", True), ("ä", False), ("a/b", False)])
def test_legal_names_are_ascii_and_short(name: str, valid: bool) -> None:
    assert (invalid_reason(name) is None) == valid


def three_topics() -> ImageBuilder:
    builder = builder_of()
    create(builder, *(NewTopic(name, 1, 1, (), (("retention.ms", "1"),)) for name in ("a", "b", "c")))
    return builder


def test_topics_are_deleted_by_name_and_by_id_with_their_overrides() -> None:
    builder = three_topics()
    topic_id = builder.view().topics_by_name["b"].topic_id
    results = delete_topics(builder, ["a", topic_id])
    assert [(result.name, result.error_code) for result in results] == [("a", 0), ("b", 0)]
    assert created(builder) == {"c"}
    assert set(builder.view().configs) == {(2, "c")}


def test_unknown_names_and_ids_have_codes_of_their_own() -> None:
    builder = three_topics()
    results = delete_topics(builder, ["nope", b"?" * 16, "a"])
    assert [(result.name, result.topic_id, result.error_code) for result in results[:2]] == [
        ("nope", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert created(builder) == {"b", "c"}


def test_topic_that_is_named_twice_is_not_deleted() -> None:
    builder = three_topics()
    topic_id = builder.view().topics_by_name["a"].topic_id
    requests: list[list[str | bytes]] = [["a", "a"], [topic_id, topic_id], ["a", topic_id], ["a", topic_id] * 2]
    for topics in requests:
        results = delete_topics(builder, topics)
        assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
    assert created(builder) == {"a", "b", "c"}


def test_topic_can_be_created_anew_after_its_deletion_with_another_id() -> None:
    builder = three_topics()
    before = builder.view().topics_by_name["a"].topic_id
    delete_topics(builder, ["a"])
    (result,) = create(builder, NewTopic("a", 1, 1))
    assert result.error_code == 0
    assert result.topic_id != before
    assert builder.view().overrides(2, "a") == {}


def grow(builder: ImageBuilder, *topics: MorePartitions) -> list[tuple[str, int]]:
    return [(result.name, result.error_code) for result in end_of(create_partitions(builder, topics, Random(1)))]


def test_growing_keeps_the_partitions_there_were() -> None:
    builder = three_topics()
    (before,) = builder.view().topics_by_name["a"].partitions
    assert grow(builder, MorePartitions("a", 3)) == [("a", 0)]
    after = builder.view().topics_by_name["a"].partitions
    assert len(after) == 3
    assert after[0] is before


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (MorePartitions("a", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a", 0), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("a", 3, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a", 2, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a", 2, ((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a", 20_000), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_refused_growth_changes_nothing(more: MorePartitions, error: ErrorCode) -> None:
    builder = three_topics()
    assert grow(builder, more) == [(more.name, error)]
    assert all(len(topic.partitions) == 1 for topic in builder.view().topics_by_name.values())


def test_every_topic_to_grow_is_answered_and_duplicates_are_refused() -> None:
    builder = three_topics()
    answers = grow(builder, MorePartitions("a", 2), MorePartitions("b", 2), MorePartitions("b", 3))
    assert answers == [("a", 0), ("b", ErrorCode.INVALID_REQUEST)]


BROKERS = st.dictionaries(
    st.integers(0, 30), st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=12
)


@given(BROKERS, st.integers(1, 40), st.integers(1, 6), st.integers(0, 99))
def test_placement_gives_distinct_replicas_a_live_leader_and_spreads_over_racks(
    description: dict[int, tuple[str | None, bool]], partitions: int, replication_factor: int, seed: int
) -> None:
    brokers = {number: broker(number, rack, fenced=fenced) for number, (rack, fenced) in description.items()}
    live = {number for number in brokers if not brokers[number].fenced}
    if not live or replication_factor > len(brokers):
        with pytest.raises(Refused):
            place(brokers, partitions, replication_factor, Random(seed))
        return
    racks = {each.rack for each in brokers.values()}
    placed = list(place(brokers, partitions, replication_factor, Random(seed)))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == replication_factor
        assert replicas[0] in live
        assert len({brokers[number].rack for number in replicas}) == min(len(racks), replication_factor)


def test_topics_are_created_while_a_broker_shuts_down_and_others_lead_their_partitions() -> None:
    leaving = broker(2)._replace(in_controlled_shutdown=True)
    builder = builder_of(broker(1), leaving, broker(3))
    alone, everywhere = create(builder, NewTopic("alone", 30, 1), NewTopic("everywhere", 30, 3))
    assert (alone.error_code, everywhere.error_code) == (0, 0)
    topics = builder.view().topics_by_name
    assert 2 not in {partition.leader for name in ("alone", "everywhere") for partition in topics[name].partitions}


def test_what_a_broker_leads_goes_to_several_others_when_it_dies() -> None:
    brokers = {number: broker(number) for number in range(6)}
    next_leaders: dict[int, set[int]] = {}
    for leader, next_leader, _ in place(brokers, 60, 3, Random(3)):
        next_leaders.setdefault(leader, set()).add(next_leader)
    assert all(len(others) > 2 for others in next_leaders.values())


def test_leaders_are_spread_evenly() -> None:
    brokers = {number: broker(number) for number in range(4)}
    leaders = [replicas[0] for replicas in place(brokers, 100, 3, Random(3))]
    assert {leaders.count(number) for number in brokers} == {25}
