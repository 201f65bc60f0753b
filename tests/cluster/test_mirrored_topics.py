"""Topics of other clusters that are mirrored here, as pure decisions: the table of states, and what moves along it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.decisions.mirrored_topics import (
    EPOCHS_AHEAD,
    REFUSED_MAX,
    follow_source,
    forget_links,
    moved,
    note_problem,
    take_reports,
    take_wishes,
)
from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.decisions.topic_changes import TopicRules, create_topics, delete_topics
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.link_states import (
    ADOPTED,
    CAUGHT_UP,
    DIVERGED,
    ENDED,
    FAIL_OVER,
    FAILED,
    FAILED_OVER,
    FETCHED,
    INPUTS,
    MIRROR_STATE,
    MIRROR_TOPIC_ID,
    MIRRORING,
    PARTED,
    PAUSE,
    PAUSED,
    PROMOTE,
    PROMOTED,
    PROMOTING,
    RESUME,
    STATES,
    STOP,
    STOPPED,
    TRANSITIONS,
    UNKNOWN_EPOCH,
    WRITABLE,
    LinkState,
    MirroredTopic,
    MirrorReport,
    SourceCluster,
    SourceTopic,
    own_producer_ids,
)
from pybroker.config.link_config import LinkConfig
from pybroker.config.resources import TOPIC, ConfigChange
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import uuid_text
from tests.cluster.test_topic_decisions import broker, rules
from tests.steps import end_of

SOURCE_ID = bytes(range(16))
CLUSTER, OTHER = "this-cluster", "that-cluster"


def link(name: str = "west", **texts: str) -> LinkConfig:
    settings = {setting.replace("_", "."): text for setting, text in texts.items()}
    return LinkConfig(name, {"bootstrap.servers": "elsewhere:9092", "topics": "*", **settings})


def source_topic(name: str = "orders", *epochs: int, **fields: Any) -> SourceTopic:
    return SourceTopic(name, fields.pop("topic_id", SOURCE_ID), epochs or (3, 5), fields.pop("configs", {}))


def source(*topics: SourceTopic, cluster_id: str = OTHER) -> SourceCluster:
    return SourceCluster(cluster_id, {topic.name: topic for topic in topics})


def builder_of(*topics: SourceTopic, brokers: int = 1, config: LinkConfig | None = None) -> ImageBuilder:
    """A cluster that mirrors these topics."""
    builder = ImageBuilder(ClusterImage(cluster_id=CLUSTER))
    for broker_id in range(1, brokers + 1):
        builder.put_broker(broker(broker_id))
    if topics:
        follow(builder, *topics, config=config)
    return builder


def follow(
    builder: ImageBuilder, *topics: SourceTopic, config: LinkConfig | None = None, by: TopicRules | None = None
) -> None:
    end_of(follow_source(builder, config or link(), source(*topics), by or rules()))


def in_state(state: str, **fields: Any) -> ImageBuilder:
    """A cluster whose mirrored topic ``orders`` has come to be in ``state``."""
    builder = builder_of(source_topic())
    builder.put_mirror("orders", builder.view().mirrors["orders"]._replace(state=state, **fields))
    return builder


def mirror(builder: ImageBuilder, name: str = "orders") -> MirroredTopic:
    return builder.view().mirrors[name]


def epochs(builder: ImageBuilder, name: str = "orders") -> list[int]:
    return [partition.leader_epoch for partition in builder.view().topics_by_name[name].partitions]


def ended(builder: ImageBuilder, name: str = "orders") -> list[int]:
    """Partitions whose ends are kept, each with the epoch that its leader has now."""
    assert all(epoch == epochs(builder, name)[index] for index, epoch in mirror(builder, name).ended)
    return [index for index, _ in mirror(builder, name).ended]


def elect(builder: ImageBuilder, partition: int, name: str = "orders") -> None:
    """Another leader epoch begins in a partition, as where its leader comes back without a part of its log."""
    topic = builder.view().topics_by_name[name]
    partitions = list(topic.partitions)
    before = partitions[partition]
    partitions[partition] = before._replace(leader_epoch=before.leader_epoch + 1)
    builder.put_topic(topic._replace(partitions=tuple(partitions)))


def report(builder: ImageBuilder, partition: int, kind: int, reason: str = "", name: str = "orders") -> None:
    topic = builder.view().topics_by_name[name]
    epoch = topic.partitions[partition].leader_epoch
    take_reports(builder, 1, [MirrorReport(topic.topic_id, partition, epoch, kind, reason)])


def adopted(**settings: str) -> ImageBuilder:
    """A cluster with a topic of its own, of two partitions, that a link has adopted."""
    builder = builder_of(source_topic())
    builder.remove_mirror("orders")
    follow(builder, mirror_of_ours(builder, 9, 9), config=link(adopt="orders", **settings))
    return builder


def mirror_of_ours(builder: ImageBuilder, *epochs: int, **configs: str) -> SourceTopic:
    """A topic of the source that was mirrored from the one here, and takes writes."""
    topic_id = uuid_text(builder.view().topics_by_name["orders"].topic_id)
    return source_topic("orders", *epochs, configs={MIRROR_STATE: PROMOTED, MIRROR_TOPIC_ID: topic_id, **configs})


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "by"), list(product(STATES, INPUTS)))
def test_an_input_leads_to_the_state_of_the_table_or_changes_nothing(state: str, by: str) -> None:
    builder = in_state(state)
    before = mirror(builder), epochs(builder)
    refusal = moved(builder, "orders", by, "a reason")
    expected = TRANSITIONS.get((state, by))
    if expected is None:
        assert refusal == f"it is {state}"
        assert (mirror(builder), epochs(builder)) == before
    else:
        assert refusal is None
        assert mirror(builder).state == expected


@pytest.mark.parametrize(("state", "by"), TRANSITIONS)
def test_leader_epochs_begin_where_a_topic_becomes_writable_and_what_was_found_counts_no_more(
    state: str, by: str
) -> None:
    builder = in_state(state)
    before = epochs(builder)
    moved(builder, "orders", by, "a reason")
    becomes_writable = TRANSITIONS[state, by] in WRITABLE and state not in WRITABLE
    is_left = state in (PROMOTING, STOPPED, PAUSED, ADOPTED) and TRANSITIONS[state, by] != state
    assert epochs(builder) == [epoch + (becomes_writable or is_left) for epoch in before]
    if becomes_writable:
        assert mirror(builder).first_epochs == tuple(epochs(builder))


def test_nothing_leads_out_of_the_states_in_which_a_topic_takes_writes() -> None:
    assert all(after == state for (state, _), after in TRANSITIONS.items() if state in WRITABLE)


def test_every_state_is_reached_from_the_first_one() -> None:
    reached = {MIRRORING, ADOPTED}  # made, or here already
    for _ in STATES:
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached == set(STATES)


def test_a_topic_is_promoted_only_by_way_of_promoting() -> None:
    assert {(state, by) for (state, by), after in TRANSITIONS.items() if after == PROMOTED and state != PROMOTED} == {
        (PROMOTING, CAUGHT_UP)
    }


def test_a_stopped_topic_says_why_and_forgets_it_as_it_goes_on() -> None:
    builder = in_state(MIRRORING)
    moved(builder, "orders", STOP, "the first reason")
    moved(builder, "orders", RESUME)
    assert mirror(builder).reason == "the first reason"
    moved(builder, "orders", STOP, "another reason")
    assert mirror(builder).reason == "another reason"
    end_of(take_wishes(builder, link(pause="orders")))
    assert (mirror(builder).state, mirror(builder).reason) == (PAUSED, "")


def test_promoting_that_is_taken_back_forgets_who_had_ended() -> None:
    builder = in_state(PROMOTING)
    report(builder, 0, ENDED)
    moved(builder, "orders", RESUME)
    moved(builder, "orders", PROMOTE)
    assert mirror(builder).ended == ()


# --- what the settings want ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({}, MIRRORING),
        ({"pause": "orders"}, PAUSED),
        ({"promote": "ord*"}, PROMOTING),
        ({"failover": "*"}, FAILED_OVER),
        ({"failover": "orders", "promote": "*", "pause": "*"}, FAILED_OVER),
        ({"promote": "orders", "pause": "*"}, PROMOTING),
        ({"promote": "other"}, MIRRORING),
    ],
)
def test_the_strongest_wish_that_names_a_topic_counts(settings: dict[str, str], state: str) -> None:
    builder = in_state(MIRRORING)
    end_of(take_wishes(builder, link(**settings)))
    assert mirror(builder).state == state


def test_wishes_of_one_link_do_not_concern_another() -> None:
    builder = in_state(MIRRORING)
    end_of(take_wishes(builder, link("east", failover="*")))
    assert mirror(builder).state == MIRRORING


@pytest.mark.parametrize("state", STATES)
def test_without_its_link_a_topic_stops_unless_it_takes_writes(state: str) -> None:
    builder = in_state(state)
    forget_links(builder, ["east"])
    assert mirror(builder).state == (state if state in {*WRITABLE, ADOPTED} else STOPPED)
    assert not builder.view().links


# --- what the source says --------------------------------------------------------------------------------------------


def test_a_topic_is_made_with_its_record_its_partitions_and_its_settings() -> None:
    topic = source_topic("orders", 3, 5, configs={"retention.ms": "1", "min.insync.replicas": "2"})
    builder = builder_of(topic, config=link(prefix="west.", replication_factor="2"), brokers=2)
    image = builder.view()
    assert image.mirrors == {"west.orders": MirroredTopic("west", "orders", SOURCE_ID)}
    assert len(image.topics_by_name["west.orders"].partitions) == 2
    assert {len(each.replicas) for each in image.topics_by_name["west.orders"].partitions} == {2}
    assert image.overrides(TOPIC, "west.orders") == {"retention.ms": "1"}
    assert image.links == {"west": LinkState(OTHER)}


def test_leader_epochs_begin_above_those_of_the_source() -> None:
    assert epochs(builder_of(source_topic("orders", 3, -1, 0))) == [EPOCHS_AHEAD + epoch for epoch in (3, -1, 0)]


def test_leader_epochs_stay_while_they_are_not_below_those_of_the_source_and_are_raised_then() -> None:
    builder = builder_of(source_topic("orders", 3, 5))
    before = epochs(builder)
    follow(builder, source_topic("orders", before[0], 5))
    assert epochs(builder) == before
    follow(builder, source_topic("orders", before[0] + 1, 5))
    assert epochs(builder) == [before[0] + 1 + EPOCHS_AHEAD, before[1]]


def test_what_has_not_changed_at_the_source_changes_nothing() -> None:
    builder = builder_of(source_topic())
    image = builder.build(1)[0]
    again = ImageBuilder(image)
    follow(again, source_topic())
    assert not again.has_changes


def test_a_topic_gets_partitions_when_the_source_does() -> None:
    builder = builder_of(source_topic("orders", 3))
    follow(builder, source_topic("orders", 3, 9))
    assert epochs(builder) == [3 + EPOCHS_AHEAD, 9 + EPOCHS_AHEAD]
    assert mirror(builder).state == MIRRORING


def test_settings_are_followed_and_those_of_this_cluster_stay() -> None:
    builder = builder_of(source_topic(configs={"retention.ms": "1", "cleanup.policy": "compact"}))
    builder.put_overrides((TOPIC, "orders"), {**builder.view().overrides(TOPIC, "orders"), "segment.ms": "7"})
    follow(builder, source_topic(configs={"retention.ms": "2"}))
    assert builder.view().overrides(TOPIC, "orders") == {"retention.ms": "2", "segment.ms": "7"}


def test_settings_that_are_not_known_are_left() -> None:
    builder = builder_of(source_topic(configs={"retention.ms": "1"}))
    follow(builder, source_topic(configs=None))
    assert builder.view().overrides(TOPIC, "orders") == {"retention.ms": "1"}


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([], "the source has no such topic, or the link may not see it"),
        ([source_topic("orders", 3)], "at the source it has 1 partitions alone"),
        ([source_topic(topic_id=bytes(15) + b"\x07")], "at the source it was deleted and made anew"),
        ([source_topic(configs={"retention.ms": "x"})], "its settings at the source cannot be here: "),
    ],
)
def test_what_cannot_be_followed_stops_the_topic_and_no_other(now: list[SourceTopic], reason: str) -> None:
    other = source_topic("payments", topic_id=bytes(15) + b"\x09")
    builder = builder_of(source_topic(), other)
    follow(builder, *now, other)
    assert mirror(builder).state == STOPPED
    assert mirror(builder).reason.startswith(reason)
    assert mirror(builder, "payments").state == MIRRORING


@pytest.mark.parametrize("config", [link(topics="payments"), link(topics_exclude="orders"), link(prefix="x")])
def test_a_topic_that_the_link_does_not_want_any_more_stops(config: LinkConfig) -> None:
    builder = builder_of(source_topic())
    follow(builder, source_topic(), config=config)
    assert mirror(builder).reason == "the link west does not mirror it any more"


@pytest.mark.parametrize("state", sorted(WRITABLE))
def test_a_topic_that_takes_writes_does_not_mind_its_source(state: str) -> None:
    builder = in_state(state)
    before = builder.view().topics_by_name["orders"], mirror(builder)
    for topics in ([], [source_topic("orders", 9, 9, 9, topic_id=bytes(16))], [source_topic()]):
        follow(builder, *topics)
    assert (builder.view().topics_by_name["orders"], mirror(builder)) == before


def test_a_topic_that_is_here_already_is_not_touched() -> None:
    builder = builder_of(source_topic("orders", 1))
    builder.remove_mirror("orders")
    before = builder.view().topics_by_name["orders"]
    follow(builder, source_topic("orders", 9, 9))
    assert builder.view().topics_by_name["orders"] is before
    assert builder.view().links["west"].refused == (("orders", "a topic orders is here already"),)


def test_a_topic_is_one_links_alone() -> None:
    builder = builder_of(source_topic())
    follow(builder, source_topic(), config=link("east"))
    assert mirror(builder).link == "west"
    assert builder.view().links["east"].refused == (("orders", "orders is mirrored by the link west"),)


def test_a_topic_that_cannot_be_made_is_told_with_its_reason() -> None:
    builder = builder_of(source_topic(), config=link(replication_factor="3"))
    ((name, reason),) = builder.view().links["west"].refused
    assert name == "orders"
    assert "replication factor of 3" in reason


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("topics", ["*", "orders"])
def test_a_topic_that_is_mirrored_at_the_source_is_mirrored_by_its_name_alone(state: str, topics: str) -> None:
    builder = builder_of()
    follow(builder, source_topic(configs={MIRROR_STATE: state, "retention.ms": "7"}), config=link(topics=topics))
    is_made = topics == "orders" or state in WRITABLE
    assert ("orders" in builder.view().mirrors) is is_made
    assert bool(builder.view().links["west"].refused) is not is_made
    assert builder.view().overrides(TOPIC, "orders") == ({"retention.ms": "7"} if is_made else {})


def test_what_the_source_refuses_is_told_and_stops_what_was_mirrored() -> None:
    builder = builder_of(source_topic(), source_topic("payments"))
    refused = {"orders": "the link may not see it", "refunds": "its settings cannot be had"}
    seen = SourceCluster(OTHER, {"payments": source_topic("payments")}, refused)
    end_of(follow_source(builder, link(), seen, rules()))
    assert dict(builder.view().links["west"].refused) == refused
    assert mirror(builder).state == STOPPED
    assert mirror(builder).reason == "the link may not see it"
    assert mirror(builder, "payments").state == MIRRORING


def test_refused_topics_are_told_of_up_to_a_number() -> None:
    mirrors = [source_topic(f"t{number}", configs={MIRROR_STATE: MIRRORING}) for number in range(REFUSED_MAX + 2)]
    builder = builder_of()
    end_of(create_topics(builder, [NewTopic("here", 1, 1)], rules()))
    follow(builder, *mirrors, source_topic("here"))
    state = builder.view().links["west"]
    assert (len(state.refused), state.refused_more) == (REFUSED_MAX, 3)
    assert state.refused[0][0] == "here"  # before those that are mirrored there, as they have to be
    # The next look does not ask for settings that it has seen.
    follow(builder, *(each._replace(configs=None) for each in mirrors), source_topic("here"))
    assert builder.view().links["west"] == state
    follow(builder, source_topic())
    assert (builder.view().links["west"].refused, builder.view().links["west"].refused_more) == ((), 0)


@pytest.mark.parametrize(
    ("cluster_id", "problem"),
    [
        (CLUSTER, "its source is this cluster itself"),
        ("third", "its source is the cluster third, and was that-cluster"),
    ],
)
def test_another_cluster_than_the_source_is_followed_in_nothing(cluster_id: str, problem: str) -> None:
    builder = builder_of(source_topic())
    before = builder.view().topics_by_name, builder.view().mirrors
    end_of(follow_source(builder, link(), source(cluster_id=cluster_id), rules()))
    assert (builder.view().topics_by_name, builder.view().mirrors) == before
    assert builder.view().links["west"].problem == problem


def test_a_problem_goes_when_the_source_answers() -> None:
    builder = builder_of(source_topic())
    note_problem(builder, "west", "no connection")
    assert builder.view().links["west"] == LinkState(OTHER, "no connection")
    follow(builder, source_topic())
    assert builder.view().links["west"] == LinkState(OTHER)


def test_a_topic_without_an_id_at_the_source_is_refused_because_it_could_not_be_fetched() -> None:
    builder = builder_of(source_topic("orders", topic_id=bytes(16)))
    assert not builder.view().topics_by_name
    assert builder.view().links["west"].refused == (
        ("orders", "the source gives it no topic id: its inter.broker.protocol.version is below 2.8"),
    )
    follow(builder, source_topic())
    assert builder.view().links["west"] == LinkState(OTHER)
    assert mirror(builder).state == MIRRORING


@pytest.mark.parametrize("state", sorted(FETCHED))
def test_a_topic_whose_id_the_source_gives_no_more_is_named_and_stays_as_it_is(state: str) -> None:
    builder = in_state(state)
    wish = link(promote="orders") if state == PROMOTING else link()
    follow(builder, source_topic("orders", topic_id=bytes(16)), config=wish)
    assert (mirror(builder).state, len(builder.view().links["west"].refused)) == (state, 1)


def test_wishes_are_done_in_steps_because_a_link_has_thousands_of_topics() -> None:
    names = [f"orders-{number}" for number in range(5)]
    builder = builder_of(*(source_topic(name) for name in names))
    stood = [[mirror(builder, name).state for name in names] for _ in take_wishes(builder, link(pause="*"))]
    assert stood == [[PAUSED] * count + [MIRRORING] * (5 - count) for count in range(1, 6)]


def test_what_a_deleted_link_has_left_goes_on_by_a_link_of_the_same_name() -> None:
    builder = in_state(MIRRORING)
    forget_links(builder, [])
    before = epochs(builder)
    follow(builder, source_topic(), config=link("east"))
    assert mirror(builder).state == STOPPED
    follow(builder, source_topic("orders", 7, 7, topic_id=bytes(15) + b"\x09"))  # of another cluster
    assert (mirror(builder).state, mirror(builder).reason) == (STOPPED, "there is no link west any more")
    builder.remove_link("west")
    follow(builder, source_topic(), config=link(pause="payments"))
    assert (mirror(builder).state, mirror(builder).reason) == (MIRRORING, "")
    assert all(after > epoch for after, epoch in zip(epochs(builder), before, strict=True))


@pytest.mark.parametrize(("wish", "state"), [("pause", PAUSED), ("promote", PROMOTING), ("failover", FAILED_OVER)])
def test_what_a_link_of_the_same_name_wants_of_a_topic_that_was_left_is_done(wish: str, state: str) -> None:
    builder = in_state(MIRRORING)
    forget_links(builder, [])
    follow(builder, source_topic(), config=link(**{wish: "orders"}))
    assert mirror(builder).state == state


def test_a_topic_that_has_stopped_for_another_reason_is_left_so_by_a_link_of_the_same_name() -> None:
    builder = in_state(MIRRORING)
    moved(builder, "orders", STOP, "the source has another history")
    forget_links(builder, [])
    follow(builder, source_topic())
    assert (mirror(builder).state, mirror(builder).reason) == (STOPPED, "the source has another history")


def test_a_deleted_topic_takes_its_record_with_it() -> None:
    builder = builder_of(source_topic())
    delete_topics(builder, ["orders"])
    assert not builder.view().mirrors


def test_producer_ids_are_this_clusters_own_from_the_first_mirrored_topic_on() -> None:
    builder = builder_of()
    builder.set_next_producer_id(7_000)
    follow(builder)
    assert builder.view().next_producer_id == 7_000
    follow(builder, source_topic())
    first = builder.view().next_producer_id
    assert first == own_producer_ids(CLUSTER) > 1 << 32
    assert first >> 32 != own_producer_ids(OTHER) >> 32
    builder.set_next_producer_id(first + 1_000)
    follow(builder, source_topic(), source_topic("payments", topic_id=bytes(15) + b"\x09"))
    assert builder.view().next_producer_id == first + 1_000


# --- what leaders find -----------------------------------------------------------------------------------------------


def test_a_topic_is_promoted_once_every_partition_has_ended() -> None:
    builder = in_state(PROMOTING)
    report(builder, 1, ENDED)
    assert (mirror(builder).state, ended(builder)) == (PROMOTING, [1])
    report(builder, 1, ENDED)
    assert mirror(builder).state == PROMOTING
    report(builder, 0, ENDED)
    assert mirror(builder).state == PROMOTED


def test_a_partition_that_diverges_during_a_promotion_has_to_end_again() -> None:
    builder = in_state(PROMOTING)
    report(builder, 1, ENDED)
    report(builder, 1, DIVERGED)
    report(builder, 0, ENDED)
    assert (mirror(builder).state, ended(builder)) == (PROMOTING, [0])
    report(builder, 1, ENDED)
    assert mirror(builder).state == PROMOTED


def test_the_end_of_a_former_leader_says_nothing_of_the_log_of_the_next_one() -> None:
    builder = in_state(PROMOTING)
    report(builder, 0, ENDED)
    elect(builder, 0)
    report(builder, 1, ENDED)
    assert (mirror(builder).state, ended(builder)) == (PROMOTING, [1])
    report(builder, 0, ENDED)
    assert mirror(builder).state == PROMOTED


def test_what_a_former_leader_has_found_of_an_adopted_partition_says_nothing_of_the_next_one() -> None:
    builder = adopted(discard="orders")
    report(builder, 0, PARTED)
    elect(builder, 0)
    report(builder, 1, PARTED, "3 2")
    end_of(take_wishes(builder, link(adopt="orders", discard="orders")))
    assert mirror(builder).state == ADOPTED
    report(builder, 0, PARTED, "7 1")
    end_of(take_wishes(builder, link(adopt="orders", discard="orders")))
    assert mirror(builder).state == MIRRORING
    assert mirror(builder).partings == ((0, 7, 1), (1, 3, 2))


def test_an_end_that_is_kept_without_its_epoch_is_told_again_in_another_one() -> None:
    """An older version has kept it so, and its leader says nothing twice in one epoch."""
    builder = in_state(PROMOTING, ended=((0, UNKNOWN_EPOCH),))
    before = epochs(builder)
    report(builder, 1, ENDED)
    assert mirror(builder).state == PROMOTING
    builder = in_state(PROMOTING, ended=((0, UNKNOWN_EPOCH),))
    end_of(take_wishes(builder, link(promote="orders")))
    assert (epochs(builder), ended(builder)) == ([epoch + 1 for epoch in before], [])
    report(builder, 1, ENDED)
    end_of(take_wishes(builder, link(promote="orders")))
    assert (epochs(builder), ended(builder)) == ([epoch + 1 for epoch in before], [1])


def test_ends_of_many_partitions_are_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = in_state(PROMOTING)
    topic = builder.view().topics_by_name["orders"]
    changes: list[str] = []
    put = ImageBuilder.put_mirror

    def count(self: ImageBuilder, name: str, after: MirroredTopic) -> None:
        changes.append(after.state)
        put(self, name, after)

    monkeypatch.setattr(ImageBuilder, "put_mirror", count)
    take_reports(builder, 1, [MirrorReport(topic.topic_id, at, epochs(builder)[at], ENDED) for at in (0, 1)])
    assert changes == [PROMOTING, PROMOTED]


@pytest.mark.parametrize("state", sorted(set(STATES) - {PROMOTING}))
def test_an_end_says_nothing_of_a_topic_that_is_not_being_promoted(state: str) -> None:
    builder = in_state(state)
    before = mirror(builder), epochs(builder)
    report(builder, 0, ENDED)
    assert (mirror(builder), epochs(builder)) == before


def test_a_partition_that_diverges_gets_another_leader_epoch_and_no_other_does() -> None:
    builder = in_state(MIRRORING)
    before = epochs(builder)
    report(builder, 1, DIVERGED)
    assert epochs(builder) == [before[0], before[1] + 1]
    assert mirror(builder).state == MIRRORING


@pytest.mark.parametrize("state", sorted(FETCHED))
def test_a_partition_that_cannot_go_on_stops_its_topic(state: str) -> None:
    builder = in_state(state)
    report(builder, 1, FAILED, "its records are of a former form")
    assert mirror(builder).state == STOPPED
    assert mirror(builder).reason == "partition 1: its records are of a former form"


def test_who_does_not_lead_or_did_so_in_a_former_epoch_is_not_heard() -> None:
    builder = in_state(PROMOTING)
    topic, (epoch, _) = builder.view().topics_by_name["orders"], epochs(builder)
    before = mirror(builder), epochs(builder)
    for broker_id, reported in (
        (2, MirrorReport(topic.topic_id, 0, epoch, FAILED)),
        (1, MirrorReport(topic.topic_id, 0, epoch - 1, DIVERGED)),
        (1, MirrorReport(topic.topic_id, 0, epoch + 1, DIVERGED)),
        (1, MirrorReport(topic.topic_id, 2, epoch, ENDED)),
        (1, MirrorReport(bytes(16), 0, epoch, FAILED)),
    ):
        take_reports(builder, broker_id, [reported])
    assert (mirror(builder), epochs(builder)) == before


def test_failover_takes_what_is_here_whatever_the_source_is_like() -> None:
    builder = in_state(STOPPED, reason="the source is gone")
    moved(builder, "orders", FAIL_OVER)
    assert mirror(builder).state == FAILED_OVER


def refused(builder: ImageBuilder) -> dict[str, str]:
    return dict(builder.view().links["west"].refused)


def test_a_topic_that_is_named_and_not_seen_is_refused_with_the_reason() -> None:
    builder = builder_of()
    names = link(topics="orders,payments,pay*,hidden", topics_exclude="hidden")
    follow(builder, source_topic(), config=names)
    assert refused(builder) == {"payments": "the source has no such topic, or the link may not see it"}
    follow(builder, source_topic(), source_topic("payments", topic_id=bytes(15) + b"\x08"), config=names)
    assert refused(builder) == {}
    follow(builder, source_topic(), config=names)
    assert (mirror(builder, "payments").state, refused(builder)) == (STOPPED, {})


def test_a_refused_topic_keeps_its_reason_while_its_settings_are_not_asked_for() -> None:
    builder = builder_of()
    mirrored_there = source_topic(configs={MIRROR_STATE: MIRRORING})
    follow(builder, mirrored_there)
    told = refused(builder)
    assert "mirrored at the source" in told["orders"]
    follow(builder, mirrored_there._replace(configs=None))
    assert refused(builder) == told
    follow(builder, mirrored_there._replace(configs={}))
    assert refused(builder) == {}


# --- the way back ----------------------------------------------------------------------------------------------------


def test_a_topic_that_is_here_is_adopted_under_epochs_above_both_histories() -> None:
    builder = builder_of(source_topic("orders", 1, 1))
    builder.remove_mirror("orders")
    before = epochs(builder)
    follow(builder, mirror_of_ours(builder, 0, EPOCHS_AHEAD), config=link(adopt="orders"))
    assert mirror(builder).state == ADOPTED
    assert epochs(builder) == [before[0] + 1, 2 * EPOCHS_AHEAD]


def test_a_topic_with_more_partitions_than_at_the_source_is_not_adopted() -> None:
    builder = builder_of(source_topic("orders", 1, 1))
    builder.remove_mirror("orders")
    follow(builder, source_topic("orders", 9), config=link(adopt="orders"))
    assert not builder.view().mirrors
    assert dict(builder.view().links["west"].refused) == {
        "orders": "a topic orders is here already, with more partitions"
    }


@pytest.mark.parametrize("configs", [{}, {MIRROR_STATE: PROMOTED, MIRROR_TOPIC_ID: uuid_text(SOURCE_ID)}])
def test_a_topic_that_has_no_history_with_the_sources_is_not_adopted(configs: dict[str, str]) -> None:
    """Both begin with leader epoch 0, and other records: what is here would pass for the source's."""
    builder = builder_of(source_topic())
    builder.remove_mirror("orders")
    for _ in range(2):
        follow(builder, source_topic("orders", 0, 0, configs=configs), config=link(adopt="orders"))
        assert not builder.view().mirrors
        assert "neither was mirrored from the other" in refused(builder)["orders"]
    builder = in_state(FAILED_OVER, source_topic_id=bytes(16))
    follow(builder, source_topic("orders", 0, 0, configs=configs), config=link(adopt="orders"))
    assert mirror(builder).state == FAILED_OVER


def test_a_topic_that_a_deleted_link_has_left_is_adopted_by_another_one_alone_that_asks_for_it() -> None:
    builder = in_state(MIRRORING)
    forget_links(builder, [])
    follow(builder, source_topic(), config=link("east"))
    assert (mirror(builder).link, mirror(builder).state) == ("west", STOPPED)
    assert "was mirrored by the link west, which is deleted" in builder.view().links["east"].refused[0][1]
    follow(builder, source_topic(), config=link("east", adopt="orders"))
    assert (mirror(builder).link, mirror(builder).state) == ("east", ADOPTED)


@pytest.mark.parametrize("state", sorted(WRITABLE))
@pytest.mark.parametrize("wish", ["promote", "failover", ""])
def test_a_topic_that_takes_writes_is_adopted_unless_it_is_to_take_them(state: str, wish: str) -> None:
    builder = in_state(state)
    wishes = {wish: "orders"} if wish else {}
    follow(builder, source_topic("orders", 9, 9), config=link("east", adopt="orders", **wishes))
    assert mirror(builder).state == (state if wish else ADOPTED)
    assert mirror(builder).link == ("west" if wish else "east")


def test_an_adopted_topic_is_mirrored_once_the_source_has_all_that_is_here() -> None:
    builder = adopted()
    report(builder, 0, PARTED)
    assert mirror(builder).state == ADOPTED
    report(builder, 1, PARTED)
    assert mirror(builder).state == MIRRORING
    assert mirror(builder).ended == ()


def test_what_the_source_lacks_is_told_and_nothing_else_than_the_operator_has_it_cut() -> None:
    builder = adopted()
    assert mirror(builder).reason == "0 of 2 partitions are looked at"
    report(builder, 0, PARTED, "7 1")
    assert mirror(builder).reason == (
        "1 of 2 partitions are looked at, the source lacks 1 record: partition 0 from offset 7 (1)"
    )
    report(builder, 0, PARTED)
    report(builder, 1, PARTED, "3 2")
    for _ in range(2):
        assert mirror(builder).reason == "the source lacks 2 records: partition 1 from offset 3 (2)"
        for config in (link(adopt="orders"), link(adopt="orders", pause="orders"), link(promote="orders")):
            follow(builder, source_topic("orders", 9, 9), config=config)
        assert mirror(builder).state == ADOPTED
    follow(builder, source_topic("orders", 9, 9), config=link(adopt="orders", discard="orders"))
    assert (mirror(builder).state, mirror(builder).reason) == (MIRRORING, "")
    assert mirror(builder).partings == ((1, 3, 2),)  # groups go back to there
    moved(builder, "orders", PAUSE)
    assert mirror(builder).partings == ()


def test_nothing_is_discarded_before_it_is_known_of_each_partition_what_that_is() -> None:
    builder = adopted()
    config = link(adopt="orders", discard="orders")
    report(builder, 1, PARTED, "3 2")
    follow(builder, source_topic("orders", 9, 9), config=config)
    assert mirror(builder).state == ADOPTED
    report(builder, 0, PARTED, "5 1")
    end_of(take_wishes(builder, config))
    assert (mirror(builder).state, mirror(builder).partings) == (MIRRORING, ((0, 5, 1), (1, 3, 2)))


def test_an_adopted_topic_that_is_failed_over_takes_writes_again() -> None:
    builder = adopted()
    before = epochs(builder)
    follow(builder, source_topic("orders", 9, 9), config=link(adopt="orders", failover="orders"))
    assert mirror(builder).first_epochs == tuple(epoch + 1 for epoch in before)


# --- what cannot be mirrored ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        ("__consumer_offsets", {"topics": "__consumer_offsets"}),
        ("__transaction_state", {"topics": "__transaction_state"}),
        ("consumer_offsets", {"topics": "*", "prefix": "__"}),
        ("__consumer_offsets", {"topics": "__consumer_offsets", "adopt": "*"}),
    ],
)
def test_no_topic_of_this_clusters_coordinators_is_mirrored(topic: str, settings: dict[str, str]) -> None:
    builder = builder_of()
    name = settings.get("prefix", "") + topic
    if "adopt" in settings:
        (creation,) = end_of(create_topics(builder, [NewTopic(name, 2, 1, (), ())], rules()))
        assert not creation.error_code
    follow(builder, source_topic(topic), config=link(**settings))
    assert not builder.view().mirrors
    ((refused, reason),) = builder.view().links["west"].refused
    assert (refused, reason) == (topic, f"{name} is a topic of this cluster's coordinators")


def test_a_copy_of_a_coordinators_topic_under_another_name_is_a_topic_as_any() -> None:
    builder = builder_of()
    follow(builder, source_topic("__consumer_offsets"), config=link(topics="__consumer_offsets", prefix="west."))
    assert mirror(builder, "west.__consumer_offsets").state == MIRRORING


@pytest.mark.parametrize("topics", ["*", "orders"])
def test_what_is_a_mirror_at_the_source_is_not_adopted(topics: str) -> None:
    """Two clusters would mirror each other, and neither take writes."""
    builder = builder_of(source_topic())
    builder.remove_mirror("orders")
    config = link(topics=topics, adopt="orders")
    ours = mirror_of_ours(builder)
    mirrored = mirror_of_ours(builder, **{MIRROR_STATE: MIRRORING})
    for topic, is_adopted in [(ours._replace(configs=None), False), (mirrored, False), (ours, True)]:
        follow(builder, topic, config=config)
        assert ("orders" in builder.view().mirrors) is is_adopted
        assert bool(builder.view().links["west"].refused) is not is_adopted


def test_a_topic_that_each_of_two_clusters_has_adopted_from_the_other_stops_with_the_reason() -> None:
    builder = in_state(MIRRORING)
    follow(builder, mirror_of_ours(builder))  # it takes writes there
    assert mirror(builder).state == MIRRORING
    follow(builder, mirror_of_ours(builder, **{MIRROR_STATE: MIRRORING}))
    assert mirror(builder).state == STOPPED
    assert mirror(builder).reason == "at the source it is mirrored from here, so that neither takes writes"


def test_a_topic_that_takes_writes_is_said_to_be_here_and_not_to_be_mirrored_by_a_link_that_is_gone() -> None:
    builder = in_state(PROMOTED)
    forget_links(builder, ["east"])
    follow(builder, source_topic(), config=link("east"))
    assert builder.view().links["east"].refused == (("orders", "a topic orders is here already"),)


def test_a_topic_of_which_a_source_may_have_said_less_than_there_is_goes_on() -> None:
    builder = builder_of(source_topic(), source_topic("payments"))
    less = source(source_topic("orders", 3))._replace(unsure=frozenset(("orders", "payments")))
    end_of(follow_source(builder, link(), less, rules()))
    assert {mirror(builder, name).state for name in ("orders", "payments")} == {MIRRORING}
    end_of(follow_source(builder, link(), less._replace(unsure=frozenset()), rules()))
    assert {mirror(builder, name).state for name in ("orders", "payments")} == {STOPPED}


# --- settings that are followed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_settings_that_a_mirrored_topic_follows_are_altered_here_once_it_takes_writes(state: str) -> None:
    builder = in_state(state)
    builder.put_overrides((TOPIC, "orders"), {"retention.ms": "7", "segment.ms": "8"})
    (answer,) = alter_configs(builder, [ConfigChange(TOPIC, "orders", {"retention.ms": "1"})])
    if state in WRITABLE:
        assert not answer.error_code
    else:
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert answer.error_message == "The topic is mirrored, and follows its source in retention.ms."
    assert builder.view().overrides(TOPIC, "orders")["retention.ms"] == ("1" if state in WRITABLE else "7")


def test_settings_that_a_mirrored_topic_does_not_follow_are_this_clusters_own() -> None:
    builder = builder_of(source_topic(configs={"retention.ms": "7"}))
    updates = {"retention.ms": "7", "segment.ms": "8"}
    (answer,) = alter_configs(builder, [ConfigChange(TOPIC, "orders", updates, replace=True)])
    assert not answer.error_code
    assert builder.view().overrides(TOPIC, "orders") == updates
    (answer,) = alter_configs(builder, [ConfigChange(TOPIC, "orders", {}, replace=True)])
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_settings_of_tiered_storage_at_the_source_are_not_followed() -> None:
    configs = {"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "7"}
    builder = builder_of(source_topic(configs=configs))
    assert mirror(builder).state == MIRRORING
    assert builder.view().overrides(TOPIC, "orders") == {"retention.ms": "7"}


def test_longer_messages_than_brokers_here_take_are_taken_where_the_source_takes_them() -> None:
    builder = builder_of(source_topic()._replace(defaults={"max.message.bytes": "8000000"}))
    assert builder.view().overrides(TOPIC, "orders") == {"max.message.bytes": "8000000"}


# --- circles ----------------------------------------------------------------------------------------------------------


class Circle:
    """Clusters each of which mirrors the one before it, the first one the last; each has a topic of its own."""

    def __init__(self, names: str, **settings: str) -> None:
        self.clusters: dict[str, ImageBuilder] = {}
        self.links = {
            name: link(name, **{key: text.format(before) for key, text in settings.items()})
            for name, before in zip(names, names[-1] + names[:-1], strict=True)
        }
        self.names = names
        for name in names:
            builder = self.clusters[name] = ImageBuilder(ClusterImage(cluster_id=name))
            builder.put_broker(broker(1))
            self.make(name, f"of-{name}")

    def make(self, cluster: str, topic: str) -> None:
        (creation,) = end_of(create_topics(self.clusters[cluster], [NewTopic(topic, 1, 1, (), ())], rules()))
        assert not creation.error_code

    def shown(self, cluster: str) -> SourceCluster:
        """What a cluster says of itself to the link of the next one."""
        image = self.clusters[cluster].view()
        topics = {}
        for name, topic in image.topics_by_name.items():
            configs = {MIRROR_STATE: image.mirrors[name].state} if name in image.mirrors else {}
            topic_epochs = tuple(partition.leader_epoch for partition in topic.partitions)
            topics[name] = SourceTopic(name, topic.topic_id, topic_epochs, configs)
        return SourceCluster(cluster, topics)

    def look(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for name, before in zip(self.names, self.names[-1] + self.names[:-1], strict=True):
                seen = self.shown(before)
                wanted = {topic: each for topic, each in seen.topics.items() if self.links[name].mirrors(topic)}
                end_of(follow_source(self.clusters[name], self.links[name], seen._replace(topics=wanted), rules()))

    def topics(self, cluster: str) -> set[str]:
        return set(self.clusters[cluster].view().topics_by_name)


def test_a_circle_of_three_clusters_with_patterns_and_prefixes_makes_no_topics_of_topics() -> None:
    circle = Circle("abc", topics="*", prefix="from-{}.")
    circle.look()
    assert {name: circle.topics(name) for name in "abc"} == {
        "a": {"of-a", "from-c.of-c"},
        "b": {"of-b", "from-a.of-a"},
        "c": {"of-c", "from-b.of-b"},
    }


def test_a_circle_of_three_clusters_ends_where_the_topic_is_that_takes_writes() -> None:
    circle = Circle("abc", topics="of-a")
    circle.look()
    assert "of-a" not in circle.clusters["a"].view().mirrors
    assert circle.clusters["a"].view().links["a"].refused == (("of-a", "a topic of-a is here already"),)
    assert [mirror(circle.clusters[name], "of-a").state for name in "bc"] == [MIRRORING, MIRRORING]
    before = [epochs(circle.clusters[name], "of-a") for name in "abc"]
    circle.look()
    assert [epochs(circle.clusters[name], "of-a") for name in "abc"] == before
    assert before[0] < before[1] < before[2]


def test_a_circle_of_three_clusters_is_not_closed_by_an_adoption() -> None:
    circle = Circle("abc", topics="of-a", adopt="of-a")
    circle.look()
    assert "of-a" not in circle.clusters["a"].view().mirrors
    ((_, reason),) = circle.clusters["a"].view().links["a"].refused
    assert reason.startswith("it is mirrored at the source")
