"""Following one leader: the fetches that bring this broker's replicas up to what that broker leads.

Owns: the fetches to one broker, one at a time, their session, what is done with an answer, and when a partition is
tried again.  Does not own which partitions are followed, and whom (``replica_roles``), what happens in a log
(``followed_partition``), which are held back because they are throttled (``follower_throttle``), nor the connection
(``cluster.membership.peers``).

Invariants:
- An answer counts for a partition only if that is still followed as it was when it was asked.
- What is fetched is appended before the next fetch.
- A turn of the loop appends for ``REPLICA_APPEND_SLICE_MS`` and a partition's share more.
- A partition that fails keeps no other waiting.

A fetch that the leader parks would keep partitions waiting that come meanwhile.  An empty fetch beside it ends it: the
leader answers what it has parked for a follower when that says so.

Kafka counterpart: AbstractFetcherThread, RemoteLeaderEndPoint.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pybroker import cluster_limits
from pybroker.cluster.membership.peers import CONTROL, REPLICATION
from pybroker.replication.fetch_session import FINAL_EPOCH
from pybroker.replication.fetcher_session import FetcherSession
from pybroker.replication.follower_throttle import FollowerThrottle
from pybroker_protocol.errors import ErrorCode, error_name
from pybroker_protocol.messages.fetch import FetchRequest, ReplicaState
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from pybroker.cluster.membership.peers import Asked, PeerError
    from pybroker.env import Cancellable
    from pybroker.replication.followed_partition import FollowedPartition, PartitionKey
    from pybroker.replication.replication_ports import ReplicatingBroker
    from pybroker.replication.replication_quota import ReplicationQuota
    from pybroker_protocol.messages.fetch import FetchResponse, PartitionData

# Followers append for so long in one turn of the loop.
REPLICA_APPEND_SLICE_MS = 10

# What a follower asks for with one fetch at most, whatever ``replica.fetch.response.max.bytes`` says, since an answer
# lies in memory as a whole.  It is longer where its first batch is.
REPLICA_FETCH_BYTES_MAX = 128 << 20

logger = logging.getLogger(__name__)

_FETCH_VERSION = 17
_LIST_OFFSETS_VERSION = 7
LATEST, EARLIEST = -1, -2
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class ReplicaFetcher:
    """A link's fetches of its source are made by one, too (``mirror_fetcher``), which is no follower there."""

    fetch_version = _FETCH_VERSION

    def __init__(self, follower: ReplicatingBroker, peers: Asked, leader: int, quota: ReplicationQuota) -> None:
        self._follower = follower
        self._peers = peers
        self._leader = leader
        self._partitions: dict[PartitionKey, FollowedPartition] = {}
        self._session = FetcherSession()
        self._throttle = FollowerThrottle(follower, quota, self._wait_for, self._ready)
        self._is_busy = False  # a fetch is under way, or what it brought is being appended
        self._is_parked = False  # a fetch is under way, and has not been asked to end
        self._pause: Cancellable | None = None  # after a failure of the connection
        self._pause_ms = cluster_limits.REPLICA_FETCH_PAUSE_MIN_MS
        self._next: Cancellable | None = None
        self._closed = False

    def add(self, partition: FollowedPartition) -> None:
        """Follow the partition's leader, once nothing is in flight in its log."""
        self._partitions[partition.key] = partition
        partition.log.queue.when_idle(lambda: self._try(partition))

    def remove(self, partition: FollowedPartition) -> None:
        """Follow it no longer; nothing is appended to its log for its sake from now on."""
        partition.retire()
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]
        self._session.drop(partition)
        self._throttle.forget(partition)

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        for partition in list(self._partitions.values()):
            self.remove(partition)
        self._throttle.close()
        for timer in (self._pause, self._next):
            if timer is not None:
                timer.cancel()

    def _ready(self, partition: FollowedPartition) -> None:
        """Nothing stands in the way of the partition's next fetch."""
        if not partition.retired:
            partition.is_ready = True
            self._session.want(partition)
            self._throttle.note(partition)
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Fetch after this turn of the loop, when all partitions that come in it are there."""
        if self._next is None and not self._closed:
            self._next = self._follower.env.timers.call_soon(self._go_on)

    # --- asking ----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._next = None
        if self._closed or self._pause is not None:
            return
        if self._is_parked and self._session.has_changes:
            self._end_parked_fetch()
        if self._is_busy:
            return
        self._throttle.hold_back()
        if self._session.is_empty:
            return
        config, session = self._follower.config, self._session
        topics, forgotten = session.request_of(config.get_int("replica.fetch.max.bytes"))
        self._is_busy = self._is_parked = True
        self._ask(
            FetchRequest(
                replica_state=self._replica_state(),
                max_wait_ms=config.get_int("replica.fetch.wait.max.ms"),
                min_bytes=config.get_int("replica.fetch.min.bytes"),
                max_bytes=self._answer_bytes_max(),
                isolation_level=0,
                session_id=session.session_id,
                session_epoch=session.epoch,
                topics=topics,
                forgotten_topics_data=forgotten,
                rack_id="",
            ),
            self.fetch_version,
            REPLICATION,
            self._on_fetched,
        )

    def _ask(
        self, request: Any, version: int, channel: str, done: Callable[[Any | None, PeerError | None], None]
    ) -> None:
        def answered(response: Any | None, error: PeerError | None) -> None:
            if not self._closed:
                done(response, error)

        timeout_ms = self._follower.config.get_int("replica.socket.timeout.ms")
        self._peers.ask(self._leader, request, version, answered, timeout_ms=timeout_ms, channel=channel)

    def _answer_bytes_max(self) -> int:
        return min(self._follower.config.get_int("replica.fetch.response.max.bytes"), REPLICA_FETCH_BYTES_MAX)

    def _replica_state(self) -> ReplicaState:
        return ReplicaState(replica_id=self._follower.broker_id, replica_epoch=self._follower.own_epoch())

    def _end_parked_fetch(self) -> None:
        """Have the leader answer the fetch that it has parked: there is more to ask for."""
        self._is_parked = False
        request = FetchRequest(
            replica_state=self._replica_state(),
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=0,
            session_epoch=FINAL_EPOCH,
            topics=[],
            forgotten_topics_data=[],
            rack_id="",
        )
        self._ask(request, _FETCH_VERSION, CONTROL, lambda _response, _error: None)

    # --- answers ---------------------------------------------------------------------------------------------------

    def _on_fetched(self, response: FetchResponse | None, _error: PeerError | None) -> None:
        self._is_parked = False
        if response is None or response.error_code:
            self._is_busy = False
            self._session.begin_anew()
            if response is None or response.error_code not in _SESSION_ERRORS:
                if response is not None:  # a failure of the connection is reported by its owner
                    self._tell(logging.INFO, f"it refuses to be followed: {error_name(response.error_code)}")
                self._rest()
            else:
                self._go_on_soon()
            return
        self._pause_ms = cluster_limits.REPLICA_FETCH_PAUSE_MIN_MS
        fetched: deque[tuple[FollowedPartition, PartitionData]] = deque()
        for topic in response.responses:
            for data in topic.partitions:
                partition = self._partitions.get((topic.topic_id, data.partition_index))
                if partition is not None and partition.asked is not None:
                    fetched.append((partition, data))
        self._session.answered(response.session_id)
        self._take(fetched)

    def _take(self, fetched: deque[tuple[FollowedPartition, PartitionData]]) -> None:
        """Do what the answer says, partition by partition, for a share of this turn; the rest is done in later ones."""
        if self._closed:
            return
        env = self._follower.env
        end_ms = env.clock.monotonic_ms() + REPLICA_APPEND_SLICE_MS
        while fetched:
            partition, data = fetched.popleft()
            try:
                self._take_one(partition, data)
            except Exception:
                logger.exception("what was fetched of %s could not be taken", partition)
                self._put_off(partition)
            if fetched and env.clock.monotonic_ms() >= end_ms:
                for _, later in fetched:  # they are views of a buffer that is given back
                    if isinstance(later.records, memoryview):
                        later.records = bytes(later.records)
                env.timers.call_soon(self._take, fetched)
                return
        self._is_busy = False
        self._go_on_soon()

    def _take_one(self, partition: FollowedPartition, data: PartitionData) -> None:
        if partition.retired or not partition.is_ready or partition.asked is None:
            return  # another is in its place, or it is being tried again
        if partition.log.queue.busy:  # its files are exchanged
            self._wait_for(partition)
            partition.log.queue.when_idle(lambda: self._try(partition))
            return
        if partition.asked.fetch_offset != partition.log.log_end_offset:
            self._session.want(partition)
            return
        if data.error_code:
            self._on_error(partition, data.error_code)
        elif data.diverging_epoch.end_offset >= 0:
            self._on_divergence(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        else:
            self._append(partition, data)

    def _on_error(self, partition: FollowedPartition, error_code: int) -> None:
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._wait_for(partition)
            self._ask_for_offset(partition, LATEST)
        elif error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._wait_for(partition)  # for the image, which the leader knows and this broker does not
        else:
            self._tell(logging.INFO, f"a partition cannot be fetched: {error_name(error_code)}", partition)
            self._put_off(partition)

    def _on_divergence(self, partition: FollowedPartition, epoch: int, end_offset: int) -> None:
        if partition.truncate_to_divergence(epoch, end_offset):
            self._taken(partition)
        else:
            self._tell(logging.ERROR, "a partition diverges, and there is nothing to cut", partition)
            self._put_off(partition)

    def _append(self, partition: FollowedPartition, data: PartitionData) -> None:
        records = data.records or b""
        error_code = partition.append(records, data.high_watermark, data.log_start_offset)
        if not error_code:
            self._throttle.fetched(partition, len(records))
            self._taken(partition)
        elif partition.log.refuses:
            logger.error("%s is not followed any more: its log takes nothing", partition)
            self._wait_for(partition)
        elif error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._put_off(partition)  # the log dir has reported it: this broker's disk takes nothing
        else:
            self._tell(logging.ERROR, f"it sent what cannot be appended: {error_name(error_code)}", partition)
            self._put_off(partition)

    def _taken(self, partition: FollowedPartition) -> None:
        """It is where the leader wanted it: it is asked for again, if there is anything new to say."""
        partition.pause_ms = cluster_limits.REPLICA_FETCH_PAUSE_MIN_MS
        if partition.has_to_sync:
            self._wait_for(partition)
            partition.log.flushes.flush(lambda: self._on_synced(partition))
        elif partition.asked != partition.question():
            self._session.want(partition)

    def _on_synced(self, partition: FollowedPartition) -> None:
        if partition.retired:
            return
        if partition.has_to_sync:
            self._put_off(partition)  # it failed, or there is no space
        else:
            self._ready(partition)

    def _tell(self, level: int, reason: str, partition: FollowedPartition | None = None) -> None:
        """Log what each answer of the leader can be, again and again: one line, then counts."""
        if self._follower.rate_limited_log.is_first(f"broker {self._leader}, which is followed", reason, level):
            logger.log(level, "broker %d: %s%s", self._leader, reason, "" if partition is None else f" ({partition})")

    # --- trying again ----------------------------------------------------------------------------------------------

    def _wait_for(self, partition: FollowedPartition) -> None:
        """Something has to end before the partition is fetched again."""
        partition.is_ready = False
        self._session.drop(partition)

    def _put_off(self, partition: FollowedPartition, then: Callable[[FollowedPartition], None] | None = None) -> None:
        """Try the partition again after a pause, or do something else ``then``."""
        self._wait_for(partition)
        if not partition.retired:
            timers = self._follower.env.timers
            partition.pause = timers.call_later(partition.pause_ms, then or self._try, partition)
            partition.pause_ms = self._next_pause_ms(partition.pause_ms)

    def _try(self, partition: FollowedPartition) -> None:
        if partition.retired or partition.log.refuses:
            return
        if partition.has_to_sync:
            partition.log.flushes.flush(lambda: self._on_synced(partition))
        else:
            self._ready(partition)

    def _rest(self) -> None:
        """Fetch nothing from this leader for a while."""
        self._pause = self._follower.env.timers.call_later(self._pause_ms, self._after_rest)
        self._pause_ms = self._next_pause_ms(self._pause_ms)

    def _after_rest(self) -> None:
        self._pause = None
        self._go_on()

    def _next_pause_ms(self, pause_ms: int) -> int:
        return min(2 * pause_ms, max(self._follower.config.get_int("replica.fetch.backoff.ms"), 1))

    # --- offsets that the leader does not have ---------------------------------------------------------------------

    def _ask_for_offset(self, partition: FollowedPartition, timestamp: int) -> None:
        """Ask where the leader's log ends, or begins, because it does not have what was asked for."""

        def found(offset: int | None) -> None:
            if offset is None:
                self._put_off(partition)
            elif timestamp == LATEST:
                self._on_leader_end(partition, offset)
            elif partition.begin_at_start_of_leader(offset):
                self._try(partition)
            else:
                self._on_unknown_offset(partition)

        self._ask_offset(partition, timestamp, found)

    def _ask_offset(self, partition: FollowedPartition, timestamp: int, found: Callable[[int | None], None]) -> None:
        """``found(offset)`` unless the partition is retired by then; None where the leader does not say."""
        request = ListOffsetsRequest(
            replica_id=self._replica_state().replica_id,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=partition.question().leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )

        def answered(response: Any | None, _error: PeerError | None) -> None:
            if partition.retired:
                return
            topics = () if response is None else response.topics
            result = next((each for topic in topics for each in topic.partitions), None)
            found(None if result is None or result.error_code or result.offset < 0 else result.offset)

        self._ask(request, _LIST_OFFSETS_VERSION, CONTROL, answered)

    def _on_leader_end(self, partition: FollowedPartition, end_offset: int) -> None:
        if partition.truncate_to_end_of_leader(end_offset):
            self._try(partition)
        else:
            self._ask_for_offset(partition, EARLIEST)

    def _on_unknown_offset(self, partition: FollowedPartition) -> None:
        """Our end lies between both ends of the leader's log, which does not have it all the same."""
        self._tell(logging.ERROR, "a partition goes on at an offset that it does not know", partition)
        self._put_off(partition)
