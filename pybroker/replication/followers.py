"""What a leader knows of its followers: how far each of them is, and which of them are in sync.

Owns: ``Follower`` (one follower as its fetches tell of it) and ``Followers`` (all of a partition). These are the rule
by which the high watermark of a replicated partition moves, who waits for the log's end, and when the ISR is to shrink
or to expand. Does not own the change itself (``in_sync_replicas``), the log, nor the partition's role (``partition``).

Invariants:
- A follower's log end offset is what it has asked for by a fetch under this leader epoch, so that everything below it
  is written there.
- The high watermark never passes the log end offset of a replica that is, or may be, in the ISR.
- The high watermark stands still while fewer are in sync than ``min.insync.replicas`` (KIP-966), and never goes back.

Kafka counterpart: kafka.cluster.Replica, and Partition's maybeIncrementLeaderHW, maybeExpandIsr and maybeShrinkIsr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pybroker.replication.in_sync_replicas import InSyncReplicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, PartitionImage
    from pybroker.env import Env
    from pybroker.rate_limited_log import RateLimitedLog
    from pybroker.replication.replication_ports import IsrChanger, Watched
    from pybroker.storage.log.log import Log

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
_NEVER_MS = -(1 << 62)


class Follower:
    """One follower; offsets are ``UNKNOWN_OFFSET`` and the broker epoch ``UNKNOWN_EPOCH`` before its first fetch.

    ``last_caught_up_ms`` (monotonic) is the last time at which it had everything that the leader had then.
    """

    __slots__ = (
        "_last_fetch_leader_end",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, last_caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self._last_fetch_leader_end = UNKNOWN_OFFSET
        self._last_fetch_ms = _NEVER_MS

    def fetched(
        self, fetch_offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """It has asked for what begins at ``fetch_offset``, when the leader's log ended at ``leader_end_offset``."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self._last_fetch_leader_end:
            # It has now what there was at its last fetch: so one that is always a little behind counts as caught up.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_leader_end = max(leader_end_offset, self._last_fetch_leader_end)
        self._last_fetch_ms = now_ms

    def has_at_most(self, end_offset: int) -> None:
        """The leader's log was cut there: what the follower has behind it is worth nothing."""
        self.log_end_offset = min(self.log_end_offset, end_offset)
        self._last_fetch_leader_end = min(self._last_fetch_leader_end, end_offset)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has everything, or had everything not longer ago than that."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def silent_ms(self, now_ms: int) -> int:
        """How long ago it fetched last, or could have fetched first."""
        return now_ms - max(self._last_fetch_ms, self.last_caught_up_ms)


class LedPartition(Protocol):
    """The partition whose followers they are."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int

    @property
    def log(self) -> Log: ...

    def on_appended(self) -> None:
        """The high watermark may have to move."""
        ...

    def look_at_waiting(self) -> None:
        """A follower has said where it begins."""
        ...


class LeaderBroker(Protocol):
    """The broker that leads: ``ReplicaManager``."""

    broker_id: int
    lag_time_max_ms: int
    session_ms: int
    is_cut_off: Callable[[int], bool]
    isr_changer: IsrChanger | None
    own_epoch: Callable[[], int]

    @property
    def env(self) -> Env: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def rate_limited_log(self) -> RateLimitedLog: ...


class Followers:
    """One per partition that is led here and has other replicas.

    ``watched`` is the partition in each follower's fetches, by broker id: what is called when there is more to read.
    """

    __slots__ = (
        "_broker",
        "_by_id",
        "_epoch_start_offset",
        "_in_sync",
        "_looked_at_end",
        "_looked_at_isr",
        "_partition",
        "gone",
        "index",
        "topic",
        "watched",
    )

    def __init__(self, broker: LeaderBroker, partition: LedPartition, state: PartitionImage) -> None:
        """The leader begins, or has others beside it from now on."""
        self._broker = broker
        self._partition = partition
        self.topic = partition.topic
        self.index = partition.index
        self.gone = False  # nobody is led here any more
        self.watched: dict[int, Watched] = {}
        self._epoch_start_offset = self._looked_at_end = partition.log.log_end_offset
        self._in_sync = InSyncReplicas(
            broker.env, partition, state, lambda: broker.isr_changer, broker.rate_limited_log
        )
        self._looked_at_isr = self._in_sync.committed
        self._by_id: dict[int, Follower] = {}
        self._assign(state)

    def _assign(self, state: PartitionImage) -> None:
        """Know the replicas that there are, with what was known of them."""
        now_ms = self._broker.env.clock.monotonic_ms()
        known = self._by_id
        self._by_id = {
            broker_id: known.get(broker_id) or Follower(broker_id, now_ms if broker_id in state.isr else _NEVER_MS)
            for broker_id in state.replicas
            if broker_id != self._broker.broker_id
        }
        self.watched = {each: fetched for each, fetched in self.watched.items() if each in self._by_id}

    def on_state(self, state: PartitionImage) -> None:
        """The image has the partition so, under the leader epoch that it had."""
        if self._in_sync.learn(state):
            self._assign(state)

    def on_cut(self, end_offset: int) -> None:
        """The log was cut: no replica has more of it than what is left, and this leader began with no more."""
        self._epoch_start_offset = min(self._epoch_start_offset, end_offset)
        for follower in self._by_id.values():
            follower.has_at_most(end_offset)

    def retire(self) -> None:
        """The partition has another role from now on: no ISR is asked for any more, and no answer heeded."""
        self.gone = True
        self._in_sync.give_up()
        self._wake_fetches()

    # --- who is told -----------------------------------------------------------------------------------------------

    def tell_more(self) -> None:
        """There is something new to tell of the partition, with the next answer: where it begins, what is committed."""
        for fetched in self.watched.values():
            if fetched.watch is not None:
                fetched.watch.note(fetched)

    def _wake_fetches(self) -> None:
        for fetched in self.watched.values():
            if fetched.watch is not None:
                fetched.watch.wake(fetched)

    # --- the high watermark ----------------------------------------------------------------------------------------

    @property
    def is_behind_its_start(self) -> bool:
        """Whether the high watermark has not come yet to where this leader began: the last one's may be further."""
        return self._partition.log.high_watermark < self._epoch_start_offset

    def is_under_min_isr(self, log: Log) -> bool:
        """Whether fewer are in sync than ``min.insync.replicas``; no more can be asked for than there are."""
        return len(self._in_sync.committed) < min(log.config.min_insync_replicas, len(self._by_id) + 1)

    def may_be_under_min_isr(self, log: Log) -> bool:
        """The same with the replicas that are on their way into the ISR."""
        return len(self._in_sync.maximal) < min(log.config.min_insync_replicas, len(self._by_id) + 1)

    def advance_high_watermark(self, log: Log) -> bool:
        """Move the high watermark to where it may be; whether it moved.  Fetches that wait for the end are woken."""
        end_offset = log.log_end_offset
        if end_offset != self._looked_at_end:
            self._looked_at_end = end_offset
            self._wake_fetches()
        if self._in_sync.committed is not self._looked_at_isr:
            self._looked_at_isr = self._in_sync.committed
            self.tell_more()  # who is out of it may join, who has no replica any more hears so
        committed = self._committed_end(log)
        if committed <= log.high_watermark or self.is_under_min_isr(log):
            return False
        log.update_high_watermark(committed)
        self.tell_more()
        return True

    def _committed_end(self, log: Log) -> int:
        committed, maximal = log.committed_end, self._in_sync.maximal
        for follower in self._by_id.values():
            if follower.log_end_offset < committed and (
                follower.broker_id in maximal or self._is_about_to_join(follower, log.log_end_offset)
            ):
                committed = follower.log_end_offset
        return committed

    def _is_about_to_join(self, follower: Follower, leader_end_offset: int) -> bool:
        """Whether it is waited for so that it comes into the ISR: else it might never reach the high watermark."""
        now_ms = self._broker.env.clock.monotonic_ms()
        return self._keeps_up(follower, leader_end_offset, now_ms) and self._is_eligible(follower)

    def _keeps_up(self, follower: Follower, leader_end_offset: int, now_ms: int) -> bool:
        """Whether it is caught up, and not one that lacks something and is cut off from this broker for a session."""
        if not follower.is_caught_up(leader_end_offset, now_ms, self._broker.lag_time_max_ms):
            return False
        return (
            follower.log_end_offset == leader_end_offset
            or follower.silent_ms(now_ms) < self._broker.session_ms
            or not self._broker.is_cut_off(follower.broker_id)
        )

    # --- fetches ---------------------------------------------------------------------------------------------------

    def knows(self, broker_id: int) -> bool:
        """Whether the broker has a replica, as far as this leader has heard."""
        return broker_id in self._by_id

    def may_be_in_sync(self, broker_id: int) -> bool:
        """Whether the high watermark waits for the broker, as one that is in the ISR or on its way into it."""
        return broker_id in self._in_sync.maximal

    def is_in_sync(self, broker_id: int) -> bool:
        """Whether the broker is in the ISR; if not, it joins by a fetch."""
        return broker_id in self._in_sync.committed

    def on_fetch(self, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int) -> None:
        """A follower that is known asks for what begins at ``fetch_offset``, so that it has everything below."""
        follower = self._by_id[broker_id]
        log, now_ms = self._partition.log, self._broker.env.clock.monotonic_ms()
        before, start_before = follower.log_end_offset, follower.log_start_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, log.log_end_offset, now_ms)
        self._expand_if_due(follower, log)
        if before != fetch_offset:
            self._partition.on_appended()
        if start_before != log_start_offset:
            self._partition.look_at_waiting()

    def low_watermark(self, start_offset: int) -> int:
        """Where the last of the live followers begins, ``start_offset`` if none begins below it."""
        brokers = self._broker.image.brokers
        for follower in self._by_id.values():
            broker = brokers.get(follower.broker_id)
            if broker is not None and not broker.fenced:
                start_offset = min(start_offset, follower.log_start_offset)
        return start_offset

    def preferred_replica(self, rack: str, fetch_offset: int) -> int:
        """The follower in a consumer's rack that it had better read from, -1 for none (KIP-392).

        One that is in sync and has the offset; of several the one that has most.
        """
        brokers = self._broker.image.brokers
        own = brokers.get(self._broker.broker_id)
        if own is not None and own.rack == rack:
            return -1
        found, most = -1, -1
        for follower in self._by_id.values():
            broker = brokers.get(follower.broker_id)
            has_it = follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            if broker is None or broker.fenced or broker.rack != rack or not has_it:
                continue
            if follower.broker_id in self._in_sync.committed and follower.log_end_offset > most:
                found, most = follower.broker_id, follower.log_end_offset
        return found

    # --- the ISR ---------------------------------------------------------------------------------------------------

    def _expand_if_due(self, follower: Follower, log: Log) -> None:
        """A follower joins that has what is committed, and all that was written before this leader began."""
        in_sync = self._in_sync
        if in_sync.is_changing or follower.broker_id in in_sync.committed:
            return
        end_offset = follower.log_end_offset
        if end_offset < log.high_watermark or end_offset < self._epoch_start_offset or not self._is_eligible(follower):
            return
        in_sync.expand(follower.broker_id, self._epochs_of([*in_sync.committed, follower.broker_id]))

    def look_at_time(self) -> None:
        """Ask for an ISR without the followers that have not caught up for ``replica.lag.time.max.ms``.

        Nor is one waited for longer than a session (``broker.session.timeout.ms``) that does not fetch, where this
        broker and it do not hear each other.  Kafka waits for that, too, for ``replica.lag.time.max.ms``.
        One that was waited for so that it joins may be so late by now that it is waited for no longer.
        """
        if not self.gone:
            self._shrink_if_due()
            self._partition.on_appended()

    def _shrink_if_due(self) -> None:
        in_sync = self._in_sync
        if in_sync.is_changing:
            return
        end_offset, now_ms = self._partition.log.log_end_offset, self._broker.env.clock.monotonic_ms()
        late = {
            broker_id
            for broker_id in in_sync.committed
            if broker_id != self._broker.broker_id and self._is_late(broker_id, end_offset, now_ms)
        }
        if late:
            in_sync.shrink(self._epochs_of(broker_id for broker_id in in_sync.committed if broker_id not in late))

    def _is_late(self, broker_id: int, end_offset: int, now_ms: int) -> bool:
        follower = self._by_id.get(broker_id)
        return follower is None or not self._keeps_up(follower, end_offset, now_ms)

    def _is_eligible(self, follower: Follower) -> bool:
        """Whether it may be in the ISR: it and its log dir live, has space, it means to stay, and has fetched since
        registered."""
        broker: BrokerRegistration | None = self._broker.image.brokers.get(follower.broker_id)
        return (
            broker is not None
            and broker.is_active
            and broker.epoch == follower.broker_epoch
            and self._has_working_dir(broker)
        )

    def _has_working_dir(self, broker: BrokerRegistration) -> bool:
        """Whether a broker's replica takes what it is sent: its log dir may have failed, or be full, a moment after it
        had caught up."""
        state = self._broker.image.partition(self.topic, self.index)
        if state is None or broker.broker_id not in state.replicas:
            return True
        directory = state.directory(broker.broker_id)
        return broker.has_online_dir(directory) and directory not in broker.full_dirs

    def _epochs_of(self, isr: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """The replicas with the broker epochs that are known of them: a controller refuses those of a former life."""
        return tuple((broker_id, self._epoch_of(broker_id)) for broker_id in isr)

    def _epoch_of(self, broker_id: int) -> int:
        follower = self._by_id.get(broker_id)
        if follower is not None:
            return follower.broker_epoch
        return self._broker.own_epoch() if broker_id == self._broker.broker_id else UNKNOWN_EPOCH
