"""The keys and values of the metadata store: whatever an image holds comes back as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.cluster.image.cluster_image import (
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    ImageBuilder,
    PartitionImage,
    TopicImage,
    first_delta,
)
from pybroker.cluster.image.link_states import STATES, UNKNOWN_EPOCH, LinkState, MirroredTopic
from pybroker.cluster.image.quota_entities import entity_of
from pybroker.cluster.store import store_codec, store_links
from pybroker.cluster.store.metadata_store import Changes, Entry
from pybroker.security.acl_bindings import Acl
from pybroker_protocol.uuids import uuid_text

UUIDS = st.binary(min_size=16, max_size=16)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True).map(tuple)
PARTITIONS = st.builds(
    PartitionImage,
    replicas=IDS,
    isr=IDS,
    leader=st.integers(-1, 9),
    leader_epoch=st.integers(0, 2**31 - 1),
    partition_epoch=st.integers(0, 2**31 - 1),
    directories=st.lists(UUIDS, max_size=3).map(tuple),
    elr=IDS,
    last_known_elr=IDS,
    adding_replicas=IDS,
    removing_replicas=IDS,
    leader_recovery_state=st.integers(0, 1),
)
TOPICS = st.lists(
    st.builds(
        TopicImage,
        name=st.text("abc._-", min_size=1, max_size=5),
        topic_id=UUIDS,
        partitions=st.lists(PARTITIONS, min_size=1, max_size=12).map(tuple),
        is_internal=st.just(False),
    ),
    max_size=4,
    unique_by=(lambda topic: topic.name, lambda topic: topic.topic_id),
)
# Group names and broker settings are any text; surrogates cannot come out of a request.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CONFIGS = st.dictionaries(
    st.tuples(st.sampled_from([2, 4, 8, 16, 32]), TEXT), st.dictionaries(TEXT, TEXT, min_size=1, max_size=3), max_size=3
)
BROKERS = st.dictionaries(
    st.integers(0, 99),
    st.builds(
        BrokerRegistration,
        broker_id=st.just(0),
        epoch=st.integers(0, 2**62),
        incarnation_id=UUIDS,
        endpoints=st.dictionaries(TEXT, st.builds(Endpoint, TEXT, st.integers(0, 65_535)), max_size=2),
        rack=st.none() | TEXT,
        fenced=st.booleans(),
        log_dirs=st.lists(UUIDS, max_size=2).map(tuple),
        full_dirs=st.lists(UUIDS, max_size=2).map(tuple),
        cordoned_log_dirs=st.lists(UUIDS, max_size=2).map(tuple),
    ),
    max_size=2,
)

ACLS = st.lists(
    st.builds(Acl, st.integers(2, 7), TEXT, st.integers(3, 4), TEXT, TEXT, st.integers(2, 15), st.integers(2, 3)),
    max_size=4,
)


def image_of(
    topics: list[TopicImage],
    configs: dict[tuple[int, str], dict[str, str]],
    brokers: dict[int, BrokerRegistration],
    acls: Sequence[Acl] = (),
) -> ClusterImage:
    builder = ImageBuilder(ClusterImage(cluster_id="c"))
    for topic in topics:
        builder.put_topic(topic)
    for resource, overrides in configs.items():
        builder.put_overrides(resource, overrides)
    for broker_id, broker in brokers.items():
        builder.put_broker(broker._replace(broker_id=broker_id))
    for acl in acls:
        builder.put_acl(acl)
    builder.put_feature("metadata.version", 30)
    builder.set_next_producer_id(7000)
    return builder.build(1)[0]


def stored(entries: dict[str, bytes], writes: store_codec.Writes) -> dict[str, bytes]:
    kept = {key: value for key, value in entries.items() if key not in writes.deletes}
    return {**kept, **writes.puts}


def decoded(entries: dict[str, bytes]) -> ClusterImage:
    return store_codec.decode({key: Entry(value, 0) for key, value in entries.items()})


def same(one: ClusterImage, other: ClusterImage) -> bool:
    fields = [name for name in ClusterImage.__slots__ if name != "epoch"]
    return all(getattr(one, field) == getattr(other, field) for field in fields)


@settings(max_examples=40, deadline=None)
@given(TOPICS, CONFIGS, BROKERS, ACLS)
def test_image_comes_back_from_its_keys(
    topics: list[TopicImage],
    configs: dict[tuple[int, str], dict[str, str]],
    brokers: dict[int, BrokerRegistration],
    acls: list[Acl],
) -> None:
    image = image_of(topics, configs, brokers, acls)
    writes = store_codec.encode(ClusterImage(), image, first_delta(image))
    assert same(decoded(writes.puts), image)


@settings(max_examples=40, deadline=None)
@given(TOPICS, CONFIGS, TOPICS, CONFIGS)
def test_writes_of_a_change_turn_the_old_keys_into_the_new_image(
    topics: list[TopicImage],
    configs: dict[tuple[int, str], dict[str, str]],
    new_topics: list[TopicImage],
    new_configs: dict[tuple[int, str], dict[str, str]],
) -> None:
    before = image_of(topics, configs, {})
    entries = store_codec.encode(ClusterImage(), before, first_delta(before)).puts
    builder = ImageBuilder(before)
    for topic in topics:
        # Partitions never become fewer, so a topic that stays under its id only grows.
        same_name = next((new for new in new_topics if new.name == topic.name), None)
        if same_name is None or same_name.topic_id != topic.topic_id:
            builder.remove_topic(topic.topic_id)
    for topic in new_topics:
        # No topic ever gets the id of one that was there before.
        if topic.topic_id not in before.topics_by_id:
            builder.put_topic(topic)
    for resource in configs:
        builder.put_overrides(resource, {})
    for resource, overrides in new_configs.items():
        builder.put_overrides(resource, overrides)
    after = builder.view()
    writes = store_codec.encode(before, after, builder.delta())
    assert same(decoded(stored(entries, writes)), after)


def test_change_of_one_partition_writes_its_key_alone() -> None:
    partition = PartitionImage((1,), (1,), 1)
    before = image_of([TopicImage("a", bytes(16), (partition, partition, partition))], {}, {})
    builder = ImageBuilder(before)
    changed = partition._replace(leader=2)
    builder.put_topic(TopicImage("a", bytes(16), (partition, changed, partition)))
    writes = store_codec.encode(before, builder.view(), builder.delta())
    assert list(writes.puts) == [store_codec.partition_key(bytes(16), 1)]
    assert not writes.deletes


@pytest.mark.parametrize("name", ["", "%", "a/b", "<default>", "ü b", "..", "\x00"])
def test_names_of_resources_make_paths_of_one_safe_level(name: str) -> None:
    key = store_codec.config_key((32, name))
    assert key.count("/") == 3
    assert key.isascii()
    assert key.isprintable()


REFUSED = st.dictionaries(TEXT, TEXT, max_size=2).map(lambda found: tuple(found.items()))
NOT_CARRIED = st.lists(TEXT, max_size=2).map(tuple)
BROUGHT_ACLS = st.lists(st.one_of(st.tuples(UUIDS, UUIDS), UUIDS.map(lambda same: (same, same))), max_size=2).map(tuple)
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | TEXT, min_size=1).map(
    lambda parts: entity_of(parts.items())
)
BROUGHT_QUOTAS = st.lists(st.tuples(ENTITIES, TEXT), max_size=2).map(tuple)
NUMBERS = st.integers(0, 1 << 50)
LINKS = st.dictionaries(
    st.text("abz09_-", min_size=1, max_size=5),
    st.builds(LinkState, TEXT, TEXT, REFUSED, NOT_CARRIED, BROUGHT_ACLS, BROUGHT_QUOTAS, NUMBERS),
    max_size=2,
)
PARTINGS = st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 3), max_size=2).map(tuple)
ENDED = st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 2), max_size=2).map(tuple)
MIRRORS = st.dictionaries(
    st.text("abc._-", min_size=1, max_size=5),
    st.builds(MirroredTopic, TEXT, TEXT, UUIDS, st.sampled_from(STATES), TEXT, ENDED, IDS, PARTINGS, NUMBERS, NUMBERS),
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(LINKS, MIRRORS, LINKS, MIRRORS)
def test_links_and_mirrored_topics_come_back_from_their_keys_and_their_changes(
    links: dict[str, LinkState],
    mirrors: dict[str, MirroredTopic],
    new_links: dict[str, LinkState],
    new_mirrors: dict[str, MirroredTopic],
) -> None:
    builder = ImageBuilder(ClusterImage())
    for link, state in links.items():
        builder.put_link(link, state)
    for name, mirror in mirrors.items():
        builder.put_mirror(name, mirror)
    before = builder.build(1)[0]
    entries = store_codec.encode(ClusterImage(), before, first_delta(before)).puts
    assert same(decoded(entries), before)
    changing, follower = ImageBuilder(before), ImageBuilder(before)
    changing.become(ClusterImage(links=new_links, mirrors=new_mirrors))
    writes = store_codec.encode(before, changing.view(), changing.delta())
    assert same(decoded(stored(entries, writes)), changing.view())
    store_codec.apply_changes(follower, Changes(2, writes.puts, writes.deletes))
    assert same(follower.view(), changing.view())


def test_ends_that_an_older_version_has_kept_are_of_no_known_leader_epoch() -> None:
    fields = {"link": "west", "sourceTopic": "orders", "sourceId": uuid_text(bytes(16)), "state": "promoting"}
    kept = [decoded_mirror({**fields, "ended": [0, 2]}), decoded_mirror({**fields, "ended": [0, 2], "endedIn": [7]})]
    assert [mirror.ended for mirror in kept] == [((0, UNKNOWN_EPOCH), (2, UNKNOWN_EPOCH))] * 2
    assert decoded_mirror({**fields, "ended": [0, 2], "endedIn": [7, 9]}).ended == ((0, 7), (2, 9))


def decoded_mirror(fields: dict[str, Any]) -> MirroredTopic:
    builder = ImageBuilder(ClusterImage())
    store_links.put_into(builder, store_links.mirror_key("orders"), fields)
    return builder.view().mirrors["orders"]
