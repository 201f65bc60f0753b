"""What a link's fetchers ask beside their fetches, in virtual time: offsets, ends, and what an answer may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.cluster.image.link_states import ADOPTED, FAIL_OVER, MIRRORING, PROMOTED, PROMOTING
from pybroker.replication.mirror_fetcher import ALL_ENDS_MS, MirrorFetcher
from pybroker.replication.mirrored_link import MirroredLink
from pybroker.replication.mirrored_partition import MirroredPartition
from pybroker.replication.replica_fetcher import EARLIEST, LATEST, ReplicaFetcher
from pybroker_protocol.messages.list_offsets import ListOffsetsRequest
from tests.links.test_mirrors import FETCH_TIMEOUT_MS, assert_same, produce
from tests.links.two_clusters import TwoClusters
from tests.links.virtual_link import LinkedClusters
from tests.replication.cluster import NAME, Cluster


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedClusters]:
    clusters = LinkedClusters(tmp_path)
    yield clusters
    clusters.close()


@pytest.mark.parametrize("answer", [None, 0, 2], ids=["no-answer", "start", "later-start"])
@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST], ids=["earliest", "latest"])
def test_an_offset_that_comes_late_does_nothing_to_a_partition_that_another_fetcher_has(
    linked: LinkedClusters, timestamp: int, answer: int | None
) -> None:
    produce(linked)
    linked.settle()
    link, fetcher, mirrored = fetched_by(linked)
    late: list[Callable[[int | None], None]] = []
    with pytest.MonkeyPatch.context() as asked:
        asked.setattr(ReplicaFetcher, "_ask_offset", lambda _self, _partition, _timestamp, found: late.append(found))
        fetcher._wait_for(mirrored)
        fetcher._ask_for_offset(mirrored, timestamp)
    linked.source.elect(2)
    linked.source.tell()
    link._place_anew([mirrored])
    linked.settle()
    produce(linked)
    linked.settle()
    assert fetched_by(linked)[1] is not fetcher
    (found,) = late
    found(answer)
    produce(linked)
    linked.settle()
    assert mirrored.is_ready
    assert linked.reports == []
    assert_same(linked)


def fetched_by(linked: LinkedClusters) -> tuple[MirroredLink, MirrorFetcher, MirroredPartition]:
    """The link of the leader here, and the fetcher that has its partition."""
    (mirrored,) = linked.mirrors[11]._mirrored[NAME].values()
    link = linked.mirrors[11]._links["west"]
    return link, link._fetchers[mirrored.source_leader], mirrored


def test_what_ends_before_the_source_begins_is_lacking_there_and_nothing_is_cut_unasked(tmp_path: Path) -> None:
    """The source has no epoch any more by which both could be compared."""
    clusters = TwoClusters(tmp_path)
    try:
        write_to(clusters, clusters.writer, 3)
        clusters.is_away = True
        write_to(clusters, clusters.writer, 2)  # these are of this cluster alone
        clusters.move(FAIL_OVER)
        clusters.world.advance(FETCH_TIMEOUT_MS)
        clusters.hand_over()
        write_to(clusters, clusters.writer, 5)
        assert clusters.writer.brokers[clusters.writer.state().leader].partition().delete_records(7) == 0
        clusters.is_away = False
        before = clusters.stored(clusters.mirror)
        clusters.adopt()
        clusters.world.advance(FETCH_TIMEOUT_MS)
        assert clusters.topic.state == ADOPTED
        assert clusters.topic.reason == "the source lacks 5 records: partition 0 from offset 0 (5)"
        assert clusters.stored(clusters.mirror) == before
        clusters.discard()
        clusters.world.advance(FETCH_TIMEOUT_MS)
        assert clusters.topic.state == MIRRORING
        assert clusters.stored(clusters.mirror) == clusters.stored(clusters.writer)
    finally:
        clusters.close()


def write_to(clusters: TwoClusters, cluster: Cluster, count: int) -> None:
    for _ in range(count):
        cluster.brokers[cluster.state().leader].produce()
    clusters.world.advance(3_000)


def test_a_promotion_asks_rarely_for_the_end_of_what_lags(tmp_path: Path) -> None:
    linked = LinkedClusters(tmp_path, throttled_rate="1000")
    try:
        produce(linked, 200)
        begin_promotion(linked)
        assert linked.state == PROMOTING
        linked.world.advance(FETCH_TIMEOUT_MS)
        assert linked.state == PROMOTED
        assert_same(linked)
    finally:
        linked.close()


def test_a_promotion_asks_rarely_for_the_end_of_what_a_follower_here_lacks(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    linked.here.isolate(12)
    produce(linked)
    linked.world.advance(200)
    begin_promotion(linked)
    assert linked.state == PROMOTING
    linked.here.heal()
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert linked.state == PROMOTED
    assert_same(linked)


def begin_promotion(linked: LinkedClusters) -> None:
    """Have the topic promoted for a while in which it cannot be."""
    asked = len(linked.questions)
    linked.become(PROMOTING)
    linked.world.advance(4 * ALL_ENDS_MS)
    ends = [each for each in linked.questions[asked:] if isinstance(each, ListOffsetsRequest)]
    assert 1 <= len(ends) <= 5


def test_where_the_source_begins_is_followed_once_a_late_follower_here_has_what_lies_before_it(
    linked: LinkedClusters,
) -> None:
    produce(linked)
    linked.settle()
    linked.here.isolate(12)
    produce(linked)
    linked.world.advance(200)
    assert linked.source.brokers[1].partition().delete_records(6) == 0
    linked.world.advance(1_000)
    leader = linked.here.brokers[11]
    assert leader.offsets() == (3, 3, 6)
    linked.here.heal()
    linked.world.advance(FETCH_TIMEOUT_MS)
    assert [broker.offsets() for broker in linked.here.brokers.values()] == [(6, 6, 6), (6, 6, 6)]
    assert leader.partition().high_watermark_listener is None
