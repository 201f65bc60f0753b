"""One link on one broker: who leads at the source what is mirrored here, and the fetchers of those brokers.

Owns: the way to the source, the questions who leads, and which fetcher has which partition.  Does not own which
partitions there are (``mirrors``).

Invariant: a partition that no fetcher has is asked for at the source, ever more rarely, until one has it.

Counterpart in Kafka: ``ReplicaFetcherManager``, for one cluster of KIP-1279.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.links.source_port import ANY_NODE, METADATA_VERSION
from pybroker.config.link_config import LinkConfig, links_of
from pybroker.config.link_settings import NO_BOUND
from pybroker.config.schema import ConfigError
from pybroker.replication.mirror_fetcher import MirrorFetcher, topics_request
from pybroker.replication.mirrored_partition import NO_NODE, MirroredPartition
from pybroker.replication.replication_quota import ALL_PARTITIONS, ReplicationQuota
from pybroker_protocol.errors import error_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pybroker.cluster.links.source_port import Connect, Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.env import Cancellable
    from pybroker.replication.followed_partition import PartitionKey
    from pybroker.replication.replication_ports import ReplicatingBroker

# Between two questions who leads at the source what no fetcher has, at least and at most.
LEADERS_PAUSE_MIN_MS: Final = 20
LEADERS_PAUSE_MAX_MS: Final = 2_000
LEADERS_TIMEOUT_MS: Final = 10_000

# A link's bytes are counted over so many seconds, as Kafka counts those of replicas.
QUOTA_SAMPLES: Final = 11
QUOTA_SAMPLE_MS: Final = 1_000

logger = logging.getLogger(__name__)


class MirroredLink:
    def __init__(self, broker: ReplicatingBroker, link: str, connect: Connect) -> None:
        self._broker = broker
        self._link = link
        self._connect = connect
        self._config: LinkConfig | None = links_of(broker.config).get(link)
        self._source: Source | None = None
        self._quota = ReplicationQuota(broker.env.clock, self._rate_max, QUOTA_SAMPLES, QUOTA_SAMPLE_MS)
        self._fetchers: dict[int, MirrorFetcher] = {}
        self._partitions: dict[PartitionKey, MirroredPartition] = {}
        self._unplaced: dict[PartitionKey, MirroredPartition] = {}
        self._timer: Cancellable | None = None
        self._pause_ms = LEADERS_PAUSE_MIN_MS
        self._is_asking = False
        self._closed = False

    def close(self) -> None:
        """Fetch nothing any more."""
        self._closed = True
        self._disconnect()
        for partition in self._partitions.values():
            partition.retire()

    @property
    def is_over(self) -> bool:
        """Whether it is deleted, and nothing is mirrored for it any more."""
        return self._config is None and not self._partitions

    def become(self, config: LinkConfig | None) -> None:
        """The link is set so, None: deleted; where its source is reached otherwise everything begins anew."""
        before, self._config = self._config, config
        if before is None or config is None or before.connection() != config.connection():
            self._disconnect()
            self._place_anew(list(self._partitions.values()))

        for partition in self._partitions.values():
            self._hold_to_quota(partition)

    def _rate_max(self) -> int:
        """Bytes per second that may come; NO_BOUND for as many as there are."""
        bound: int = NO_BOUND if self._config is None else self._config.get("throttled.rate")
        return bound

    def _hold_to_quota(self, partition: MirroredPartition) -> None:
        is_bound = self._rate_max() != NO_BOUND
        self._quota.throttle(partition.topic, ALL_PARTITIONS if is_bound else ())

    def _disconnect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions.values():
            self._release(partition)
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        source, self._source = self._source, None
        if source is not None:
            source.close()

    # --- partitions --------------------------------------------------------------------------------------------------

    def add(self, partition: MirroredPartition) -> None:
        """Fetch the partition, once it is known who leads it."""
        self._partitions[partition.key] = partition
        self._hold_to_quota(partition)
        self._place_anew([partition])

    def remove(self, partition: MirroredPartition) -> None:
        """Fetch it no longer: nothing is appended to its log for the link's sake from now on."""
        self._release(partition)
        partition.retire()
        for kept in (self._partitions, self._unplaced):
            if kept.get(partition.key) is partition:
                del kept[partition.key]

    def look_for_end(self, partition: MirroredPartition) -> None:
        """The partition is being promoted from now on; one that no fetcher has is looked at once one has it."""
        fetcher = self._fetchers.get(partition.source_leader)
        if fetcher is not None:
            fetcher.look_for_end(partition)

    def _release(self, partition: MirroredPartition) -> None:
        fetcher = self._fetchers.get(partition.source_leader)
        partition.source_leader = NO_NODE
        if fetcher is not None:
            fetcher.release(partition)

    def _place_anew(self, partitions: Iterable[MirroredPartition]) -> None:
        """These are led by another broker of the source, or their leader is not known."""
        for partition in partitions:
            if self._partitions.get(partition.key) is partition:
                self._release(partition)
                self._unplaced[partition.key] = partition
        self._ask_later()

    # --- who leads at the source -------------------------------------------------------------------------------------

    def _ask_later(self) -> None:
        if self._unplaced and self._config is not None and not (self._timer or self._is_asking or self._closed):
            self._timer = self._broker.env.timers.call_later(self._pause_ms, self._ask)
            self._pause_ms = min(2 * self._pause_ms, LEADERS_PAUSE_MAX_MS)

    def _ask(self) -> None:
        self._timer = None
        source = self._connected()
        if source is None or not self._unplaced:
            self._ask_later()
            return
        request = topics_request(topic_id for topic_id, _ in self._unplaced)
        self._is_asking = True

        def answered(response: Any | None, error: PeerError | None) -> None:
            self._is_asking = False
            if error is not None and source is self._source:
                self._note_problem(f"its source does not answer: {error}")
            elif response is not None and source is self._source:
                self._learn(source, response)
            self._ask_later()

        source.ask(ANY_NODE, request, METADATA_VERSION, answered, timeout_ms=LEADERS_TIMEOUT_MS)

    def _connected(self) -> Source | None:
        if self._source is None and self._config is not None:
            try:
                self._source = self._connect(self._config)
            except ConfigError as error:  # a file of keys may be another a moment later
                self._note_problem(str(error))
                if self._broker.rate_limited_log.is_first(f"link {self._link}", str(error), logging.ERROR):
                    logger.error("link %s: %s", self._link, error)
        return self._source

    def _note_problem(self, problem: str) -> None:
        for partition in self._unplaced.values():
            partition.on_unreached(problem)

    def _learn(self, source: Source, response: Any) -> None:
        source.learn({broker.node_id: (broker.host, broker.port) for broker in response.brokers})
        refused = {topic.topic_id: topic.error_code for topic in response.topics if topic.error_code}
        for unplaced in self._unplaced.values() if refused else ():
            if unplaced.topic_id in refused:
                unplaced.on_unreached(f"the source says of its topic {error_name(refused[unplaced.topic_id])}")
        for topic in response.topics:
            for state in topic.partitions:
                partition = self._unplaced.get((topic.topic_id, state.partition_index))
                if partition is not None and not topic.error_code:
                    self._place(source, partition, state.leader_id, state.leader_epoch)

    def _place(self, source: Source, partition: MirroredPartition, node: int, epoch: int) -> None:
        partition.source_leader, partition.source_epoch = node, epoch
        if not partition.may_be_fetched:
            if node == NO_NODE:
                partition.on_unreached("it has no leader at the source")
            partition.source_leader = NO_NODE
            return
        del self._unplaced[partition.key]
        self._pause_ms = LEADERS_PAUSE_MIN_MS
        fetcher = self._fetchers.get(node)
        if fetcher is None:
            fetcher = MirrorFetcher(
                self._broker, source, self._link, node, self._quota, self._place_anew, self._rate_max
            )
            self._fetchers[node] = fetcher
        fetcher.add(partition)
