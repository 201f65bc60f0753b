"""Topics that a link makes here: at once after a deletion, and before a client's Metadata makes another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import MIRROR_STATE, MIRRORING
from pybroker.cluster.links.awaited_topics import AWAITED_MS, AwaitedTopics
from pybroker.cluster.links.link_keeper import LOOKS_PER_SETTINGS, LOOKS_UNTIL_LOST
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.wire_client import WireClient
from tests.links.linked import set_link
from tests.links.test_link_keeper import INTERVAL_MS, Kept

AT_ONCE_MS = INTERVAL_MS // 10


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    awaited = AwaitedTopics(made.cluster.env, made.cluster.config, made.cluster.cache)
    made.cluster.auto_topics.link_of = awaited.link_of
    yield made
    awaited.close()
    made.keeper.close()
    made.cluster.close()


def delete(kept: Kept, name: str) -> None:
    kept.cluster.ask(kept.cluster.controller.delete_topics, [name])


def settings_asked_for(kept: Kept) -> list[str]:
    requests = [each for each in kept.source.asked if isinstance(each, DescribeConfigsRequest)]
    return [resource.resource_name for request in requests for resource in request.resources]


def topics(kept: Kept) -> set[str]:
    return set(kept.cluster.cache.image.topics_by_name)


# --- the link ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "west."])
def test_a_mirrored_topic_that_is_deleted_is_made_anew_at_once(kept: Kept, prefix: str) -> None:
    kept.link(prefix=prefix)
    name = f"{prefix}orders"
    before = kept.cluster.cache.image.topics_by_name[name].topic_id
    delete(kept, name)
    kept.settle(AT_ONCE_MS)
    assert kept.states == {name: MIRRORING, f"{prefix}payments": MIRRORING}
    assert kept.cluster.cache.image.topics_by_name[name].topic_id != before


def test_a_topic_that_is_deleted_during_a_look_is_made_anew_by_the_next_one_at_once(kept: Kept) -> None:
    kept.link()
    kept.source.topics["refunds"] = 1
    answers = kept.source.held = []
    kept.settle()
    answers.pop()()  # which topics there are
    delete(kept, "orders")
    kept.source.held = None
    answers.pop()()  # the settings of the new one
    kept.settle(AT_ONCE_MS)
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING, "refunds": MIRRORING}


def test_looks_that_follow_deletions_at_once_do_not_stop_what_a_source_misses_for_a_moment(kept: Kept) -> None:
    kept.link()
    kept.source.errors["orders"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    looks = len(kept.source.asked)
    for _ in range(LOOKS_UNTIL_LOST + 1):
        delete(kept, "payments")
        kept.settle(AT_ONCE_MS)
    assert len(kept.source.asked) - looks > LOOKS_UNTIL_LOST
    assert kept.states["orders"] == MIRRORING


def test_a_topic_is_mirrored_once_another_one_of_its_name_is_deleted(kept: Kept) -> None:
    kept.cluster.ask(kept.cluster.controller.create_topics, [NewTopic("orders", 2, 1, (), ())])
    kept.link()
    assert kept.states == {"payments": MIRRORING}
    delete(kept, "orders")
    kept.settle(AT_ONCE_MS)
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}


def test_a_topic_that_could_not_be_made_is_made_with_the_next_look(kept: Kept) -> None:
    kept.source.settings["orders"] = {"cleanup.policy": "nothing"}
    kept.link()
    kept.settle()
    assert kept.states == {"payments": MIRRORING}
    kept.source.settings.clear()
    kept.settle()
    assert kept.states == {"orders": MIRRORING, "payments": MIRRORING}


def test_the_settings_of_a_mirror_at_the_source_which_is_not_made_are_asked_for_from_time_to_time(kept: Kept) -> None:
    kept.source.settings["orders"] = {MIRROR_STATE: MIRRORING}
    kept.link()
    del kept.source.asked[:]
    kept.settle(3 * INTERVAL_MS)
    assert not settings_asked_for(kept)
    kept.settle(LOOKS_PER_SETTINGS * INTERVAL_MS)
    assert settings_asked_for(kept)


# --- clients ----------------------------------------------------------------------------------------------------------


def test_no_client_has_a_topic_made_that_a_link_names(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.source.is_away = True
    kept.link(topics="orders,pay*", topics_exclude="payroll", prefix="west.")
    kept.cluster.auto_topics.begin(["west.orders", "west.payments", "west.payroll", "orders"])
    kept.cluster.world.run()
    assert topics(kept) == {"west.payments", "west.payroll", "orders"}
    assert caplog.text.count("topic west.orders is asked for, and cannot be created: the link west mirrors it") == 1
    kept.set(topics="payments")
    kept.cluster.auto_topics.begin(["west.orders"])
    kept.cluster.world.run()
    assert "west.orders" in topics(kept)


def test_a_deleted_topic_is_left_to_the_pattern_that_mirrored_it_and_for_a_while_alone(kept: Kept) -> None:
    kept.link()
    kept.source.is_away = True
    delete(kept, "orders")
    for _ in range(2):
        kept.cluster.auto_topics.begin(["orders", "another"])
        kept.cluster.world.run()
        assert topics(kept) == {"payments", "another"}
        kept.cluster.world.advance(AWAITED_MS // 2 - 1)
    kept.cluster.world.advance(AWAITED_MS)
    kept.cluster.auto_topics.begin(["orders"])
    kept.cluster.world.run()
    assert "orders" in topics(kept)


def test_a_deleted_topic_that_no_link_mirrors_any_more_is_any_clients(kept: Kept) -> None:
    kept.link()
    kept.set(topics_exclude="orders")
    delete(kept, "orders")
    kept.cluster.auto_topics.begin(["orders"])
    kept.cluster.world.run()
    assert topics(kept) == {"orders", "payments"}
    assert "orders" not in kept.states


def test_topics_of_coordinators_are_this_clusters_own(kept: Kept) -> None:
    kept.link(topics=GROUPS.topic)
    kept.cluster.auto_topics.begin([GROUPS.topic])
    kept.cluster.world.run()
    assert GROUPS.topic in topics(kept)


def test_a_broker_with_a_link_leaves_its_topics_to_it() -> None:
    names = ["orders", "another"]
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        set_link(broker.bootstrap, bootstrap_servers="127.0.0.1:1", topics="orders")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        while any(topic.error_code for topic in client.ask(request, 9).topics if topic.name == "another"):
            pass
        answer = client.ask(request, 9)
        assert {topic.name: topic.error_code for topic in answer.topics} == {"orders": 3, "another": 0}
