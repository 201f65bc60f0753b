"""A short fetch is one portion, answered at once; a long one pauses between portions, also behind a wait."""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest

from pybroker.handlers import fetch
from pybroker.handlers.context import Parked, Steps
from pybroker.handlers.portions import at_once, portions, portions_of_topics
from pybroker_protocol import codec
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.handled import answer_of
from tests.replication.cluster import Cluster
from tests.storage.logs import TOPIC_ID

VERSION = 17


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One broker, whose handlers' answers are shown as they are."""
    monkeypatch.setattr("tests.replication.cluster.answer_of", lambda handled: handled)
    return make_cluster(replicas=(1,), partitions=2)


def handled(cluster: Cluster, max_wait_ms: int, session_id: int = 0) -> Any:
    """What the handler gives back of two partitions: asked for in a new session, or in one that goes on."""
    both = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in range(2)]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=0,
        session_id=session_id,
        session_epoch=1 if session_id else 0,
        forgotten_topics_data=[],
        rack_id="",
        topics=[] if session_id else [FetchTopic(topic_id=TOPIC_ID, partitions=both)],
    )
    return cluster.brokers[1].serve(1, VERSION, codec.encode(request, VERSION), "CLIENTS")


def test_a_short_fetch_is_answered_without_a_pause(cluster: Cluster) -> None:
    assert isinstance(handled(cluster, 0), FetchResponse)
    assert isinstance(handled(cluster, 1_000), Parked)


@pytest.mark.parametrize("max_wait_ms", [0, 1_000])
def test_a_long_session_pauses_whether_it_waits_or_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, max_wait_ms: int
) -> None:
    session_id = handled(cluster, 0).session_id
    monkeypatch.setattr(fetch, "_AT_ONCE", 1)
    assert isinstance(handled(cluster, max_wait_ms, session_id), GeneratorType)


def test_what_a_quota_keeps_back_is_let_go_portion_by_portion(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views of records may be the last ones of maps, each of which takes its time to end."""
    session_id = handled(cluster, 0).session_id
    share = SimpleNamespace(fetch_bytes_max=1_000, fetched=lambda size: 7)
    let_go: list[int] = []
    cluster.brokers[1].services.quotas = SimpleNamespace()
    monkeypatch.setattr(fetch, "_AT_ONCE", 1)
    monkeypatch.setattr(fetch, "_share", lambda ctx: share)
    monkeypatch.setattr(fetch, "_drop_records", lambda partitions: let_go.append(len(partitions)))
    throttled = answer_of(handled(cluster, 0, session_id))
    assert (throttled.throttle_time_ms, throttled.session_id, throttled.responses) == (7, session_id, [])
    assert let_go == [1, 1]


def walk(elements: list[int], seen: list[Any], waits_for: Parked | None = None) -> Steps:
    if waits_for is not None:
        seen.append((yield waits_for))
    for portion in portions(elements, 2):
        seen.append(list(portion))
        if portion is not elements:
            yield
    return "done"


def test_what_is_short_is_over_at_once_and_what_is_long_stops_behind_its_first_portion() -> None:
    seen: list[Any] = []
    assert at_once(walk([1, 2], seen)) == "done"
    assert at_once(walk([], seen)) == "done"
    assert seen == [[1, 2]]
    rest = at_once(walk([3, 4, 5], seen))
    assert seen[1:] == [[3, 4]]
    assert list(rest) == [None]
    assert seen[2:] == [[5]]


def test_what_waits_goes_on_to_its_end() -> None:
    seen: list[Any] = []
    there = Parked()
    parked = at_once(walk([1, 2, 3], seen, there))
    assert not seen
    there.complete("there")
    assert (parked.response, seen) == ("done", ["there", [1, 2], [3]])


def test_what_waits_ends_with_its_client() -> None:
    seen: list[Any] = []
    there = Parked()
    at_once(walk([1], seen, there)).abandon()
    there.complete("too late")
    assert there.abandoned
    assert not seen


def test_topics_of_few_partitions_are_one_portion_and_a_long_topic_is_cut() -> None:
    def topic(name: str, count: int) -> FetchTopic:
        return FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in range(count)
            ],
        )

    short = [topic("a", 1), topic("b", 1)]
    assert [portion is short for portion in portions_of_topics(short, "partitions", 2)] == [True]
    assert list(portions_of_topics([], "partitions", 2)) == []
    cut = [
        [(each.topic, [wanted.partition for wanted in each.partitions]) for each in portion]
        for portion in portions_of_topics([topic("a", 3)], "partitions", 2)
    ]
    assert cut == [[("a", [0, 1])], [("a", [2])]]
