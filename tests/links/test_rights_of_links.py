"""A link whose user loses the right to read at the source, for a moment or for good, in virtual time."""

from __future__ import annotations

from pybroker.cluster.image.link_states import FAILED, MIRRORING, STOPPED
from pybroker.replication.mirrored_partition import RIGHT_PATIENCE_MS
from tests.links.test_mirrors import assert_same, linked, produce
from tests.links.test_read_only_topics import Inner
from tests.links.virtual_link import LinkedClusters

__all__ = ["linked"]


def may_read(linked: LinkedClusters, may: bool) -> None:
    for broker in linked.source.brokers.values():
        broker.services.authorizer = Inner(may)


def test_a_right_that_is_lost_for_a_moment_stops_nothing_and_is_named(linked: LinkedClusters) -> None:
    produce(linked)
    linked.settle()
    for _ in range(3):
        may_read(linked, False)
        produce(linked)
        linked.world.advance(RIGHT_PATIENCE_MS // 2)
        assert linked.mirrors[11].progress("west")[0]["problem"] == "the link may not read it at the source"
        may_read(linked, True)
        linked.settle()
        assert_same(linked)
    assert (linked.state, linked.reports) == (MIRRORING, [])


def test_a_right_that_does_not_come_back_stops_the_topic_and_is_asked_for_rarely_until_then(
    linked: LinkedClusters,
) -> None:
    produce(linked)
    linked.settle()
    asked = len(linked.questions)
    may_read(linked, False)
    produce(linked)
    linked.world.advance(2 * RIGHT_PATIENCE_MS)
    assert (linked.state, [report.kind for report in linked.reports]) == (STOPPED, [FAILED])
    assert "the link may not read it" in linked.reports[0].reason
    assert len(linked.questions) - asked < 200
