"""What the active controller does for links, over a source of the test's, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.image.link_states import (
    ADOPTED,
    FAILED_OVER,
    MIRROR_STATE,
    MIRROR_TOPIC_ID,
    MIRRORING,
    PAUSED,
    PROMOTED,
    STOPPED,
)
from pybroker.cluster.links.link_keeper import LOOKS_PER_REASON, LOOKS_PER_SETTINGS, LOOKS_UNTIL_LOST, LinkKeeper
from pybroker.cluster.membership.peers import CONTROL, PeerDone, PeerError, PeerFailure
from pybroker.config.link_config import LinkConfig
from pybroker.config.resources import BROKER, DEFAULT_CONFIG, TOPIC, TOPIC_CONFIG, ConfigChange
from pybroker.config.schema import ConfigError
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.schema import Request
from pybroker_protocol.uuids import uuid_text
from tests.cluster.fakes import FakeCluster

INTERVAL_MS = 1_000


class ScriptedSource:
    """A source with the topics that the test says, by their names: numbers of partitions."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = topics
        self.settings: dict[str, dict[str, str]] = {}
        self.defaults: dict[str, str] = {}  # of all topics
        self.errors: dict[str, int] = {}
        self.setting_errors: dict[str, int] = {}
        self.is_away = False
        self.ways_to_fail = ["refused"]  # of its brokers, which are asked in turns
        self.starts = False  # it answers, and knows of nothing yet
        self.asked: list[Request] = []
        self.held: list[Callable[[], None]] | None = None  # what is not answered before the test says so
        self.closed = False

    def ask(
        self, broker_id: int, request: Request, version: int, done: PeerDone, *, timeout_ms: int, channel: str = CONTROL
    ) -> None:
        self.asked.append(request)
        if self.held is not None:
            self.held.append(lambda: self._answer(request, done))
        else:
            self._answer(request, done)

    def _answer(self, request: Request, done: PeerDone) -> None:
        if self.is_away:
            self.ways_to_fail.append(self.ways_to_fail.pop(0))
            done(None, PeerError(PeerFailure.UNREACHABLE, False, self.ways_to_fail[-1]))
        elif isinstance(request, MetadataRequest):
            done(self._metadata(request), None)
        elif isinstance(request, DescribeConfigsRequest):
            done(self._settings(request), None)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        if self.starts:
            return MetadataResponse(cluster_id="that-cluster", brokers=[], topics=[])
        names = None if request.topics is None else {topic.name for topic in request.topics}
        return MetadataResponse(
            cluster_id="that-cluster",
            brokers=[MetadataResponseBroker(node_id=1, host="source", port=9092, rack=None)],
            topics=[
                MetadataResponseTopic(
                    error_code=self.errors.get(name, 0),
                    name=name,
                    topic_id=name.encode().ljust(16, b"."),
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=1,
                            leader_epoch=4,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for index in range(count)
                    ],
                )
                for name, count in self.topics.items()
                if names is None or name in names
            ],
        )

    def _settings(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = [self._described(each) for each in request.resources]
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)

    def _described(self, resource: Any) -> DescribeConfigsResult:
        settings = self.settings.get(resource.resource_name, {})
        return DescribeConfigsResult(
            error_code=self.setting_errors.get(resource.resource_name, 0),
            resource_type=TOPIC,
            resource_name=resource.resource_name,
            configs=[
                *(_entry(name, text, TOPIC_CONFIG) for name, text in settings.items()),
                *(_entry(name, text, DEFAULT_CONFIG) for name, text in self.defaults.items() if name not in settings),
            ],
        )

    def learn(self, nodes: Any) -> None:
        assert nodes == {1: ("source", 9092)}

    def close(self) -> None:
        self.closed = True


def _entry(name: str, text: str, source: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name, value=text, read_only=False, config_source=source, is_sensitive=False, synonyms=[]
    )


class Kept:
    """A cluster of one broker with a keeper of links."""

    def __init__(self, path: Path, settings: dict[str, str] | None = None) -> None:
        self.cluster = FakeCluster(path, settings).start()
        self.cluster.cache.subscribe(self._configure)
        self.source = ScriptedSource({"orders": 2, "payments": 1})
        self.refusal: str | None = None
        self.connected: list[LinkConfig] = []
        cluster = self.cluster
        self.keeper = LinkKeeper(cluster.env, cluster.config, cluster.controller, cluster.cache, self._connect)

    def _configure(self, image: Any, _delta: Any) -> None:
        """What the config service does in a broker; it hears of an image before the keeper does."""
        self.cluster.config.apply_dynamic(image.overrides(BROKER, ""), {})

    def _connect(self, config: LinkConfig) -> ScriptedSource:
        if self.refusal is not None:
            raise ConfigError(self.refusal)
        self.connected.append(config)
        return self.source

    def set(self, link: str = "west", **settings: str | None) -> None:
        updates = {f"pybroker.links.{link}.{name.replace('_', '.')}": text for name, text in settings.items()}
        self.cluster.ask(self.cluster.controller.alter_configs, [ConfigChange(BROKER, "", updates)])

    def link(self, **settings: str) -> None:
        given = {"topics": "*", **settings}
        self.set(bootstrap_servers="source:9092", refresh_interval_ms=str(INTERVAL_MS), **given)
        self.settle()

    def settle(self, ms: int = INTERVAL_MS) -> None:
        for _ in range(10):
            self.cluster.world.run()
            self.cluster.world.advance(ms // 10)

    @property
    def states(self) -> dict[str, str]:
        return {name: mirror.state for name, mirror in self.cluster.cache.image.mirrors.items()}

    @property
    def refused(self) -> dict[str, str]:
        return dict(self.cluster.cache.image.links["west"].refused)

    @property
    def problem(self) -> str:
        return self.cluster.cache.image.links["west"].problem


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.keeper.close()
    made.cluster.close()


def test_topics_of_the_source_come_with_their_settings_and_go_on_coming(kept: Kept) -> None:
    kept.source.settings["orders"] = {"retention.ms": "7"}
    kept.link(topics_exclude="pay*")
    assert kept.states == {"orders": MIRRORING}
    image = kept.cluster.cache.image
    assert len(image.topics_by_name["orders"].partitions) == 2
    assert image.overrides(TOPIC, "orders") == {"retention.ms": "7"}
    kept.source.topics["refunds"] = 3
    kept.settle()
    assert kept.states == {"orders": MIRRORING, "refunds": MIRRORING}


def test_a_look_that_finds_nothing_new_commits_nothing_and_asks_for_no_settings(kept: Kept) -> None:
    kept.link()
    epoch = kept.cluster.cache.image.epoch
    del kept.source.asked[:]
    kept.settle(3 * INTERVAL_MS)
    assert kept.cluster.cache.image.epoch == epoch
    assert {type(request) for request in kept.source.asked} == {MetadataRequest}


def test_settings_are_asked_for_again_from_time_to_time(kept: Kept) -> None:
    kept.link()
    kept.source.settings["orders"] = {"retention.ms": "8"}
    kept.settle(2 * LOOKS_PER_SETTINGS * INTERVAL_MS)
    assert kept.cluster.cache.image.overrides(TOPIC, "orders") == {"retention.ms": "8"}


def test_only_topics_that_are_named_are_asked_for_where_no_pattern_is(kept: Kept) -> None:
    kept.link()
    del kept.source.asked[:]
    kept.set(topics="orders")
    kept.settle()
    asked = [request for request in kept.source.asked if isinstance(request, MetadataRequest)]
    assert {topic.name for topic in asked[-1].topics or ()} == {"orders"}
    assert kept.states == {"orders": MIRRORING, "payments": STOPPED}


def test_a_topic_that_the_source_does_not_show_stops_with_the_reason_and_others_go_on(kept: Kept) -> None:
    kept.link(topics="orders,payments")
    for _ in range(2):  # the first time an ACL is replaced: one look finds none
        kept.source.errors["orders"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        kept.settle((LOOKS_UNTIL_LOST - 1) * INTERVAL_MS)
        assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}
        assert kept.refused == {"orders": "the link may not see it at the source"}
        kept.source.errors.clear()
        kept.settle()
        assert not kept.refused
    kept.source.errors["orders"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    kept.settle(LOOKS_UNTIL_LOST * INTERVAL_MS)
    assert kept.states == {"orders": STOPPED, "payments": MIRRORING}
    assert kept.refused == {"orders": "the link may not see it at the source"}


def test_a_topic_whose_settings_cannot_be_had_is_refused_until_they_can(kept: Kept) -> None:
    kept.source.setting_errors["orders"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    kept.link()
    assert kept.states == {"payments": MIRRORING}
    assert "TOPIC_AUTHORIZATION_FAILED" in kept.refused["orders"]
    kept.source.setting_errors.clear()
    kept.settle()
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}
    assert not kept.refused


def test_wishes_are_done_though_the_source_is_away(kept: Kept) -> None:
    kept.link()
    kept.source.is_away = True
    kept.set(failover="orders", pause="*")
    kept.settle()
    assert kept.states == {"orders": FAILED_OVER, "payments": PAUSED}
    assert "refused" in kept.problem


def test_a_problem_is_told_once_and_ends_with_the_next_answer(kept: Kept) -> None:
    kept.link()
    kept.source.is_away = True
    kept.settle()
    epoch = kept.cluster.cache.image.epoch
    kept.settle(3 * INTERVAL_MS)
    assert kept.cluster.cache.image.epoch == epoch
    assert kept.problem
    kept.source.is_away = False
    kept.settle()
    assert not kept.problem


def test_a_source_whose_brokers_fail_in_different_ways_is_one_problem_with_the_first_reason(kept: Kept) -> None:
    kept.link()
    kept.source.is_away = True
    kept.source.ways_to_fail = ["refused", "no route", "no such host"]
    kept.settle(2 * INTERVAL_MS)
    epoch, reason = kept.cluster.cache.image.epoch, kept.problem
    kept.settle(2 * LOOKS_PER_REASON * INTERVAL_MS)
    assert (kept.cluster.cache.image.epoch, kept.problem) == (epoch, reason)
    assert "refused" in reason
    kept.source.ways_to_fail = ["no route", "no such host"]
    kept.settle((LOOKS_PER_REASON + 1) * INTERVAL_MS)
    assert kept.problem != reason
    kept.source.is_away = False
    kept.settle()
    assert not kept.problem


def test_a_reason_is_another_one_at_once_where_the_source_is_reached_otherwise(kept: Kept) -> None:
    kept.link()
    kept.source.is_away = True
    kept.settle(2 * INTERVAL_MS)
    kept.source.ways_to_fail = ["wrong password"]
    kept.set(security_protocol="SASL_PLAINTEXT")
    kept.settle()
    assert "wrong password" in kept.problem


def test_keys_that_cannot_be_used_are_a_problem_until_they_are_others(kept: Kept) -> None:
    kept.refusal = "the key is none"
    kept.link()
    assert kept.problem == "the key is none"
    kept.refusal = None
    kept.settle()
    assert kept.states


def test_another_way_to_the_source_begins_a_connection_and_nothing_else_does(kept: Kept) -> None:
    kept.link()
    kept.set(pause="orders")
    kept.settle()
    assert len(kept.connected) == 1
    assert not kept.source.closed
    kept.set(bootstrap_servers="source:9093")
    kept.settle()
    assert len(kept.connected) == 2
    assert kept.source.closed


def test_a_link_that_is_deleted_stops_what_it_mirrored_and_asks_no_more(kept: Kept) -> None:
    kept.link()
    kept.set(bootstrap_servers=None, topics=None, refresh_interval_ms=None)
    kept.settle()
    assert kept.states == {"orders": STOPPED, "payments": STOPPED}
    assert not kept.cluster.cache.image.links
    assert kept.source.closed
    del kept.source.asked[:]
    kept.settle()
    assert not kept.source.asked


def test_a_controller_that_is_not_active_asks_nothing(kept: Kept) -> None:
    kept.link()
    kept.cluster.controller.deactivate()
    del kept.source.asked[:]
    kept.settle()
    assert not kept.source.asked
    assert kept.source.closed


# --- one answer of a source is not the whole of it --------------------------------------------------------------------


def test_a_source_that_starts_and_knows_of_nothing_stops_nothing(kept: Kept) -> None:
    kept.link()
    kept.source.starts = True
    kept.settle(2 * LOOKS_UNTIL_LOST * INTERVAL_MS)
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}
    assert "names no brokers" in kept.problem
    kept.source.starts = False
    kept.settle()
    assert not kept.problem


@pytest.mark.parametrize("lost", ["the-topic", "partitions"])
def test_a_topic_stops_once_several_looks_in_a_row_miss_it(kept: Kept, lost: str) -> None:
    kept.link()
    there, less = kept.source.topics, {"payments": 1, **({"orders": 1} if lost == "partitions" else {})}
    for _ in range(3):
        kept.source.topics = less
        kept.settle((LOOKS_UNTIL_LOST - 1) * INTERVAL_MS)
        assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}
        kept.source.topics = there
        kept.settle()
    kept.source.topics = less
    kept.settle(LOOKS_UNTIL_LOST * INTERVAL_MS)
    assert kept.states == {"orders": STOPPED, "payments": MIRRORING}


def test_a_look_that_the_link_is_altered_in_says_nothing_of_its_new_settings(kept: Kept) -> None:
    kept.link(topics="orders,payments")
    answers = kept.source.held = []
    kept.set(topics="orders")
    kept.cluster.world.advance(1)
    (answer,) = answers  # the look asks for orders alone
    kept.set(topics="orders,payments")
    kept.source.held = None
    answer()
    kept.settle()
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}


def test_what_is_added_during_a_look_is_looked_at_at_once(kept: Kept) -> None:
    kept.source.topics["late"] = 1
    kept.link(topics="orders")
    answers = kept.source.held = []
    kept.settle()
    (answer,) = answers
    kept.set(topics="orders,late")
    kept.source.held = None
    answer()
    kept.settle(INTERVAL_MS // 10)
    assert kept.states == {"orders": MIRRORING, "late": MIRRORING}
    assert not kept.refused


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_default_of_the_source_holds_where_the_brokers_here_have_another(tmp_path: Path) -> None:
    settings = {"log.cleanup.policy": "compact", "log.retention.ms": "60000"}
    kept = Kept(tmp_path, settings)
    try:
        kept.source.defaults = {
            "cleanup.policy": "delete",
            "retention.ms": "604800000",
            "compression.type": "producer",
            "max.message.bytes": "1048588",
        }
        kept.source.settings["payments"] = {"cleanup.policy": "compact"}
        kept.link()
        image = kept.cluster.cache.image
        assert image.overrides(TOPIC, "orders") == {"cleanup.policy": "delete", "retention.ms": "604800000"}
        assert image.overrides(TOPIC, "payments") == {"cleanup.policy": "compact", "retention.ms": "604800000"}
    finally:
        kept.keeper.close()
        kept.cluster.close()


def test_a_topic_that_is_to_be_adopted_is_asked_each_time_whether_it_takes_writes_there(kept: Kept) -> None:
    kept.cluster.ask(kept.cluster.controller.create_topics, [NewTopic("orders", 2, 1, (), ())])
    kept.source.settings["orders"] = {MIRROR_STATE: MIRRORING}
    kept.link(adopt="orders")
    assert "it is mirrored at the source" in kept.refused["orders"]
    topic_id = uuid_text(kept.cluster.cache.image.topics_by_name["orders"].topic_id)
    kept.source.settings["orders"] = {MIRROR_STATE: PROMOTED, MIRROR_TOPIC_ID: topic_id}
    kept.settle()
    assert kept.states["orders"] == ADOPTED
