"""Incremental fetch sessions (KIP-227): what a client fetches, remembered between its requests.

Owns: ``FetchPartition`` (one partition of a fetch: what is asked, what was read, what the client got last),
``FetchSession`` and the bounded cache of sessions.  Owns no reading (``fetch_operation``).

Invariants:
- A session belongs to the principal's connection only by its id.
- A session's epoch grows by one with each request.
- The cache holds at most ``max.incremental.fetch.session.cache.slots`` sessions. A session is evicted for a new one
  only when it is unused for ``EVICTION_MS``, or smaller than the new one and older than that.
- All together they name at most ``limits.SESSION_PARTITIONS_MAX`` partitions, which need not exist: the same rule makes
  space for them.
- A follower's session is privileged: any client's gives way to it, and it gives way to none that is in use.

Kafka counterpart: kafka.server.FetchSession, FetchManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.replication.followed_partition import FollowedPartition
    from pybroker.replication.partition import Partition
    from pybroker.replication.replication_ports import Watcher
    from pybroker.storage.log.log import Log

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_FOLLOWER = -1
DEBUGGING_CONSUMER = -2  # any replica answers it (Kafka: DEBUGGING_CONSUMER_ID, DEBUGGING_REPLICA_ID)
EVICTION_MS = 120_000
_EPOCH_MAX = 0x7FFFFFFF
_NOT_LOOKED_AT = (
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    int(ErrorCode.UNKNOWN_TOPIC_ID),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
)

# A partition of a session: (topic id or topic name, partition index).
PartitionKey = tuple[bytes | str, int]


class FetchPartition:
    """One partition of a fetch.  In a session the object lives on and only what the client changes is replaced."""

    __slots__ = (
        "aborted_transactions",
        "current_leader_epoch",
        "diverging_epoch",
        "error_code",
        "fetch_offset",
        "follower_start_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "last_stable_offset",
        "log_start_offset",
        "max_bytes",
        "partition",
        "preferred_read_replica",
        "reads_followers",
        "records",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
        "watch",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int = 0,
        max_bytes: int = 0,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        follower_start_offset: int = -1,
        reads_followers: bool = False,
    ) -> None:
        """What the client wants is as in ``ask``, which changes it later."""
        # None while nobody knows the topic id; then set once, for the life of the object: a topic id never has another
        # name.  With an authorizer only ``handlers.fetch_request`` sets it, before it asks whether the client may read
        # the topic, at each fetch; what has no name by then is answered and not read.  Without one, and for followers,
        # who may read everything, ``ReplicaManager.resolve`` does, as late as a wait ends.
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.follower_start_offset = follower_start_offset
        self.diverging_epoch: tuple[int, int] | None = None  # epoch and its end offset, where the client is to truncate
        self.reads_followers = reads_followers  # the client may be served by a replica that does not lead
        self.preferred_read_replica = -1  # where the client is sent to, for a replica that is nearer to it
        self.partition: Partition | FollowedPartition | None = None
        self.watch: Watcher | None = None  # of a follower's: called when there is something to say of it
        self.error_code = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.records: Any = b""
        self.aborted_transactions: list[tuple[int, int]] | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def key(self, by_id: bool) -> PartitionKey:
        """The partition's key in a session that goes by topic ids or by names."""
        return (self.topic_id if by_id else self.topic or "", self.index)

    def ask(
        self,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int = -1,
        follower_start_offset: int = -1,
    ) -> None:
        """What the client wants from now on; ``follower_start_offset`` is where a follower's own log begins."""
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.follower_start_offset = follower_start_offset

    def answer_from(self, log: Log) -> None:
        """An answer with the log's offsets, and no records yet."""
        self.error_code = 0
        self.high_watermark = log.high_watermark
        self.last_stable_offset = log.last_stable_offset
        self.log_start_offset = log.log_start_offset
        self.records = b""

    def answer(self, error_code: int) -> None:
        """An answer without records."""
        self.error_code = error_code
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.records = b""
        # Kafka answers for what it does not know, or tell, with an empty list, for what it could not read with none.
        self.aborted_transactions = [] if error_code in _NOT_LOOKED_AT else None

    @property
    def is_news(self) -> bool:
        """Whether an incremental reply must mention the partition."""
        return (
            self.error_code != 0
            or len(self.records) > 0
            or self.high_watermark != self.sent_high_watermark
            or self.log_start_offset != self.sent_log_start_offset
            or self.diverging_epoch is not None
            or self.preferred_read_replica >= 0
        )

    def has_news(self) -> bool:
        """Whether an incremental reply must mention the partition; remembers what it says."""
        news = self.is_news
        # After an error the client gets the partition again, even if nothing else changes.
        self.sent_high_watermark = -1 if self.error_code else self.high_watermark
        self.sent_log_start_offset = -1 if self.error_code else self.log_start_offset
        return news


class FetchSession:
    """The partitions that a client fetches, in the order in which they are read."""

    __slots__ = ("by_id", "created_ms", "epoch", "follower", "last_used_ms", "partitions", "session_id")

    def __init__(self, session_id: int, by_id: bool, now_ms: int, follower: int = NO_FOLLOWER) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.follower = follower  # the broker whose it is, if it follows what it fetches
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, FetchPartition] = {}

    @property
    def is_privileged(self) -> bool:
        """Whether no client's session takes its place: it is a follower's."""
        return self.follower != NO_FOLLOWER

    @property
    def weight(self) -> tuple[bool, int]:
        """By which sessions give way, the least first."""
        return self.is_privileged, len(self.partitions)

    def all(self) -> list[FetchPartition]:
        """Every partition of it, in the order in which they are read."""
        return list(self.partitions.values())

    def put(self, asked: Iterable[FetchPartition]) -> list[FetchPartition]:
        """Add partitions, or replace what is asked of those that are there; they as the session has them."""
        named = []
        for new in asked:
            key = new.key(self.by_id)
            known = self.partitions.get(key)
            named.append(known or new)
            if known is None:
                self.partitions[key] = new
            else:
                known.ask(
                    new.fetch_offset,
                    new.max_bytes,
                    new.current_leader_epoch,
                    new.last_fetched_epoch,
                    new.follower_start_offset,
                )
        return named

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Remove partitions; those that are not there are ignored."""
        for key in keys:
            forgotten = self.partitions.pop(key, None)
            if forgotten is not None and forgotten.watch is not None:
                forgotten.watch.forget(forgotten)

    def rotate(self, served: Iterable[FetchPartition]) -> None:
        """Move partitions that were served to the end, so that a small ``max_bytes`` starves no partition."""
        partitions = self.partitions
        for fetched in served:
            key = fetched.key(self.by_id)
            if key in partitions:
                partitions[key] = partitions.pop(key)

    def advance(self) -> None:
        """The epoch that the next request must carry; it skips 0, which means a new session."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class FetchSessionCache:
    """All sessions of a broker, by id."""

    __slots__ = ("_now_ms", "_partition_count", "_random", "_sessions", "_slots_max")

    def __init__(self, slots_max: int, now_ms: Callable[[], int], random: Random) -> None:
        self._slots_max = slots_max
        self._now_ms = now_ms
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, size: int, by_id: bool, follower: int = NO_FOLLOWER) -> FetchSession | None:
        """A new session with space for ``size`` partitions, or None when the cache is full of sessions in use.

        ``change`` adds them, many of them portion by portion.  ``follower`` is the broker that fetches to follow: its
        former session ends.
        """
        if follower != NO_FOLLOWER:
            self._remove_former(follower)
        if not self._try_evict(size, follower != NO_FOLLOWER):
            return None
        session_id = INVALID_SESSION_ID
        while session_id == INVALID_SESSION_ID or session_id in self._sessions:
            session_id = self._random.randint(1, _EPOCH_MAX)
        session = FetchSession(session_id, by_id, self._now_ms(), follower)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> FetchSession | None:
        """The session, which is not used by that."""
        return self._sessions.get(session_id)

    def resume(self, session_id: int, epoch: int, by_id: bool) -> FetchSession | ErrorCode:
        """The session that an incremental request continues, or the error that makes the client start anew."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # Used sessions stand at the end, so that the one to evict stands at the front.
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.last_used_ms = self._now_ms()
        session.advance()
        return session

    def remove(self, session_id: int) -> None:
        """End a session; one that is not there is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def change(
        self, session: FetchSession, asked: Iterable[FetchPartition], forgotten: Iterable[PartitionKey] = ()
    ) -> list[FetchPartition]:
        """Add partitions to a session that has begun or was resumed, and remove some; the added ones as it has them.

        If they are too many it ends with this request, and the client starts anew; a follower's has others give way.
        """
        before = len(session.partitions)
        named = session.put(asked)
        session.forget(forgotten)
        grown = len(session.partitions) - before
        if not grown or self._sessions.get(session.session_id) is not session:
            return named  # one that gave way to others while its partitions were added does not count any more
        self._partition_count += grown
        while self._partition_count > limits.SESSION_PARTITIONS_MAX:
            if not (session.is_privileged and self._evict(len(session.partitions), is_privileged=True)):
                self.remove(session.session_id)
                break
        return named

    def _remove_former(self, follower: int) -> None:
        former = [each.session_id for each in self._sessions.values() if each.follower == follower]
        for session_id in former:
            self.remove(session_id)

    def _try_evict(self, size: int, is_privileged: bool) -> bool:
        """Evict what is needed for a session of ``size`` partitions; whether there is space for it."""
        if self._slots_max <= 0 or size > limits.SESSION_PARTITIONS_MAX:
            return False
        while len(self._sessions) >= self._slots_max or self._partition_count + size > limits.SESSION_PARTITIONS_MAX:
            if not self._evict(size, is_privileged):
                return False
        return True

    def _evict(self, size: int, is_privileged: bool) -> bool:
        """Remove one session for one of ``size`` partitions, if there is one to remove."""
        now_ms = self._now_ms()
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self.remove(oldest.session_id)
            return True
        least: FetchSession | None = None
        for session in self._sessions.values():
            if session.is_privileged == is_privileged:
                gives_way = len(session.partitions) < size and now_ms - session.created_ms > EVICTION_MS
            else:
                gives_way = is_privileged
            if gives_way and (least is None or session.weight < least.weight):
                least = session
        if least is not None:
            self.remove(least.session_id)
        return least is not None
