"""What a leader has to look at for a follower: those partitions of its fetches of which there may be something to say.

Owns: which partitions of a follower are due, in which order they are looked at, and the fetch that waits for more. Does
not own what is read, and answered, of them (``follower_fetch``), nor when something happens to one (``followers``).

Invariants:
- A partition is due from whatever may change its answer: the follower asks anew, the log's end or the high watermark
  moves, the ISR or the role is another. It stays due until a look has found that the follower has everything, and is in
  sync: a fetch is what has it join.
- A partition that was served goes behind those that were not, so that a small ``max_bytes`` starves none.
- A follower's last session has its only watch that counts.
- A fetch of a former one binds nothing.
- All partitions are due every ``FOLLOWER_LOOK_MS``, or a quarter of ``replica.lag.time.max.ms``: a look also says when
  the follower was last caught up, and where the log begins.

Kafka counterpart: none; it looks at all partitions of a session at each fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pybroker.env import Env
    from pybroker.replication.fetch_session import FetchPartition, FetchSession

# A leader looks at all partitions of a follower's session so often at least (or four times in
# ``replica.lag.time.max.ms``); between two such looks at those alone that something has happened to.
FOLLOWER_LOOK_MS = 5_000


class Leader(Protocol):
    """The broker that leads: ``ReplicaManager``."""

    lag_time_max_ms: int

    @property
    def env(self) -> Env: ...

    def mark(self, waited_for: FollowerWatch) -> None:
        """There is more to read for the follower: look at its fetch once, after this turn of the loop."""
        ...


class FollowerWatch:
    """``due`` are those partitions, in order; ``waiting`` has the fetch that waits."""

    __slots__ = ("_all", "_full_look_ms", "_leader", "broker_id", "due", "marked", "session", "waiting")

    def __init__(
        self, leader: Leader, broker_id: int, session: FetchSession | None, partitions: Collection[FetchPartition]
    ) -> None:
        """``partitions``: all of them; a view of the session's where there is one."""
        self._leader = leader
        self._all = partitions
        self.broker_id = broker_id
        self.session = session
        self.due: dict[FetchPartition, None] = {}
        self.waiting: dict[Any, None] = {}
        self.marked = False
        self._full_look_ms = 0  # when all are due
        for fetched in partitions:
            fetched.watch = self

    def __repr__(self) -> str:
        return f"the fetch of broker {self.broker_id}"

    def ask(self, named: Iterable[FetchPartition]) -> None:
        """The follower asks anew for partitions, or for the first time."""
        for fetched in named:
            fetched.watch = self
            self.due[fetched] = None

    def note(self, fetched: FetchPartition) -> None:
        """There may be something to tell of the partition, which no fetch has to end for."""
        if fetched.watch is self:
            self.due[fetched] = None

    def wake(self, fetched: FetchPartition) -> None:
        """There is more to read of the partition, or it has no leader here any more."""
        if fetched.watch is self:
            self.due[fetched] = None
            if self.waiting and not self.marked:
                self._leader.mark(self)

    def forget(self, fetched: FetchPartition) -> None:
        """The follower does not ask for the partition any more."""
        fetched.watch = None
        self.due.pop(fetched, None)

    def take(self, is_new: bool) -> list[FetchPartition]:
        """The partitions to look at now: they are not due any more, who finds something to tell says so.

        ``is_new``: for a fetch that has just come, which alone says when the follower was caught up.
        """
        due, self.due = self.due, {}
        now_ms = self._leader.env.clock.monotonic_ms()
        if is_new and now_ms >= self._full_look_ms:
            self._full_look_ms = now_ms + min(FOLLOWER_LOOK_MS, self._leader.lag_time_max_ms // 4)
            due.update((fetched, None) for fetched in self._all if fetched.watch is self)
        return list(due)

    def served(self, fetched: FetchPartition) -> None:
        """The partition's records are sent: others come first."""
        if fetched in self.due:
            self.due[fetched] = self.due.pop(fetched)

    def end_waiting(self) -> None:
        """Answer the fetch that waits."""
        for operation in list(self.waiting):
            operation.expire()

    def close(self) -> None:
        """Another session has taken its place."""
        for fetched in self._all:
            if fetched.watch is self:
                fetched.watch = None
        self.due.clear()
        self.end_waiting()


class FollowerWatches:
    """The watch of each follower."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._by_broker: dict[int, FollowerWatch] = {}

    def of(self, broker_id: int, session: FetchSession | None, named: list[FetchPartition]) -> FollowerWatch:
        """The watch for a fetch of the follower that names these partitions, and goes on with the session if any."""
        watch = self._by_broker.get(broker_id)
        if watch is None or session is None or watch.session is not session:
            if watch is not None:
                watch.close()
            partitions = named if session is None else session.partitions.values()
            watch = self._by_broker[broker_id] = FollowerWatch(self._leader, broker_id, session, partitions)
        else:
            watch.ask(named)
        return watch

    def drop(self, broker_id: int) -> None:
        """The broker was unregistered: its fetch is answered, and nothing is kept of it."""
        watch = self._by_broker.pop(broker_id, None)
        if watch is not None:
            watch.close()

    def end_waiting(self, broker_id: int) -> None:
        """Answer the fetch of a follower that waits: it says that it has more to ask for."""
        watch = self._by_broker.get(broker_id)
        if watch is not None:
            watch.end_waiting()
