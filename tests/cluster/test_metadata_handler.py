"""Metadata (key 3): which topics, which leaders, creation at need, and the encoding out of fragments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import MorePartitions, NewTopic
from pybroker.cluster.failure_detection.recently_fenced import FENCED_NAMED_MS
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, Endpoint, ImageBuilder
from pybroker.cluster.image.quota_entities import CONTROLLER_MUTATION_RATE
from pybroker.cluster_limits import SUSPICION_HOLD_MS
from pybroker.handlers import metadata as handler
from pybroker.handlers.context import Parked
from pybroker.quotas.client_quotas import ClientQuotas
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.handled import answer_of

from .fakes import CLUSTER_ID, LISTENER, FakeCluster

LATEST = 13
ALL_VERSIONS = range(LATEST + 1)
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096
NOT_ASKED = -(2**31)


def named(*names: str | None, ids: tuple[bytes, ...] = ()) -> list[MetadataRequestTopic]:
    by_name = [MetadataRequestTopic(topic_id=bytes(16), name=name) for name in names]
    return by_name + [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]


def ask(
    cluster: FakeCluster,
    topics: list[MetadataRequestTopic] | None,
    version: int = LATEST,
    listener: str = "PLAINTEXT",
    **options: Any,
) -> MetadataResponse:
    """The reply as a client decodes it."""
    options = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False, **options}
    request = MetadataRequest(topics=topics, include_cluster_authorized_operations=False)
    for name, value in options.items():
        setattr(request, name, value)
    answer = cluster.handle(handler, request, version, listener)
    return decoded(answer, version)


def decoded(answer: Any, version: int) -> MetadataResponse:
    parts: list[Any] = []
    handler.encoder(version)(answer, parts)
    return codec.decode(MetadataResponse, version, b"".join(parts))


def create(cluster: FakeCluster, *names: str, partitions: int = 1) -> None:
    cluster.ask(cluster.controller.create_topics, [NewTopic(name, partitions, 1) for name in names])


def rows(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_names_brokers_and_leaders(cluster: FakeCluster, version: int) -> None:
    create(cluster, "a", partitions=2)
    response = ask(cluster, named("a"), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == ("a", 0)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert partition.offline_replicas == []
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == CLUSTER_ID
    if version >= 10:
        assert topic.topic_id == cluster.cache.image.topics_by_name["a"].topic_id


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_assembled_reply_is_what_the_codec_would_encode(cluster: FakeCluster, version: int) -> None:
    create(cluster, *(f"topic-{number}" for number in range(200)))
    request = MetadataRequest(topics=None if version else [])
    request.allow_auto_topic_creation = False
    answer = cluster.handle(handler, request, version)
    parts: list[Any] = []
    handler.encoder(version)(answer, parts)
    assembled = b"".join(parts)
    assert codec.encode(codec.decode(MetadataResponse, version, assembled), version) == assembled


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_are_asked_for_with_null_and_in_version_0_with_an_empty_list(
    cluster: FakeCluster, version: int
) -> None:
    create(cluster, "a", "b")
    everything = ask(cluster, [] if version == 0 else None, version)
    assert sorted(name or "" for name, _ in rows(everything)) == ["a", "b"]
    if version > 0:
        assert ask(cluster, [], version).topics == []


def test_replies_answer_by_the_listener_of_the_request(cluster: FakeCluster) -> None:
    (broker,) = ask(cluster, None, listener="OTHER").brokers
    assert (broker.host, broker.port) == ("other.example", 9999)


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_leader_without_the_listener_is_an_error_of_the_partition(
    cluster: FakeCluster, version: int, error: ErrorCode
) -> None:
    create(cluster, "a")
    response = ask(cluster, named("a"), version, listener="NOWHERE")
    assert response.brokers == []
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert partition.offline_replicas == [1]
    assert response.controller_id == -1


def test_version_0_leaves_unreachable_replicas_out_and_says_so(cluster: FakeCluster) -> None:
    create(cluster, "a")
    builder = ImageBuilder(cluster.cache.image)
    topic = cluster.cache.image.topics_by_name["a"]
    partition = topic.partitions[0]._replace(replicas=(1, 7), isr=(1, 7))
    builder.put_topic(topic._replace(partitions=(partition,)))
    cluster.cache.apply(*builder.build(cluster.cache.image.epoch + 1))
    (old,) = ask(cluster, named("a"), 0).topics[0].partitions
    assert (old.error_code, old.leader_id, old.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1, [1])
    (new,) = ask(cluster, named("a"), 5).topics[0].partitions
    assert (new.error_code, new.replica_nodes, new.offline_replicas) == (0, [1, 7], [7])


def test_missing_and_invalid_names_have_codes_of_their_own(cluster: FakeCluster) -> None:
    create(cluster, "a")
    response = ask(cluster, named("nope", "a b", "a", "a"))
    assert rows(response) == [
        ("a", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_topics_are_found_by_id_from_version_12(cluster: FakeCluster) -> None:
    create(cluster, "a")
    topic_id = cluster.cache.image.topics_by_name["a"].topic_id
    response = ask(cluster, named(ids=(topic_id, b"?" * 16)), 12)
    assert rows(response) == [("a", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert response.topics[1].topic_id == b"?" * 16


@pytest.mark.parametrize(
    ("version", "topics"),
    [(10, named(None)), (11, named(ids=(b"x" * 16,))), (12, named(None)), (13, named("a", None))],
)
def test_topic_that_cannot_be_meant_refuses_the_request(
    cluster: FakeCluster, version: int, topics: list[MetadataRequestTopic]
) -> None:
    response = ask(cluster, topics, version)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}
    assert len(response.topics) == len(topics)
    assert response.brokers == []


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
def test_authorized_operations_are_given_when_asked(cluster: FakeCluster, version: int) -> None:
    create(cluster, "a")
    asked: dict[str, Any] = {"include_topic_authorized_operations": True}
    if version <= 10:
        asked["include_cluster_authorized_operations"] = True
    response = ask(cluster, named("a", "nope"), version, **asked)
    assert [topic.topic_authorized_operations for topic in response.topics] == [TOPIC_OPERATIONS] * 2
    assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED)
    unasked = ask(cluster, named("a", "nope"), version)
    assert [topic.topic_authorized_operations for topic in unasked.topics] == [NOT_ASKED] * 2


def test_internal_topics_are_marked(cluster: FakeCluster) -> None:
    cluster.ask(cluster.auto_topics.ensure, "__consumer_offsets")
    create(cluster, "a")
    marked = {topic.name: topic.is_internal for topic in ask(cluster, None).topics}
    assert marked == {"__consumer_offsets": True, "a": False}


# ------------------------------------------------------------------ creation


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ask_again(cluster: FakeCluster, *names: str, version: int = LATEST) -> dict[str | None, int]:
    """What is told of the names once all that was begun is done."""
    cluster.world.run()
    return dict(rows(ask(cluster, named(*names), version)))


def test_missing_topic_is_unknown_while_it_is_being_created_and_then_has_a_leader(cluster: FakeCluster) -> None:
    cluster.world.thread("metadata-store").is_stuck = True
    for _ in range(2):
        response = ask(cluster, named("a", "b"), allow_auto_topic_creation=True)
        assert rows(response) == [("a", UNKNOWN), ("b", UNKNOWN)]
        assert [topic.partitions for topic in response.topics] == [[], []]
        cluster.world.run()
    cluster.world.thread("metadata-store").is_stuck = False
    assert ask_again(cluster, "a", "b") == {"a": 0, "b": 0}
    response = ask(cluster, named("a", "b"))
    assert all(partition.leader_id == 1 for topic in response.topics for partition in topic.partitions)


def test_deleted_topic_is_unknown_in_the_next_reply_to_who_would_have_it_created(cluster: FakeCluster) -> None:
    create(cluster, "a")
    cluster.ask(cluster.controller.delete_topics, ["a"])
    assert rows(ask(cluster, named("a"), allow_auto_topic_creation=True)) == [("a", UNKNOWN)]
    assert ask_again(cluster, "a") == {"a": 0}


def test_topic_that_is_deleted_while_another_one_is_created_keeps_nobody_waiting(cluster: FakeCluster) -> None:
    create(cluster, "going")
    cluster.controller.delete_topics(["going"], lambda results: None)
    response = ask(cluster, named("going", "coming"), allow_auto_topic_creation=True)
    assert dict(rows(response)) == {"going": 0, "coming": UNKNOWN}
    assert ask_again(cluster, "going", "coming") == {"going": UNKNOWN, "coming": 0}


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("count", [1, 126, 127, 20_000])
def test_any_number_of_unknown_topics_is_answered(cluster: FakeCluster, version: int, count: int) -> None:
    create(cluster, "known")
    names = ["known", *(f"none{number}" for number in range(count))]
    response = ask(cluster, named(*names), version, include_topic_authorized_operations=version >= 8)
    assert rows(response) == [("known", 0), *((name, UNKNOWN) for name in names[1:])]


@pytest.mark.parametrize(("allowed", "enabled"), [(False, "true"), (True, "false")])
def test_nothing_is_created_unless_both_the_request_and_the_broker_allow_it(
    tmp_path: Path, allowed: bool, enabled: str
) -> None:
    cluster = FakeCluster(tmp_path, {"auto.create.topics.enable": enabled}).start()
    assert rows(ask(cluster, named("a"), allow_auto_topic_creation=allowed)) == [("a", UNKNOWN)]
    assert ask_again(cluster, "a") == {"a": UNKNOWN}
    cluster.close()


@pytest.mark.parametrize("version", [0, 3])
def test_versions_without_the_field_allow_creation(cluster: FakeCluster, version: int) -> None:
    frame = codec.encode(MetadataRequest(topics=named("a")), version)
    request = codec.decode(MetadataRequest, version, frame)
    assert rows(decoded(cluster.handle(handler, request, version), version)) == [("a", UNKNOWN)]
    assert ask_again(cluster, "a", version=LATEST) == {"a": 0}


@pytest.mark.parametrize(
    ("rate", "created"),
    # A bucket holds what eleven seconds let through, and the last that takes from it may empty it.
    [(None, 1_000), (2.0, 2 * 11 + 1), (1e6, 1_000)],
)
def test_missing_topics_are_created_up_to_the_quota_of_whoever_asks(
    cluster: FakeCluster, rate: float | None, created: int
) -> None:
    cluster.quotas = ClientQuotas(cluster.env, cluster.config)
    if rate is not None:
        cluster.quotas.on_image(ClusterImage(quotas={(("user", "ANONYMOUS"),): {CONTROLLER_MUTATION_RATE: rate}}))
    names = [f"t{number}" for number in range(1_000)]
    response = ask(cluster, named(*names), allow_auto_topic_creation=True)
    assert rows(response) == [(name, UNKNOWN) for name in names], "as those that are being created"
    cluster.world.run()
    assert len(cluster.cache.image.topics_by_name) == created


def test_topics_left_out_for_a_quota_are_created_when_they_are_asked_for_again(cluster: FakeCluster) -> None:
    cluster.quotas = ClientQuotas(cluster.env, cluster.config)
    cluster.quotas.on_image(ClusterImage(quotas={(("user", "ANONYMOUS"),): {CONTROLLER_MUTATION_RATE: 1.0}}))
    names = [f"t{number}" for number in range(20)]
    for passes_ms, created in ((0, 12), (0, 12), (9_000, 20)):
        cluster.world.advance(passes_ms)
        ask(cluster, named(*names), allow_auto_topic_creation=True)
        cluster.world.run()
        assert len(cluster.cache.image.topics_by_name) == created


def test_names_that_cannot_be_created_do_not_keep_the_others_from_it(cluster: FakeCluster) -> None:
    create(cluster, "x.y")
    wanted = ("a b", "x_y", "good")
    response = ask(cluster, named(*wanted), allow_auto_topic_creation=True)
    invalid = {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert dict(rows(response)) == {"good": UNKNOWN, "x_y": UNKNOWN, **invalid}
    assert ask_again(cluster, *wanted) == {"good": 0, "x_y": UNKNOWN, **invalid}


def test_topics_are_never_created_by_id_or_for_everything(cluster: FakeCluster) -> None:
    ask(cluster, None, allow_auto_topic_creation=True)
    ask(cluster, named(ids=(b"x" * 16,)), allow_auto_topic_creation=True)
    cluster.world.run()
    assert not cluster.cache.image.topics_by_name


def test_internal_topic_that_is_missing_gets_its_own_configs(cluster: FakeCluster) -> None:
    ask(cluster, named("__consumer_offsets"), allow_auto_topic_creation=True)
    cluster.world.run()
    assert cluster.cache.image.overrides(2, "__consumer_offsets")["cleanup.policy"] == "compact"


# ------------------------------------------------------------------ fragments


def test_reply_shows_a_change_at_once(cluster: FakeCluster) -> None:
    create(cluster, "a", "b")
    assert len(ask(cluster, named("a")).topics[0].partitions) == 1
    cluster.ask(cluster.controller.create_partitions, [MorePartitions("a", 3)])
    assert len(ask(cluster, named("a")).topics[0].partitions) == 3
    before = ask(cluster, named("b")).topics[0].topic_id
    cluster.ask(cluster.controller.delete_topics, ["b"])
    create(cluster, "b")
    assert ask(cluster, named("b")).topics[0].topic_id != before


def test_topic_that_did_not_change_is_encoded_once(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    create(cluster, "a", "b")
    ask(cluster, None)
    encoded: list[str | None] = []
    real = handler._encode_topics

    def counting(topics: list[MetadataResponseTopic], version: int) -> bytes:
        encoded.extend(topic.name for topic in topics)
        return real(topics, version)

    monkeypatch.setattr(handler, "_encode_topics", counting)
    create(cluster, "c")
    cluster.ask(cluster.controller.create_partitions, [MorePartitions("a", 2)])
    ask(cluster, None)
    ask(cluster, None)
    assert sorted(encoded, key=str) == ["a", "c"]


def test_fragments_of_deleted_topics_are_dropped(cluster: FakeCluster) -> None:
    create(cluster, "a", "b")
    ask(cluster, None)
    cluster.ask(cluster.controller.delete_topics, ["a"])
    fragments = cluster.cache.view("PLAINTEXT").topic_fragments
    assert set(fragments[LATEST]) == {cluster.cache.image.topics_by_name["b"].topic_id}


# --- while a broker's death is in doubt -------------------------------------------------------------------------------


def test_an_answer_waits_while_a_brokers_death_is_in_doubt_and_says_what_was_decided(cluster: FakeCluster) -> None:
    cluster.suspected_brokers.begin(2)
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=False)
    parked = answer_of(handler.handle(cluster.context(LATEST), request))
    assert isinstance(parked, Parked)
    create(cluster, "made-meanwhile")
    cluster.suspected_brokers.end(2)
    cluster.world.run()
    assert [topic.name for topic in decoded(parked.response, LATEST).topics] == ["made-meanwhile"]


def test_an_answer_does_not_wait_for_ever(cluster: FakeCluster) -> None:
    cluster.suspected_brokers.begin(2)
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=False)
    parked = answer_of(handler.handle(cluster.context(LATEST), request))
    cluster.world.advance(SUSPICION_HOLD_MS)
    assert parked.completed


def test_who_goes_away_waits_for_no_certainty(cluster: FakeCluster) -> None:
    cluster.suspected_brokers.begin(2)
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=False)
    parked = answer_of(handler.handle(cluster.context(LATEST), request))
    parked.abandon()
    cluster.suspected_brokers.end(2)
    cluster.world.run()
    assert not parked.completed


def test_a_broker_that_was_fenced_a_moment_ago_is_named_and_leads_nothing(cluster: FakeCluster) -> None:
    builder = ImageBuilder(cluster.cache.image)
    other = BrokerRegistration(2, 0, bytes(16), {LISTENER: Endpoint("two.example", 9092)})
    builder.put_broker(other)
    cluster.cache.apply(*builder.build(cluster.cache.image.epoch + 1))
    builder = ImageBuilder(cluster.cache.image)
    builder.put_broker(other._replace(fenced=True))
    cluster.cache.apply(*builder.build(cluster.cache.image.epoch + 1))
    assert [broker.node_id for broker in ask(cluster, []).brokers] == [1, 2]
    cluster.world.advance(FENCED_NAMED_MS)
    assert [broker.node_id for broker in ask(cluster, []).brokers] == [1]
