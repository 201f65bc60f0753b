"""Two clusters in one virtual world, and a link each way: the one takes writes, and the other mirrors it.

Real: what ``virtual_link`` has, and what the controller decides of promotion, failover, adoption and discard.  In the
test's hands: when that happens, who leads on either side, and whether a link has its source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.mirrored_topics import EPOCHS_AHEAD, follow_source, moved, take_reports, take_wishes
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.link_states import (
    MIRROR_TOPIC_ID,
    MirroredTopic,
    MirrorReport,
    SourceCluster,
    SourceTopic,
)
from pybroker.config.link_config import LinkConfig
from pybroker.replication.mirrors import Mirrors
from pybroker_protocol.uuids import uuid_text
from tests.links.virtual_link import VirtualSource, stored_of
from tests.replication.cluster import LATENCY_MS, NAME, Broker, Cluster
from tests.steps import end_of
from tests.storage.logs import TOPIC_ID

LINK = "other"


class TwoClusters:
    """``writer`` takes writes, and ``mirror`` has what it has; ``hand_over`` exchanges them."""

    def __init__(self, path: Path) -> None:
        self.world = VirtualWorld()
        settings: dict[str, Any] = {f"pybroker_links_{LINK}_bootstrap_servers": "other:9092"}
        self.writer = Cluster(path / "first", self.world, replicas=(1, 2), **settings)
        self.mirror = Cluster(path / "second", self.world, replicas=(11, 12), **settings)
        self.is_away = False  # no link reaches its source
        self.mirror.set(leader_epoch=EPOCHS_AHEAD)
        self.mirror._change(mirrors={NAME: MirroredTopic(LINK, NAME, TOPIC_ID)})
        self.mirror.tell()
        self._mirrors = [
            self._mirrors_of(cluster, other, broker)
            for cluster, other in ((self.writer, self.mirror), (self.mirror, self.writer))
            for broker in cluster.brokers.values()
        ]

    def _mirrors_of(self, cluster: Cluster, other: Cluster, broker: Broker) -> Mirrors:
        def connect(_config: LinkConfig) -> VirtualSource:
            return VirtualSource(other, lambda: self.is_away, [])

        return Mirrors(broker.replicas, broker.metadata, connect, partial(self._report, cluster, broker))

    def _report(
        self, cluster: Cluster, broker: Broker, reports: Sequence[MirrorReport], done: Callable[[int], None]
    ) -> None:
        def told() -> None:
            self.decide(cluster, lambda builder: take_reports(builder, broker.broker_id, reports))
            done(0)

        self.world.timers.call_later(LATENCY_MS, told)

    # --- what the controllers decide ---------------------------------------------------------------------------------

    def decide(self, cluster: Cluster, decision: Callable[[ImageBuilder], object]) -> None:
        """Change a cluster's metadata; all of its brokers hear of it."""
        builder = ImageBuilder(cluster.image)
        decision(builder)
        cluster.image, _ = builder.build(cluster.image.epoch + 1)
        cluster.tell()

    def move(self, by: str) -> None:
        """Move the mirrored topic by an input."""
        self.decide(self.mirror, lambda builder: moved(builder, NAME, by))

    def hand_over(self) -> None:
        """The former mirror is the writer from now on; what the former writer is, ``adopt`` says."""
        self.writer, self.mirror = self.mirror, self.writer

    def adopt(self) -> None:
        """The former writer is to mirror the present one."""
        there = SourceTopic(NAME, TOPIC_ID, (self.writer.state().leader_epoch,), {MIRROR_TOPIC_ID: uuid_text(TOPIC_ID)})
        source = SourceCluster("that-cluster", {NAME: there})
        config, rules = _config(adopt=NAME), cast(Any, None)  # a topic that is here is not made
        self.decide(self.mirror, lambda builder: end_of(follow_source(builder, config, source, rules)))

    def discard(self) -> None:
        """The operator agrees that what the writer lacks is cut."""
        self.decide(self.mirror, lambda builder: end_of(take_wishes(builder, _config(adopt=NAME, discard=NAME))))

    # --- how it stands -----------------------------------------------------------------------------------------------

    @property
    def topic(self) -> MirroredTopic:
        """The mirrored topic."""
        return self.mirror.image.mirrors[NAME]

    def stored(self, cluster: Cluster) -> dict[int, bytes]:
        """The batches of the partition's leader, by their base offsets."""
        return stored_of(cluster.brokers[cluster.state().leader])

    def close(self) -> None:
        for mirrors in self._mirrors:
            mirrors.close()
        self.mirror.close()
        self.writer.close()


def _config(**settings: str) -> LinkConfig:
    return LinkConfig(LINK, {"bootstrap.servers": "other:9092", "topics": NAME, **settings})
