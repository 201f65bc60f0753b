"""The immutable image, the builder's sharing, and the cache that hands images on."""

from __future__ import annotations

import pytest

from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    ImageBuilder,
    ImageDelta,
    PartitionImage,
    TopicImage,
    first_delta,
)
from pybroker.cluster.image.listener_view import ListenerView
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker_protocol.errors import ErrorCode


def topic(name: str, number: int = 1, partitions: int = 1) -> TopicImage:
    return TopicImage(name, bytes([number]) * 16, (PartitionImage((1,), (1,), 1),) * partitions)


def image_of(*topics: TopicImage) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    for each in topics:
        builder.put_topic(each)
    return builder.build(1)[0]


def test_builder_leaves_the_image_before_as_it_was() -> None:
    before = image_of(topic("a"))
    builder = ImageBuilder(before)
    builder.put_topic(topic("b", 2))
    builder.put_overrides((2, "b"), {"retention.ms": "1"})
    after, _ = builder.build(2)
    assert set(before.topics_by_name) == {"a"}
    assert not before.configs
    assert set(after.topics_by_name) == {"a", "b"}
    assert (before.epoch, after.epoch) == (1, 2)


def test_builder_shares_what_did_not_change() -> None:
    before = image_of(topic("a"))
    builder = ImageBuilder(before)
    builder.put_overrides((2, "a"), {"retention.ms": "1"})
    after, _ = builder.build(2)
    assert after.topics_by_name is before.topics_by_name
    assert after.brokers is before.brokers


def test_delta_names_created_changed_and_deleted_topics() -> None:
    before = image_of(topic("a", 1), topic("b", 2))
    builder = ImageBuilder(before)
    builder.remove_topic(topic("a", 1).topic_id)
    grown = topic("b", 2, partitions=2)
    builder.put_topic(grown)
    builder.put_topic(topic("c", 3))
    _, delta = builder.build(2)
    assert [created.name for created in delta.topics_created] == ["c"]
    assert [deleted.name for deleted in delta.topics_deleted] == ["a"]
    assert delta.topics_changed == ((before.topics_by_name["b"], grown),)


def test_topic_created_anew_under_its_name_is_both_deleted_and_created() -> None:
    builder = ImageBuilder(image_of(topic("a", 1)))
    builder.remove_topic(topic("a", 1).topic_id)
    builder.put_topic(topic("a", 2))
    after, delta = builder.build(2)
    assert [created.topic_id[0] for created in delta.topics_created] == [2]
    assert [deleted.topic_id[0] for deleted in delta.topics_deleted] == [1]
    assert set(after.topics_by_id) == {bytes([2]) * 16}


def test_topic_created_and_deleted_in_one_build_is_no_change() -> None:
    builder = ImageBuilder(image_of())
    builder.put_topic(topic("a"))
    builder.remove_topic(topic("a").topic_id)
    assert builder.delta() == ImageDelta()


def test_view_shows_changes_that_are_not_built_yet() -> None:
    builder = ImageBuilder(image_of())
    builder.put_topic(topic("a"))
    assert "a" in builder.view().topics_by_name


def test_first_delta_has_everything_as_created() -> None:
    builder = ImageBuilder(image_of(topic("a")))
    builder.put_overrides((2, "a"), {"retention.ms": "1"})
    builder.put_broker(BrokerRegistration(1, 0, bytes(16), {}))
    image, _ = builder.build(2)
    delta = first_delta(image)
    assert [created.name for created in delta.topics_created] == ["a"]
    assert delta.configs_changed == ((2, "a"),)
    assert delta.brokers_changed == (1,)


@pytest.mark.parametrize(("index", "leader"), [(0, 1), (1, None), (-1, None)])
def test_leader_of_a_partition_that_does_not_exist_is_none(index: int, leader: int | None) -> None:
    cache = MetadataCache(image_of(topic("a")))
    assert cache.leader("a", index) == leader
    assert cache.leader("nope", index) is None


def test_listeners_hear_of_an_image_after_it_became_current_and_until_they_unsubscribe() -> None:
    cache = MetadataCache()
    seen: list[tuple[int, int]] = []
    unsubscribe = cache.subscribe(lambda image, delta: seen.append((image.epoch, cache.image.epoch)))
    cache.apply(ClusterImage(epoch=1), ImageDelta())
    unsubscribe()
    cache.apply(ClusterImage(epoch=2), ImageDelta())
    assert seen == [(1, 1)]


def test_listener_hears_of_an_image_though_others_failed_on_it(caplog: pytest.LogCaptureFixture) -> None:
    cache = MetadataCache()
    seen: list[int] = []

    def fail(image: ClusterImage, delta: ImageDelta) -> None:
        raise RuntimeError("bug")

    for listener in (fail, fail, lambda image, _: seen.append(image.epoch)):
        cache.subscribe(listener)
    with pytest.raises(RuntimeError, match="bug"):
        cache.apply(ClusterImage(epoch=1), ImageDelta())
    assert seen == [1]
    assert caplog.text.count("RuntimeError: bug") == 1, "the one that is not raised is told"


def brokers() -> dict[int, BrokerRegistration]:
    both = {"A": Endpoint("a", 1), "B": Endpoint("b", 2)}
    return {
        1: BrokerRegistration(1, 0, bytes(16), both, rack="r"),
        2: BrokerRegistration(2, 0, bytes(16), {"A": Endpoint("a2", 3)}),
        3: BrokerRegistration(3, 0, bytes(16), both, fenced=True),
    }


def test_view_of_a_listener_has_the_live_brokers_that_it_leads_to() -> None:
    view = ListenerView(brokers(), "B")
    assert [(broker.broker_id, broker.host, broker.port, broker.rack) for broker in view.live.values()] == [
        (1, "b", 2, "r")
    ]
    assert [broker.broker_id for broker in view.registered] == [1, 3]
    assert view.offline(PartitionImage((1, 2, 3, 4), (), 1)) == [2, 3, 4]
    assert view.reachable((1, 2, 3, 4)) == [1]


@pytest.mark.parametrize(
    ("leader", "answer"),
    [
        (1, (1, ErrorCode.NONE)),
        (2, (NO_LEADER, ErrorCode.LISTENER_NOT_FOUND)),
        (9, (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)),
        (NO_LEADER, (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)),
    ],
)
def test_leader_that_the_listener_does_not_lead_to_is_not_named(leader: int, answer: tuple[int, int]) -> None:
    assert ListenerView(brokers(), "B").leader(PartitionImage((1,), (1,), leader)) == answer


def test_view_is_made_anew_when_a_broker_changes() -> None:
    cache = MetadataCache()
    old = cache.view("A")
    builder = ImageBuilder(cache.image)
    builder.put_broker(brokers()[1])
    cache.apply(*builder.build(1))
    assert cache.view("A") is not old
    assert cache.view("A") is cache.view("A")
