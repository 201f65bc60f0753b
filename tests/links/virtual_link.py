"""Two clusters in one virtual world, and a link from the one to the other.

Real: storage, ``ReplicaManager``, ``Mirrors`` with all beside it, the source's handlers of Fetch and ListOffsets with
the bytes of their requests, and what the controller decides of reports.  In the test's hands: who leads on either side,
and what each broker has heard of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.mirrored_topics import EPOCHS_AHEAD, moved, take_reports
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.link_states import MirroredTopic, MirrorReport
from pybroker.cluster.membership.peers import CONTROL, PeerDone, PeerError, PeerFailure
from pybroker.config.link_config import LinkConfig
from pybroker.config.schema import ConfigError
from pybroker.replication.mirror_fetcher import OTHERS_TIMEOUT_MS
from pybroker.replication.mirrors import Mirrors
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker_protocol.schema import Request
from tests.replication.cluster import LATENCY_MS, NAME, Broker, Cluster
from tests.storage.logs import TOPIC_ID


class VirtualSource:
    """A ``Source`` whose brokers are those of a cluster of the test's."""

    def __init__(
        self,
        cluster: Cluster,
        is_away: Callable[[], bool],
        questions: list[Request],
        lagging: Mapping[int, ClusterImage] = MappingProxyType({}),
    ) -> None:
        self._cluster = cluster
        self._lagging = lagging
        self._is_away = is_away
        self._questions = questions
        self._asker = SimpleNamespace(broker_id=-1, alive=True)

    def ask(
        self, broker_id: int, request: Request, version: int, done: PeerDone, *, timeout_ms: int, channel: str = CONTROL
    ) -> None:
        timers = self._cluster.world.timers
        self._questions.append(request)
        # It would break that connection, and whatever waits there for its own time.
        assert channel != CONTROL or timeout_ms > OTHERS_TIMEOUT_MS
        if self._is_away():
            timers.call_later(LATENCY_MS, done, None, PeerError(PeerFailure.UNREACHABLE, False))
        elif isinstance(request, MetadataRequest):
            timers.call_later(2 * LATENCY_MS, lambda: done(self._metadata(broker_id, request), None))
        else:
            self._cluster.deliver(cast(Any, self._asker), broker_id, request, version, done, timeout_ms)

    def _metadata(self, broker_id: int, request: MetadataRequest) -> MetadataResponse:
        known = self._lagging.get(broker_id, self._cluster.image).topics_by_id
        asked = [topic.topic_id for topic in request.topics or ()]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="source", port=9092, rack=None)
                for node_id in self._cluster.brokers
            ],
            topics=[
                MetadataResponseTopic(
                    error_code=0,
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=state.leader,
                            leader_epoch=state.leader_epoch,
                            replica_nodes=list(state.replicas),
                            isr_nodes=list(state.isr),
                        )
                        for index, state in enumerate(topic.partitions)
                    ],
                )
                for topic in (known[topic_id] for topic_id in asked if topic_id in known)
            ]
            + [
                MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
                )
                for topic_id in asked
                if topic_id not in known
            ],
        )

    def learn(self, nodes: Any) -> None:
        pass

    def close(self) -> None:
        self._asker.alive = False


class LinkedClusters:
    """``here`` mirrors the only topic of ``source``; both call it by the same name, and it has the same id.

    ``settings`` are the link's, with ``_`` for ``.``, and ``storage_settings`` of each broker.

    Brokers have other ids on either side, by which the world tells their threads apart.
    """

    def __init__(
        self,
        path: Path,
        *,
        source: tuple[int, ...] = (1, 2),
        here: tuple[int, ...] = (11, 12),
        storage_settings: dict[str, Any] | None = None,
        **settings: str,
    ) -> None:
        self.world = VirtualWorld()
        self.source = Cluster(path / "source", self.world, replicas=source, storage_settings=storage_settings)
        link: dict[str, Any] = {f"pybroker_links_west_{name}": text for name, text in settings.items()}
        link["pybroker_links_west_bootstrap_servers"] = "source:9092"
        self.here = Cluster(path / "here", self.world, replicas=here, storage_settings=storage_settings, **link)
        self.is_away = False
        self.lagging: dict[int, ClusterImage] = {}  # brokers of the source that tell how it was
        self.reports: list[MirrorReport] = []
        self.questions: list[Request] = []  # of the link's, to its source
        self.hears_reports = True
        self.refusal: str | None = None  # why no connection can be made with the link's settings
        self.here.set(leader_epoch=EPOCHS_AHEAD)
        self.become("mirroring")
        self.mirrors = {broker_id: self.mirror_on(broker) for broker_id, broker in self.here.brokers.items()}

    def mirror_on(self, broker: Broker) -> Mirrors:
        """Have a broker that has started mirror what it leads."""

        def connect(_config: LinkConfig) -> VirtualSource:
            if self.refusal is not None:
                raise ConfigError(self.refusal)
            return VirtualSource(self.source, lambda: self.is_away, self.questions, self.lagging)

        return Mirrors(broker.replicas, broker.metadata, connect, partial(self._report, broker))

    def _report(self, broker: Broker, reports: Sequence[MirrorReport], done: Callable[[int], None]) -> None:
        def decide() -> None:
            if not self.hears_reports:
                done(7)
                return
            self.reports += reports
            builder = ImageBuilder(self.here.image)
            take_reports(builder, broker.broker_id, reports)
            self.here.image, _ = builder.build(self.here.image.epoch + 1)
            done(0)
            self.here.tell()

        self.world.timers.call_later(LATENCY_MS, decide)

    def become(self, state: str) -> None:
        """The topic here is in that state from now on; all brokers hear of it."""
        self.here._change(mirrors={NAME: MirroredTopic("west", NAME, TOPIC_ID, state)})
        self.here.tell()

    def move(self, *inputs: str) -> None:
        """Move the topic here by one input after the other, of which brokers hear at once, as of one change."""
        builder = ImageBuilder(self.here.image)
        for by in inputs:
            assert moved(builder, NAME, by) is None
        self.here.image, _ = builder.build(self.here.image.epoch + 1)
        self.here.tell()

    @property
    def state(self) -> str:
        return self.here.image.mirrors[NAME].state

    def stored(self, cluster: Cluster) -> dict[int, bytes]:
        """The batches of the partition's leader, by their base offsets, as they are in its log."""
        return stored_of(cluster.brokers[cluster.state().leader])

    def settle(self) -> None:
        self.world.advance(3_000)

    def close(self) -> None:
        for mirrors in self.mirrors.values():
            mirrors.close()
        self.here.close()
        self.source.close()


def stored_of(broker: Broker) -> dict[int, bytes]:
    """The batches of a broker's log, by their base offsets."""
    return {int.from_bytes(batch[:8], "big"): batch for _, _, batch in broker.contents()}
