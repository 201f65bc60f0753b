"""A follower's side of an incremental fetch session (KIP-227): what the leader has been asked, and what is new of it.

Owns: which partitions the session has, those that changed since the last request, and the requests made of that.  Owns
no connection and no partition's state.

Invariants: a request names only what is new, so that a thousand partitions at rest cost nothing; whatever goes wrong,
the next request begins a session with everything.

Kafka counterpart: FetchSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID
from pybroker_protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from pybroker.replication.followed_partition import FollowedPartition, PartitionKey

_EPOCH_MAX = 0x7FFFFFFF


class FetcherSession:
    __slots__ = ("_asked", "_changed", "_forgotten", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = INVALID_SESSION_ID
        self.epoch = INITIAL_EPOCH
        self._asked: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[PartitionKey, FollowedPartition] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be fetched."""
        return not self._asked and not self._changed

    @property
    def has_changes(self) -> bool:
        """Whether there are partitions that the leader is to be asked anew."""
        return bool(self._changed)

    def want(self, partition: FollowedPartition) -> None:
        """The partition is to be fetched, from wherever it is now."""
        self._changed[partition.key] = partition

    def drop(self, partition: FollowedPartition) -> None:
        """The partition is not to be fetched."""
        key = partition.key
        partition.asked = None
        if self._changed.get(key) is partition:
            del self._changed[key]
        if self._asked.get(key) is partition:
            del self._asked[key]
            self._forgotten[key] = None

    def begin_anew(self) -> None:
        """The session is gone, or its state is not known."""
        self.epoch = INITIAL_EPOCH
        self._changed = {**self._asked, **self._changed}
        self._asked.clear()
        self._forgotten.clear()

    def answered(self, session_id: int) -> None:
        """The leader has answered the last request."""
        self.session_id = session_id
        if session_id == INVALID_SESSION_ID:
            self.begin_anew()  # it has no space for sessions
        else:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def request_of(self, partition_max_bytes: int) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What the next request has to name."""
        topics: dict[bytes, FetchTopic] = {}
        for key, partition in self._changed.items():
            self._forgotten.pop(key, None)
            question = partition.question()
            if partition.asked == question and key in self._asked:
                continue
            partition.asked = question
            self._asked[key] = partition
            topic = topics.setdefault(partition.topic_id, FetchTopic(topic_id=partition.topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=question.leader_epoch,
                    fetch_offset=question.fetch_offset,
                    last_fetched_epoch=question.last_fetched_epoch,
                    log_start_offset=question.log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        self._changed.clear()
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            dropped = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
            dropped.partitions.append(index)
        self._forgotten.clear()
        return list(topics.values()), list(forgotten.values())
