"""What this broker's replicas of replicated partitions are: which it leads, which it follows, and whom.

Owns:
- Taking the roles that the image gives, a share of them in each turn of the loop.
- The partitions that are followed, with one fetcher for each leader.
- The quotas of what is copied, and the look at the ISRs from time to time.

Does not own led partitions (``replica_manager``), nor what a leader knows of its followers (``followers``).

Invariants:
- What is not to be followed any more, or not so, is let go at once, before anything else hears of the image.
- What takes longer (opening logs) is decided by the image of that time, so that only the last one counts.
- A partition that has no leader is not followed, and its log is open all the same.

Kafka counterpart: ReplicaManager.applyDelta, ReplicaFetcherManager, the isr-expiration task.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker.replication.followed_partition import FollowedPartition, PartitionKey
from pybroker.replication.follower_watch import FollowerWatch, FollowerWatches
from pybroker.replication.replica_fetcher import ReplicaFetcher
from pybroker.replication.replication_ports import ReplicatingBroker
from pybroker.replication.replication_quota import ReplicationQuotas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pybroker.cluster.image.cluster_image import PartitionImage, TopicImage
    from pybroker.cluster.membership.peers import Peers
    from pybroker.env import Cancellable
    from pybroker.replication.followers import Followers
    from pybroker.storage.log.partition_log import PartitionLog

# Partitions take their roles for so long in one turn of the loop.
REPLICA_ROLES_SLICE_MS = 10

logger = logging.getLogger(__name__)


class Replicas(ReplicatingBroker, Protocol):
    """The broker with its partitions: ``ReplicaManager``."""

    lag_time_max_ms: int
    session_ms: int
    peers: Peers | None

    def mark(self, waited_for: FollowedPartition | FollowerWatch) -> None:
        """Look at what waits for it once, after this turn of the loop."""
        ...

    def lead(self, topic: TopicImage, index: int) -> bool:
        """Make the partition, which is led here; whether its log could be had."""
        ...

    def is_lost(self, topic: TopicImage, index: int) -> bool:
        """Whether the log dir that the image names for the replica does not work: no later try would find its log."""
        ...

    def begin_anew(self, topic: TopicImage, index: int) -> bool:
        """Have the replica begin in another log dir, where its own is lost; whether it may."""
        ...

    def tell_place(self, log: PartitionLog) -> None:
        """The controller is to know where a replica lies that has begun anew."""
        ...

    def open_replica(self, topic: TopicImage, index: int) -> PartitionLog | None:
        """The log of a replica that is here; None if it cannot be had."""
        ...

    def delete_replica(self, topic: TopicImage, index: int) -> None:
        """The replica is not here any more: its files go."""
        ...


class ReplicaRoles:
    """One per broker, made when it has the first replica that is not the only one."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.quotas = ReplicationQuotas(replicas)
        self.watches = FollowerWatches(replicas)
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._unsettled: deque[PartitionKey] = deque()
        self._turn: Cancellable | None = None
        self._later: dict[PartitionKey, Cancellable] = {}
        self._led: dict[Followers, None] = {}
        self._isr_check: Cancellable | None = None

    def close(self) -> None:
        """Follow no broker, and ask for nothing."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._unsettled.clear()
        for timer in (self._turn, self._isr_check, *self._later.values()):
            if timer is not None:
                timer.cancel()

    # --- roles -----------------------------------------------------------------------------------------------------

    def take(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """The image has these partitions of the topic anew, or otherwise than before."""
        for index in indexes:
            key = topic.topic_id, index
            followed = self._followed.get(key)
            if followed is not None and not self._is_followed_so(followed, topic.partitions[index]):
                self.let_go(key)
            self._unsettled.append(key)
        if self._turn is None:
            self._settle_some()

    def _is_followed_so(self, followed: FollowedPartition, state: PartitionImage) -> bool:
        is_same = (followed.leader, followed.leader_epoch) == (state.leader, state.leader_epoch)
        return is_same and self._replicas.broker_id in state.replicas

    def let_go(self, key: PartitionKey) -> None:
        """Follow the partition no longer, if it is followed."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        fetcher = self._fetchers.get(followed.leader)
        if fetcher is None:
            followed.retire()
            return
        # It stays when it has nobody to follow for: a fetch of its may be parked, and another's would wait behind that.
        fetcher.remove(followed)

    def followed(self, topic_id: bytes, index: int) -> FollowedPartition | None:
        """A partition that is followed here."""
        return self._followed.get((topic_id, index))

    def _settle_some(self) -> None:
        """Take roles for a share of this turn of the loop, the others in later ones."""
        self._turn = None
        env = self._replicas.env
        end_ms = env.clock.monotonic_ms() + REPLICA_ROLES_SLICE_MS
        while self._unsettled:
            topic_id, index = self._unsettled.popleft()
            topic = self._replicas.image.topics_by_id.get(topic_id)
            if topic is not None:
                try:
                    self._settle(topic, index)
                except Exception:  # the others take theirs
                    logger.exception("%s-%d could not take its role", topic.name, index)
                    self._settle_later(topic, index)
            if self._unsettled and env.clock.monotonic_ms() >= end_ms:
                self._turn = env.timers.call_soon(self._settle_some)
                return

    def _settle(self, topic: TopicImage, index: int) -> None:
        state, broker_id = topic.partitions[index], self._replicas.broker_id
        if broker_id not in state.replicas:
            self._replicas.delete_replica(topic, index)
        elif state.leader == broker_id:
            if not self._replicas.lead(topic, index):
                self._settle_later(topic, index)
        elif (topic.topic_id, index) not in self._followed:
            self._follow(topic, index, state)

    def _follow(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        partition_log = self._replicas.open_replica(topic, index)
        if partition_log is None and state.leader != NO_LEADER and self._replicas.begin_anew(topic, index):
            partition_log = self._replicas.open_replica(topic, index)
        if partition_log is None:
            self._settle_later(topic, index)
            return
        mark = self._replicas.mark
        followed = FollowedPartition(topic.name, topic.topic_id, index, state, partition_log, mark)
        if self._replicas.is_lost(topic, index):
            # Before it has what was committed nobody may think that it could lead.
            followed.on_caught_up = partial(self._replicas.tell_place, partition_log)
        self._followed[followed.key] = followed
        peers = self._replicas.peers
        if state.leader == NO_LEADER or peers is None:
            return
        fetcher = self._fetchers.get(state.leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._replicas, peers, state.leader, self.quotas.follower)
            self._fetchers[state.leader] = fetcher
        fetcher.add(followed)

    def _settle_later(self, topic: TopicImage, index: int) -> None:
        """Its log cannot be had now, for want of a descriptor perhaps.

        In a log dir that failed it cannot before the image names another one, which has the role be taken anew.
        """
        key = topic.topic_id, index
        if key not in self._later and not self._replicas.is_lost(topic, index):
            pause_ms = self._replicas.config.get_int("replica.fetch.backoff.ms")
            self._later[key] = self._replicas.env.timers.call_later(pause_ms, self._settle_again, key)

    def _settle_again(self, key: PartitionKey) -> None:
        del self._later[key]
        self._unsettled.append(key)
        if self._turn is None:
            self._settle_some()

    # --- the ISR ---------------------------------------------------------------------------------------------------

    def watch(self, followers: Followers) -> None:
        """Look from time to time whether they are in sync, as long as they are led from here."""
        self._led[followers] = None
        if self._isr_check is None:
            self._check_later()

    def _check_later(self) -> None:
        self._isr_check = self._replicas.env.timers.call_later(
            max(min(self._replicas.lag_time_max_ms // 2, self._replicas.session_ms // 4), 1), self._check_isrs
        )

    def _check_isrs(self) -> None:
        self._isr_check = None
        self._led = {followers: None for followers in self._led if not followers.gone}
        for followers in list(self._led):
            try:
                followers.look_at_time()
            except Exception:
                logger.exception("the ISR of %s-%d could not be looked at", followers.topic, followers.index)
        if self._led:
            self._check_later()
