"""Fetching from one broker of a link's source what that leads.

Owns: what a link does otherwise than a follower. It asks as a consumer, and reports to what knows the source's leaders
when it has asked the wrong one. It says when a partition that is being promoted has come to its end. Everything else is
``replica_fetcher``'s.

Invariant: a partition is at most one fetcher's; what another one had begun for it does nothing any more.

Counterpart in Kafka: ``MirrorFetcherThread`` of KIP-1279.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pybroker import cluster_limits
from pybroker.cluster.links.source_port import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    METADATA_VERSION,
    OFFSET_FOR_LEADER_EPOCH_VERSION,
)
from pybroker.cluster.membership.peers import CONTROL
from pybroker.config.link_settings import NO_BOUND
from pybroker.replication.mirrored_partition import MirroredPartition
from pybroker.replication.replica_fetcher import EARLIEST, LATEST, ReplicaFetcher
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.fetch import ReplicaState
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from pybroker.cluster.links.source_port import Source
    from pybroker.cluster.membership.peers import PeerError
    from pybroker.env import Cancellable
    from pybroker.replication.followed_partition import FollowedPartition, PartitionKey
    from pybroker.replication.replication_ports import ReplicatingBroker
    from pybroker.replication.replication_quota import ReplicationQuota
    from pybroker_protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger(__name__)

# So long a broker of the source that does not lead a partition has to say how many its topic has.
OTHERS_TIMEOUT_MS: Final = 2_000
# What is not answered in time breaks its connection, on which nothing else may wait.
OTHERS: Final = "partition counts"

# A partition of a promotion that is known to lag is asked for its end so rarely; others each time.
ALL_ENDS_MS: Final = 1_000

# Another broker of the source leads by now, or the same one in another epoch.
_LED_OTHERWISE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class MirrorFetcher(ReplicaFetcher):
    """``leader`` is the id of the source's broker.

    ``on_lost(partitions)`` hears of those that this broker of the source does not lead, or not so, and of all where it
    does not answer.  ``rate_max()`` are the bytes per second that may come, NO_BOUND for any.
    """

    fetch_version = FETCH_VERSION

    def __init__(
        self,
        broker: ReplicatingBroker,
        source: Source,
        link: str,
        leader: int,
        quota: ReplicationQuota,
        on_lost: Callable[[list[MirroredPartition]], None],
        rate_max: Callable[[], int],
    ) -> None:
        super().__init__(broker, source, leader, quota)
        self._link = link
        self._on_lost = on_lost
        self._rate_max = rate_max
        self._unended: dict[PartitionKey, MirroredPartition] = {}  # those that are being promoted
        self._all_ends_at_ms = 0  # then all of them are asked for their ends, also those that lag
        self._look: Cancellable | None = None  # at their ends: it is to come, or under way

    def release(self, partition: MirroredPartition) -> None:
        """Fetch the partition no longer; another broker of the source may be asked for it."""
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]
        if partition.pause is not None:
            partition.pause.cancel()
            partition.pause = None
        self._wait_for(partition)
        self._throttle.forget(partition)

    def _ready(self, partition: FollowedPartition) -> None:
        is_cut = isinstance(partition, MirroredPartition) and partition.is_cut
        if self._partitions.get(partition.key) is partition and not is_cut:
            super()._ready(partition)

    def _put_off(self, partition: FollowedPartition, then: Callable[[FollowedPartition], None] | None = None) -> None:
        if self._partitions.get(partition.key) is partition:
            super()._put_off(partition, then)

    def _ask_offset(self, partition: FollowedPartition, timestamp: int, found: Callable[[int | None], None]) -> None:
        """See ``ReplicaFetcher``; nothing is found for a partition that another fetcher has by then."""

        def answered(offset: int | None) -> None:
            if self._partitions.get(partition.key) is partition:
                found(offset)

        super()._ask_offset(partition, timestamp, answered)

    def _replica_state(self) -> ReplicaState:
        return ReplicaState()

    def _answer_bytes_max(self) -> int:
        """With a bound per second an answer brings no more than a second may, but for a batch that is longer."""
        bound = self._rate_max()
        return super()._answer_bytes_max() if bound == NO_BOUND else min(super()._answer_bytes_max(), bound)

    def _end_parked_fetch(self) -> None:
        """A consumer's fetch ends by itself, after ``replica.fetch.wait.max.ms`` at most."""

    def _on_fetched(self, response: FetchResponse | None, error: PeerError | None) -> None:
        if error is not None:
            for partition in self._partitions.values():
                if isinstance(partition, MirroredPartition):
                    partition.on_unreached(f"broker {self._leader} of the source does not answer: {error}")
        super()._on_fetched(response, error)

    def _rest(self) -> None:
        super()._rest()
        self._on_lost([each for each in self._partitions.values() if isinstance(each, MirroredPartition)])

    def _append(self, partition: FollowedPartition, data: PartitionData) -> None:
        if isinstance(partition, MirroredPartition):
            partition.source_stable = data.last_stable_offset
        super()._append(partition, data)
        if not isinstance(partition, MirroredPartition) or partition.retired:
            return
        if partition.is_cut:
            self._wait_for(partition)  # in the next leader epoch it is another object's
        elif partition.may_lack_end:
            self._put_off(partition)
            self._session.begin_anew()  # this one names what is new alone

    def _on_synced(self, partition: FollowedPartition) -> None:
        if isinstance(partition, MirroredPartition) and not partition.retired:
            partition.partition.on_appended()  # a leader commits what it has synced, and no fetch tells it so
        super()._on_synced(partition)

    def _on_error(self, partition: FollowedPartition, error_code: int) -> None:
        if error_code in _LED_OTHERWISE and isinstance(partition, MirroredPartition):
            self._wait_for(partition)
            self._on_lost([partition])
        elif error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and isinstance(partition, MirroredPartition):
            if partition.has_no_right():
                self._wait_for(partition)
            else:
                self._put_off(partition)
        elif error_code == ErrorCode.OFFSET_OUT_OF_RANGE and partition.log.leader_epochs.latest_epoch >= 0:
            # A source that knows the log's last epoch says where both part; where it does not, its end says nothing.
            self._wait_for(partition)
            self._ask_for_offset(partition, EARLIEST)
        else:
            if isinstance(partition, MirroredPartition) and error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                partition.on_unreached(f"broker {self._leader} of the source says {error_name(error_code)}")
            super()._on_error(partition, error_code)

    def _on_divergence(self, partition: FollowedPartition, epoch: int, end_offset: int) -> None:
        if not isinstance(partition, MirroredPartition):
            super()._on_divergence(partition, epoch, end_offset)
            return
        has_to_begin_anew = partition.has_to_begin_anew()
        if not has_to_begin_anew:
            super()._on_divergence(partition, epoch, end_offset)
        if has_to_begin_anew or partition.is_cut:
            self._wait_for(partition)  # in the next leader epoch it is another object's

    def _on_unknown_offset(self, partition: FollowedPartition) -> None:
        """The source has no such offset, or its leader epochs went back, as by a backup.

        Other records may stand then at the same offsets and under the same epochs.  But another broker may lead it by
        now, and know more.
        """
        if not isinstance(partition, MirroredPartition):
            super()._on_unknown_offset(partition)
        elif partition.has_another_history():
            self._wait_for(partition)
        else:
            self._tell(logging.WARNING, "it does not know the last leader epoch of a partition", partition)
            self._put_off(partition, self._place_anew)

    def _place_anew(self, partition: FollowedPartition) -> None:
        """Have it asked anew who leads the partition at the source."""
        if isinstance(partition, MirroredPartition) and self._partitions.get(partition.key) is partition:
            self._on_lost([partition])

    # --- the end of a promotion --------------------------------------------------------------------------------------

    def add(self, partition: FollowedPartition) -> None:
        """See ``ReplicaFetcher``; one that is being promoted is looked at for its end, too.

        Of one that is adopted nothing is fetched: it is looked at for where both histories part.
        """
        if isinstance(partition, MirroredPartition) and partition.is_adopted:
            self._partitions[partition.key] = partition
            self._look_for_start(partition)
            return
        super().add(partition)
        if isinstance(partition, MirroredPartition) and partition.is_promoting:
            self.look_for_end(partition)

    def look_for_end(self, partition: MirroredPartition) -> None:
        """Look whether all is here of a partition that this fetcher has, until it is."""
        if self._partitions.get(partition.key) is partition:
            self._unended[partition.key] = partition
            self._look_for_ends_in(0)

    def _look_for_start(self, partition: MirroredPartition) -> None:
        """Ask where the source's log begins: of what ends before that its epochs say nothing."""

        def answered(response: Any | None, error: PeerError | None) -> None:
            if self._partitions.get(partition.key) is not partition:
                return  # another fetcher has it by now
            topics = () if response is None else response.topics
            found = next((each for topic in topics for each in topic.partitions), None)
            if found is None or found.error_code or found.offset < 0:
                self._ask_anew_who_leads(partition, error)
            elif not partition.retired and not partition.parts_before(found.offset):
                self._look_for_parting(partition, partition.log.leader_epochs.latest_epoch)

        self._ask(offsets_request([partition], EARLIEST), LIST_OFFSETS_VERSION, CONTROL, answered)

    def _look_for_parting(self, partition: MirroredPartition, epoch: int) -> None:
        """Ask for the end of ``epoch`` at the source, and of earlier ones, until both logs have one."""
        if partition.retired or self._partitions.get(partition.key) is not partition:
            return

        def answered(response: Any | None, error: PeerError | None) -> None:
            topics = () if response is None else response.topics
            found = next((each for topic in topics for each in topic.partitions), None)
            if found is None or found.error_code:
                self._ask_anew_who_leads(partition, error)
            elif not partition.retired:
                earlier = partition.look_for_parting(epoch, found.leader_epoch, found.end_offset)
                if earlier is not None:
                    self._look_for_parting(partition, earlier)

        self._ask(epochs_request([(partition, epoch)]), OFFSET_FOR_LEADER_EPOCH_VERSION, CONTROL, answered)

    def _ask_anew_who_leads(self, partition: MirroredPartition, error: PeerError | None) -> None:
        if self._partitions.get(partition.key) is partition:
            if error is not None:
                partition.on_unreached(f"broker {self._leader} of the source does not answer: {error}")
            self._on_lost([partition])

    def close(self) -> None:
        """See ``ReplicaFetcher``."""
        super().close()
        if self._look is not None:
            self._look.cancel()

    def _look_for_ends_in(self, pause_ms: int) -> None:
        if self._look is None and self._unended and not self._closed:
            self._look = self._follower.env.timers.call_later(pause_ms, self._look_for_ends)

    def _look_for_ends(self) -> None:
        """Ask where the source ends, until everything is here: for all that are being promoted at once.

        A fetch would not say so of a partition at rest: its session names what is new alone.
        """
        partitions = self._partitions
        self._unended = {key: each for key, each in self._unended.items() if partitions.get(key) is each}
        if not self._unended:
            self._look = None
            return
        # What is known to lack here comes by fetches, and no answer says more before that.  All are asked now and then.
        now_ms = self._follower.env.clock.monotonic_ms()
        is_due = now_ms >= self._all_ends_at_ms
        if is_due:
            self._all_ends_at_ms = now_ms + ALL_ENDS_MS
        asked = {key: each for key, each in self._unended.items() if is_due or each.may_have_ended}

        def answered(response: Any | None, _error: PeerError | None) -> None:
            topics = () if response is None else response.topics
            ends = {
                (topic.name, each.partition_index): each.offset
                for topic in topics
                for each in topic.partitions
                if not each.error_code and each.offset >= 0
            }
            there = {
                key: (each, ends[each.topic, each.index])
                for key, each in asked.items()
                if not each.retired and (each.topic, each.index) in ends
            }
            self._look_for_same({key: each for key, each in there.items() if each[0].ends_at(each[1])})

        if asked:
            self._ask(offsets_request(asked.values(), LATEST), LIST_OFFSETS_VERSION, CONTROL, answered)
        else:
            self._look_for_partitions({})

    def _look_for_same(self, at_end: dict[PartitionKey, tuple[MirroredPartition, int]]) -> None:
        """Ask of logs that end where the source does whether it has their last epoch: a source that was cut may not."""
        epochs = {key: each.log.leader_epochs.latest_epoch for key, (each, _) in at_end.items()}

        def answered(response: Any | None, _error: PeerError | None) -> None:
            topics = () if response is None else response.topics
            found = {(topic.topic, each.partition): each for topic in topics for each in topic.partitions}
            same = {
                key: (partition, end, epochs[key], there.leader_epoch, there.end_offset)
                for key, (partition, end) in at_end.items()
                if (there := found.get((partition.topic, partition.index))) is not None and not there.error_code
            }
            self._look_for_partitions(same)

        if at_end:
            asked = [(partition, epochs[key]) for key, (partition, _) in at_end.items()]
            self._ask(epochs_request(asked), OFFSET_FOR_LEADER_EPOCH_VERSION, CONTROL, answered)
        else:
            self._look_for_partitions({})

    def _look_for_partitions(self, ended: dict[PartitionKey, tuple[MirroredPartition, int, int, int, int]]) -> None:
        """Ask how many partitions the topics have at the source: with one more than here not all is here.

        The broker that leads the partition may lag, so that the others are asked, too; what one of them does not answer
        in time is not waited for.  What is left is looked at again.
        """
        counts: dict[bytes, int] = {}

        def take(response: Any | None) -> None:
            for topic in () if response is None else response.topics:
                if not topic.error_code:
                    counts[topic.topic_id] = max(counts.get(topic.topic_id, 0), len(topic.partitions))

        def are_here() -> dict[PartitionKey, tuple[MirroredPartition, int, int, int, int]]:
            """The others are of no concern any more, or the controller grows their topics at its next look."""
            return {
                key: each
                for key, each in ended.items()
                if not each[0].retired and 0 < counts.get(each[0].topic_id, 0) <= self._partitions_here(each[0])
            }

        def all_answered() -> None:
            for key, (partition, *found) in are_here().items():
                if partition.tell_if_ended(*found):
                    self._unended.pop(key, None)
            self._look = None
            self._look_for_ends_in(cluster_limits.REPLICA_FETCH_PAUSE_MIN_MS)

        def answered(response: Any | None, _error: PeerError | None) -> None:
            nonlocal ended
            take(response)
            ended = are_here()
            nodes = {broker.node_id for broker in response.brokers} if response is not None and ended else set()
            self._ask_others(nodes - {self._leader}, request, take, all_answered)

        request = topics_request(topic_id for topic_id, _ in ended)
        if ended:
            self._ask(request, METADATA_VERSION, CONTROL, answered)
        else:
            all_answered()

    def _ask_others(
        self, nodes: set[int], request: Any, take: Callable[[Any | None], None], done: Callable[[], None]
    ) -> None:
        """``take(response)`` of each of these brokers of the source, and then ``done()``."""
        waits_for = set(nodes)

        def answered(node: int, response: Any | None, _error: PeerError | None) -> None:
            if self._closed:
                return
            take(response)
            waits_for.discard(node)
            if not waits_for:
                done()

        for node in nodes:
            told = partial(answered, node)
            self._peers.ask(node, request, METADATA_VERSION, told, timeout_ms=OTHERS_TIMEOUT_MS, channel=OTHERS)
        if not nodes:
            done()

    def _partitions_here(self, partition: MirroredPartition) -> int:
        topic = self._follower.image.topics_by_id.get(partition.partition.topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _tell(self, level: int, reason: str, partition: FollowedPartition | None = None) -> None:
        source = f"link {self._link}, broker {self._leader}"
        if self._follower.rate_limited_log.is_first(source, reason, level):
            logger.log(level, "%s: %s%s", source, reason, "" if partition is None else f" ({partition})")


def offsets_request(partitions: Iterable[MirroredPartition], timestamp: int) -> ListOffsetsRequest:
    """Where the source's consumers come to an end in each of these partitions (LATEST), or begin (EARLIEST)."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(
            ListOffsetsPartition(
                partition_index=each.index, current_leader_epoch=each.source_epoch, timestamp=timestamp
            )
        )
    named = [ListOffsetsTopic(name=name, partitions=of_topic) for name, of_topic in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=named)


def topics_request(topic_ids: Iterable[bytes]) -> MetadataRequest:
    """Which partitions these topics have at the source, and who leads them."""
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in dict.fromkeys(topic_ids)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def epochs_request(asked: Iterable[tuple[MirroredPartition, int]]) -> OffsetForLeaderEpochRequest:
    """Where the source's log ends the epoch that stands beside each partition."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for each, epoch in asked:
        topics.setdefault(each.topic, []).append(
            OffsetForLeaderPartition(partition=each.index, current_leader_epoch=each.source_epoch, leader_epoch=epoch)
        )
    named = [OffsetForLeaderTopic(topic=name, partitions=of_topic) for name, of_topic in topics.items()]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=named)
