"""Topics that are created at need: each name once at a time, and nobody's fault is another's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from harness.virtual_world import VirtualWorld
from harness.waiting import wait_until

from pybroker.cluster.controller import auto_topic_creation
from pybroker.cluster.controller.auto_topic_creation import AUTO_CREATIONS_PER_TURN
from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
from pybroker.cluster.image.coordinator_table import GROUPS, TRANSACTIONS
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.too_few_brokers import TooFewBrokersWarning, too_few_brokers_now
from pybroker.config.broker import BrokerConfig
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode

from .fakes import FakeCluster


def topics(cluster: FakeCluster) -> set[str]:
    return set(cluster.cache.image.topics_by_name)


def test_topic_that_is_needed_many_times_is_created_once(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[str] = []
    create_topics = cluster.controller.create_topics

    def counting(wanted: list[NewTopic], done: Any) -> None:
        created.extend(topic.name for topic in wanted)
        create_topics(wanted, done)

    monkeypatch.setattr(cluster.auto_topics, "_create_topics", counting)
    for _ in range(3):
        cluster.auto_topics.begin(["a", "b"])
    assert not topics(cluster), "nothing is created inside the call"
    cluster.world.run()
    assert topics(cluster) == {"a", "b"}
    assert created == ["a", "b"]


def test_who_waits_for_one_topic_shares_its_creation(cluster: FakeCluster) -> None:
    answers: list[int] = []
    cluster.auto_topics.begin([GROUPS.topic])
    for _ in range(3):
        cluster.auto_topics.ensure(GROUPS.topic, answers.append)
    assert not answers
    cluster.world.run()
    assert answers == [0, 0, 0]
    cluster.auto_topics.ensure(GROUPS.topic, answers.append)
    assert answers == [0, 0, 0], "no answer comes inside the call"
    cluster.world.run()
    assert answers == [0, 0, 0, 0]


def test_who_waits_for_a_topic_is_told_though_another_one_fails(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error_code: int) -> None:
        raise KeyError("b")

    answers: list[int] = []
    for done in (answers.append, fail, answers.append, fail, answers.append):
        cluster.auto_topics.ensure(GROUPS.topic, done)
    cluster.world.run()
    assert answers == [0, 0, 0]
    assert caplog.text.count(f"a callback that waited for topic {GROUPS.topic} failed") == 2


def test_creation_beside_a_create_request_is_no_error(cluster: FakeCluster) -> None:
    answers: list[Any] = []
    cluster.controller.create_topics([NewTopic(GROUPS.topic, 4, 1)], answers.append)
    cluster.auto_topics.ensure(GROUPS.topic, answers.append)
    cluster.world.run()
    assert answers[1] == 0
    assert len(cluster.cache.image.topics_by_name[GROUPS.topic].partitions) == 4


def test_refused_topic_can_be_asked_for_again_and_the_log_has_the_reason_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(tmp_path, {"default.replication.factor": "2"}).start()
    for _ in range(3):
        cluster.auto_topics.begin(["a"])
        cluster.world.run()
    assert not topics(cluster)
    assert caplog.text.count("topic a is asked for, and cannot be created") == 1
    answers = [cluster.ask(cluster.auto_topics.ensure, GROUPS.topic) for _ in range(2)]
    assert answers == [0, 0], "internal topics have a replication factor of their own"
    cluster.close()


def test_names_without_end_that_cannot_be_created_cause_no_lines_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(tmp_path, {"default.replication.factor": "2"}).start()
    cluster.auto_topics.begin([f"t{number}" for number in range(50)])
    cluster.world.run()
    assert caplog.text.count("cannot be created") == 1
    cluster.auto_topics.close()
    assert "49 more of topics that are asked for" in caplog.text
    cluster.close()


def test_refusals_that_were_told_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.cluster.controller.auto_topic_creation.REFUSED_CREATIONS_REMEMBERED", 5)
    cluster = FakeCluster(tmp_path, {"default.replication.factor": "2"}).start()
    for number in range(23):
        cluster.auto_topics.begin([f"t{number}"])
        cluster.world.run()
        assert len(cluster.auto_topics._logged_refusals) <= 5
    cluster.close()


def test_thousands_of_topics_are_begun_over_many_turns(cluster: FakeCluster) -> None:
    names = {f"t{number}" for number in range(3 * AUTO_CREATIONS_PER_TURN + 1)}
    submitted: list[int] = []
    begin_some = cluster.auto_topics._begin_some

    def counting() -> None:
        before = len(cluster.auto_topics._not_begun)
        begin_some()
        submitted.append(before - len(cluster.auto_topics._not_begun))

    cluster.auto_topics._begin_some = counting  # type: ignore[method-assign]
    cluster.auto_topics.begin(names)
    cluster.world.run()
    assert submitted == [AUTO_CREATIONS_PER_TURN] * 3 + [1]
    assert topics(cluster) == names


def test_names_that_nobody_waits_for_have_a_bound_and_can_be_asked_for_later(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_topic_creation, "AUTO_CREATIONS_IN_FLIGHT_MAX", 3)
    cluster.world.thread("metadata-store").is_stuck = True
    for first in (0, 2, 4):
        cluster.auto_topics.begin([f"t{first}", f"t{first + 1}"])
        cluster.world.run()
    answers: list[int] = []
    cluster.auto_topics.ensure(GROUPS.topic, answers.append)  # somebody waits: it is not left out
    cluster.world.thread("metadata-store").is_stuck = False
    cluster.world.run()
    assert topics(cluster) == {"t0", "t1", "t2", GROUPS.topic}
    assert answers == [0]
    cluster.auto_topics.begin(["t3", "t4", "t5"])
    cluster.world.run()
    assert topics(cluster) == {*(f"t{number}" for number in range(6)), GROUPS.topic}


def test_topics_count_once_for_whoever_asks_first_with_their_partitions(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"num.partitions": "3", "offsets.topic.num.partitions": "7"}).start()
    counted: list[int] = []

    def allows(partitions: int) -> bool:
        counted.append(partitions)
        return len(counted) < 3

    for _ in range(2):
        cluster.auto_topics.begin(["a", GROUPS.topic], allows)
    cluster.auto_topics.begin(["b", "c"], allows)
    cluster.world.run()
    assert counted == [3, 7, 3], "what is refused is not counted on"
    assert topics(cluster) == {"a", GROUPS.topic}
    cluster.close()


def test_consumer_offsets_has_kafkas_configs_and_of_a_lone_broker_one_replica(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"offsets.topic.num.partitions": "7"}).start()
    assert cluster.ask(cluster.auto_topics.ensure, GROUPS.topic) == 0
    image = cluster.cache.image
    topic = image.topics_by_name[GROUPS.topic]
    assert topic.is_internal
    assert len(topic.partitions) == 7
    assert topic.partitions[0].replicas == (1,)
    assert image.overrides(2, GROUPS.topic) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    cluster.close()


@pytest.mark.parametrize(
    ("setting", "topic"),
    [
        ("offsets.topic.replication.factor", GROUPS.topic),
        ("transaction.state.log.replication.factor", TRANSACTIONS.topic),
    ],
)
def test_replication_of_internal_topics_that_somebody_set_is_not_shrunk(
    tmp_path: Path, setting: str, topic: str
) -> None:
    cluster = FakeCluster(tmp_path, {setting: "2"}).start()
    assert cluster.ask(cluster.auto_topics.ensure, topic) == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.close()


@pytest.mark.parametrize("topic", [GROUPS.topic, TRANSACTIONS.topic])
def test_internal_topics_wait_until_a_cluster_that_starts_slowly_has_brokers_for_all_replicas(
    tmp_path: Path, topic: str
) -> None:
    cluster = FakeCluster(tmp_path, {"pybroker.metadata": "sqlite:///shared.db"}).start()
    assert cluster.ask(cluster.auto_topics.ensure, topic) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert topic not in topics(cluster), "what a topic begins with it keeps for good"
    cluster.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ""),
        (
            {"pybroker.metadata": "sqlite:///shared.db"},
            "1 broker is registered, so that groups and transactions cannot begin before more join, or fewer replicas "
            "are set: offsets.topic.replication.factor=3, transaction.state.log.replication.factor=3",
        ),
        (
            {"pybroker.metadata": "sqlite:///shared.db", "offsets.topic.replication.factor": "1"},
            "1 broker is registered, so that transactions cannot begin before more join, or fewer replicas are set: "
            "transaction.state.log.replication.factor=3",
        ),
        (
            {
                "pybroker.metadata": "sqlite:///shared.db",
                **dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), "1"),
            },
            "",
        ),
    ],
    ids=["alone", "Kafka's defaults", "groups alone can begin", "all can begin"],
)
def test_what_too_few_brokers_cannot_begin_is_told_with_its_settings(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    cluster = FakeCluster(tmp_path, settings).start()
    assert too_few_brokers_now(cluster.config, cluster.cache.image) == told
    cluster.close()


def test_topic_that_is_there_waits_for_no_more_brokers(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"pybroker.metadata": "sqlite:///shared.db"}).start()
    for topic in (GROUPS.topic, TRANSACTIONS.topic):
        cluster.ask(cluster.controller.create_topics, [NewTopic(topic, 1, 1)])
    assert too_few_brokers_now(cluster.config, cluster.cache.image) == ""
    cluster.close()


def test_too_few_brokers_are_told_of_when_one_is_unregistered(caplog: pytest.LogCaptureFixture) -> None:
    cache = MetadataCache()

    def become(*broker_ids: int) -> int:
        """How often it has been told of so far, once these are registered."""
        image = ClusterImage(epoch=cache.image.epoch + 1, brokers=dict.fromkeys(broker_ids, cast(Any, None)))
        cache.apply(image, ImageDelta(brokers_changed=broker_ids))
        return caplog.text.count("registered, so that groups and transactions cannot begin")

    lack = TooFewBrokersWarning(VirtualWorld().env, BrokerConfig({"pybroker.metadata": "sqlite:///shared.db"}), cache)
    assert [become(1), become(1, 2, 3, 4), become(1, 2, 3), become(1, 2), become(1, 2)] == [0, 0, 0, 1, 1]
    lack.close()
    assert become(1) == 1


def test_refusal_for_too_few_brokers_names_the_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(tmp_path, {"pybroker.metadata": "sqlite:///shared.db"}).start()
    cluster.ask(cluster.auto_topics.ensure, GROUPS.topic)
    assert "(offsets.topic.replication.factor)" in caplog.text
    cluster.close()


@pytest.mark.parametrize("more", [0, 2])
def test_too_few_brokers_are_told_of_once_others_had_time_to_join(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    settings = {"pybroker.metadata": f"sqlite://{tmp_path / 'shared.db'}"}
    with ExitStack() as stack:
        if not more:
            monkeypatch.setattr("pybroker.cluster.membership.too_few_brokers.BROKERS_AWAITED_MS", 10)
        for node_id in range(1, 2 + more):
            stack.enter_context(Broker({**settings, "node.id": node_id}, data_dir=tmp_path / str(node_id)))
        if not more:
            wait_until(lambda: "1 broker is registered" in caplog.text, "the warning")
    assert caplog.text.count("registered, so that") == (0 if more else 1)
