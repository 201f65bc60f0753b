"""Whatever keeps the records of a partition away has a word in what ``links describe`` shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.cluster.image.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import FAILED_OVER, MIRRORING, PROMOTED, PROMOTING, MirroredTopic
from pybroker.cluster.links.mirror_reasons import LAST_LOOK, reason_of
from pybroker.cluster.links.source_port import Source
from pybroker.config.broker import BrokerConfig
from pybroker.replication.mirrored_link import MirroredLink
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchRequest
from pybroker_protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.links.test_mirrors import assert_same, problems, produce
from tests.links.virtual_link import LinkedClusters, VirtualSource
from tests.replication.cluster import NAME


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedClusters]:
    clusters = LinkedClusters(tmp_path)
    produce(clusters)
    clusters.settle()
    yield clusters
    clusters.close()


def assert_mended(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    assert problems(linked) == []
    assert_same(linked)


def test_a_partition_that_has_no_leader_at_the_source_says_so(linked: LinkedClusters) -> None:
    linked.source.elect(NO_LEADER)
    linked.source.tell()
    linked.settle()
    assert problems(linked) == ["it has no leader at the source"]
    linked.source.elect(2)
    linked.source.tell()
    assert_mended(linked)


def test_a_topic_that_the_source_does_not_know_says_so(linked: LinkedClusters) -> None:
    linked.source._change(topics_by_id={}, topics_by_name={})
    linked.source.tell()
    linked.settle()
    assert problems(linked) == ["the source says of its topic UNKNOWN_TOPIC_ID"]


def test_what_an_answer_costs_grows_with_its_topics_and_not_with_their_square() -> None:
    """Thousands of topics that a source does not know are asked for again and again."""

    def lines_of(count: int) -> int:
        ids = [number.to_bytes(16, "big") for number in range(count)]
        told: list[str] = []
        waiting = {(each, 0): SimpleNamespace(topic_id=each, on_unreached=told.append) for each in ids}
        answer = MetadataResponse(
            brokers=[],
            topics=[
                MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=each, partitions=[])
                for each in ids
            ],
        )
        lines = 0

        def count_lines(_frame: Any, event: str, _argument: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return count_lines

        before = sys.gettrace()
        sys.settrace(count_lines)
        try:
            MirroredLink._learn(
                cast(MirroredLink, SimpleNamespace(_unplaced=waiting)),
                cast(Source, SimpleNamespace(learn=lambda _nodes: None)),
                answer,
            )
        finally:
            sys.settrace(before)
        assert len(told) == count
        return lines

    assert lines_of(400) < 3 * lines_of(200)


def fail(each: Any) -> None:
    each.error_code = ErrorCode.KAFKA_STORAGE_ERROR


def corrupt(each: Any) -> None:
    if each.records:
        each.records = bytes(each.records)[:-1] + bytes([each.records[-1] ^ 1])


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (fail, "broker 1 of the source says KAFKA_STORAGE_ERROR"),
        (corrupt, "what the source sends cannot be appended: CORRUPT_MESSAGE"),
    ],
)
def test_an_answer_that_brings_nothing_is_named(
    linked: LinkedClusters, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any], None], expected: str
) -> None:
    ask = VirtualSource.ask

    def spoiled(self: VirtualSource, broker_id: int, request: Any, version: int, done: Any, **named: Any) -> None:
        def answered(response: Any, error: Any) -> None:
            of_topics = response.responses if response is not None and isinstance(request, FetchRequest) else ()
            for each in (each for topic in of_topics for each in topic.partitions):
                spoil(each)
            done(response, error)

        ask(self, broker_id, request, version, answered, **named)

    monkeypatch.setattr(VirtualSource, "ask", spoiled)
    for _ in range(2):  # one fetch was under way
        produce(linked)
        linked.settle()
    assert problems(linked) == [expected]
    monkeypatch.undo()
    assert_mended(linked)


@pytest.mark.parametrize(
    ("state", "reason", "leader", "expected"),
    [
        (MIRRORING, "", 11, ""),
        (MIRRORING, "", NO_LEADER, "without a leader here: partition 0"),
        (PROMOTING, "", NO_LEADER, "without a leader here: partition 0"),
        (FAILED_OVER, "", NO_LEADER, ""),
        ("stopped", "gone", NO_LEADER, "gone"),
    ],
)
def test_partitions_without_a_leader_here_are_named_while_records_are_to_come(
    linked: LinkedClusters, state: str, reason: str, leader: int, expected: str
) -> None:
    linked.here.set(leader=leader)
    mirror = MirroredTopic("west", NAME, state=state, reason=reason)
    config = linked.here.brokers[11].replicas.config
    assert reason_of(linked.here.image, config, NAME, mirror) == expected


@pytest.mark.parametrize(
    ("groups", "carried", "expected"),
    [("*", 0b01, LAST_LOOK), ("*", 0b11, ""), ("", 0b01, "")],
    ids=["a coordinator has not looked", "all have", "no groups are carried"],
)
def test_offsets_that_are_looked_at_for_the_last_time_are_named(groups: str, carried: int, expected: str) -> None:
    state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=1)
    offsets = TopicImage(GROUPS.topic, bytes(16), (state, state))
    image = ClusterImage(topics_by_name={offsets.name: offsets})
    texts = {"bootstrap.servers": "source:9092", "topics": "*", "groups": groups}
    config = BrokerConfig({f"pybroker.links.west.{name}": text for name, text in texts.items()})
    assert reason_of(image, config, NAME, MirroredTopic("west", NAME, state=PROMOTED, carried=carried)) == expected
