"""When a promotion is over: all that the source has is here, in each partition that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import MIRRORING, PROMOTED, PROMOTING
from pybroker.net.source_client import SourceClient
from pybroker.testing import Broker
from pybroker_protocol.messages.list_offsets import ListOffsetsRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.links.linked import image_of, link, mirror_of, produce, read_all, set_link, wait_for_state
from tests.links.virtual_link import LinkedClusters
from tests.replication.cluster import NAME


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedClusters]:
    clusters = LinkedClusters(tmp_path)
    yield clusters
    clusters.close()


def test_a_promotion_waits_for_partitions_that_the_source_alone_has_until_now(linked: LinkedClusters) -> None:
    source, here = linked.source, linked.here
    source.brokers[1].produce(-1, value=b"v")
    linked.settle()
    topic = source.image.topics_by_name[NAME]
    grown = topic._replace(partitions=(*topic.partitions, topic.partitions[0]))
    source._change(topics_by_name={NAME: grown}, topics_by_id={topic.topic_id: grown})
    linked.become(PROMOTING)
    linked.settle()
    assert (linked.state, linked.reports) == (PROMOTING, [])
    source._change(topics_by_name={NAME: topic}, topics_by_id={topic.topic_id: topic})
    linked.settle()
    assert linked.state == PROMOTED
    assert here.image.mirrors[NAME].first_epochs


def test_a_promotion_waits_for_partitions_of_which_the_leader_of_the_others_has_not_heard(
    linked: LinkedClusters,
) -> None:
    source = linked.source
    source.brokers[1].produce(-1, value=b"v")
    linked.settle()
    linked.lagging[source.state().leader] = source.image
    topic = source.image.topics_by_name[NAME]
    grown = topic._replace(partitions=(*topic.partitions, topic.partitions[0]._replace(leader=2)))
    source._change(topics_by_name={NAME: grown}, topics_by_id={topic.topic_id: grown})
    linked.become(PROMOTING)
    linked.settle()
    assert (linked.state, linked.reports) == (PROMOTING, [])
    source._change(topics_by_name={NAME: topic}, topics_by_id={topic.topic_id: topic})
    linked.settle()
    assert linked.state == PROMOTED


def test_partitions_that_came_right_before_a_promotion_are_promoted_with_all_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Callable[[], None]] = []
    rounds: list[Any] = []
    is_slow = False
    ask = SourceClient.ask

    def slowly(self: SourceClient, broker_id: int, request: Any, *rest: Any, **named: Any) -> None:
        """The controller's looks at the source's topics wait for the test's word."""
        if isinstance(request, ListOffsetsRequest):
            rounds.append(request)
        is_look = isinstance(request, MetadataRequest) and any(topic.name for topic in request.topics or ())
        if is_slow and is_look:
            held.append(lambda: ask(self, broker_id, request, *rest, **named))
        else:
            ask(self, broker_id, request, *rest, **named)

    monkeypatch.setattr(SourceClient, "ask", slowly)
    with Broker() as source, Broker() as here:
        source.create_topic("orders")
        produce(source, "orders", 10)
        link(here, source)
        wait_for_state(here, "orders", MIRRORING)
        is_slow = True
        wait_until(lambda: held, "a look")
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(PATIENCE_S)
        produce(source, "orders", 30)
        set_link(here.bootstrap, promote="orders")
        wait_until(lambda: len(rounds) > 3 or has_state(here, PROMOTED), "questions where the source ends")
        is_slow = False
        for look in held:
            here._alive().call_soon(look)
        wait_for_state(here, "orders", PROMOTED)
        assert len(image_of(here).topics_by_name["orders"].partitions) == 3
        assert read_all(here, "orders") == read_all(source, "orders")


def has_state(here: Broker, state: str) -> bool:
    mirror = mirror_of(here, "orders")
    return mirror is not None and mirror.state == state
