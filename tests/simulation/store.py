"""The simulated ``MetadataStore``: one state for all brokers, behind a network, with sessions.

Owns: the state, who may change it, what reaches whom when, sessions and their end, outcomes that nobody is told.  Owns
no choice of what goes wrong when (``faults``), and no meaning of keys.

The model is ZooKeeper's ensemble seen from outside, as the port has it (``cluster/store/metadata_store``).  A broker's
requests arrive in order, and are applied there whether or not the broker still lives to hear of it.  Where its way to
the store is cut, or the store is away, all that is on its way fails after a while, applied or not.  A session ends when
the store has heard nothing of its process for ``session_timeout_ms``: it is dead, stopped, or cut off.  While the store
is away no session ends.  A host may be kept ``uninformed``, as by a server of the ensemble that lags behind: the
sessions of its processes live, their requests are answered, and news reach them late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pybroker.cluster.store.metadata_store import (
    ABSENT,
    Changes,
    CommitResult,
    Entry,
    SessionExpiredError,
    Snapshot,
    StoreError,
    Transaction,
    ignore_session_loss,
)

if TYPE_CHECKING:
    from tests.simulation.processes import Process, World
    from tests.simulation.scheduler import Life

HOST = "10.0.2.1"
LATENCY_US = (200, 4_000)
SLOW_LATENCY_US = (5_000, 500_000)
CONNECTION_LOSS_US = (200_000, 3_000_000)  # until a client of the store gives up what is on its way
BEATS_PER_SESSION = 3
AGAIN_US = 100_000
HISTORY_MAX = 200  # transactions; whoever is behind by more has a gap


class _Session:
    """One broker's, as the store sees it."""

    def __init__(self, name: str, now_us: int) -> None:
        self.name = name
        self.heard_us = now_us
        self.has_ended = False


class Ensemble:
    """The store itself.  ``session_timeout_ms`` is virtual time, as all else."""

    def __init__(self, world: World, session_timeout_ms: int = 6_000) -> None:
        self.scheduler = world.scheduler
        self.network = world.network
        self.random = world.new_random()
        self.session_timeout_ms = session_timeout_ms
        self.is_away = False
        self.is_slow = False
        self.silent_share = 0.0  # of transactions whose outcome nobody is told
        self.uninformed: set[str] = set()  # hosts that are told no news for a while
        self.tears_snapshots = True  # a snapshot is read key by key: some of them show later transactions
        self.entries: dict[str, Entry] = {}
        self.owners: dict[str, _Session] = {}  # ephemeral key -> whose it is
        self.revision = 0
        self.sessions: list[_Session] = []
        self.on_commit: Callable[[int, Transaction], None] = lambda revision, transaction: None  # for who watches a run
        self._history: deque[Changes] = deque(maxlen=HISTORY_MAX)
        self._stores: list[SimulatedStore] = []
        self._beat()

    def store(self) -> SimulatedStore:
        """The store of the life that runs now."""
        life = self.scheduler.life
        assert life is not None, "a store belongs to a process"
        return SimulatedStore(self, life)

    # --- the state ---------------------------------------------------------------------------------------------------

    def load(self, prefix: str) -> dict[str, Entry]:
        return {key: self.entries[key] for key in sorted(self.entries) if key.startswith(prefix)}

    def ephemerals(self, prefix: str) -> dict[str, bytes]:
        return {key: self.entries[key].value for key in sorted(self.owners) if key.startswith(prefix)}

    def apply(self, transaction: Transaction, session: _Session) -> CommitResult:
        """One transaction, as a whole or not at all."""
        if session.has_ended:
            return CommitResult(error=SessionExpiredError("the session has expired"))
        for key, version in transaction.checks.items():
            if (self.entries[key].version if key in self.entries else ABSENT) != version:
                return CommitResult(conflict=key)
        self._check_keys(transaction)
        self.revision += 1
        lasting = tuple(key for key in transaction.deletes if key not in self.owners)
        for key in transaction.deletes:
            self.entries.pop(key, None)
            self.owners.pop(key, None)
        for key, value in transaction.puts.items():
            self._put(key, value)
        for key, value in transaction.ephemerals.items():
            if self.owners.get(key) is not session:
                self.entries.pop(key, None)
            self._put(key, value)
            self.owners[key] = session
        self._history.append(Changes(self.revision, dict(transaction.puts), lasting))
        self.on_commit(self.revision, transaction)
        self._tell_all()
        return CommitResult(revision=self.revision)

    def _check_keys(self, transaction: Transaction) -> None:
        named = [*transaction.puts, *transaction.deletes, *transaction.ephemerals]
        assert len(named) == len(set(named)), f"a key is named twice: {named}"
        assert not any(key in self.owners for key in transaction.puts), "an ephemeral key is put as another"
        for key in transaction.ephemerals:
            assert key not in self.entries or key in self.owners, f"{key} is not ephemeral"

    def _put(self, key: str, value: bytes) -> None:
        before = self.entries.get(key)
        self.entries[key] = Entry(value, 0 if before is None else before.version + 1)

    def changes_behind(self, revision: int) -> list[Changes] | None:
        """What came after a revision; None where that is not known any more."""
        if revision < self.revision - len(self._history):
            return None
        return [changes for changes in self._history if changes.revision > revision]

    def forget_history(self) -> None:
        """Whoever is behind now has a gap."""
        self._history.clear()

    # --- who reaches it ----------------------------------------------------------------------------------------------

    def latency_us(self) -> int:
        slow = self.is_slow and self.random.random() < 0.3
        return self.random.randrange(*(SLOW_LATENCY_US if slow else LATENCY_US))

    def is_reached_by(self, life: Life) -> bool:
        """Whether requests and answers of a process get through now."""
        assert life.process is not None
        host = life.process.host
        return not (self.is_away or self.network.is_cut(host, HOST) or self.network.is_cut(HOST, host))

    def tells_news_to(self, life: Life) -> bool:
        """Whether a process is told now of what has changed."""
        assert life.process is not None
        return life.process.host not in self.uninformed and self.is_reached_by(life)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def begin_session(self, store: SimulatedStore) -> _Session:
        session = _Session(store.life.name, self.scheduler.now_us)
        self.sessions.append(session)
        if store not in self._stores:
            self._stores.append(store)
        return session

    def end_session(self, session: _Session) -> None:
        """Its ephemeral keys are gone, for everybody."""
        if session.has_ended:
            return
        session.has_ended = True
        self.sessions.remove(session)
        keys = [key for key, owner in self.owners.items() if owner is session]
        for key in keys:
            del self.owners[key], self.entries[key]
        if keys:
            self.revision += 1
            self._history.append(Changes(self.revision, {}, ()))
            self.scheduler.trace("STORE", f"the session of {session.name} ends, and with it {', '.join(keys)}")
            self._tell_all()

    def expire_session_of(self, process: Process) -> bool:
        """End a session that did nothing wrong, as a store does that was wiped; False where there is none."""
        store = next((store for store in self._stores if store.life is process.life and not store.is_over), None)
        if store is None or store.session.has_ended:
            return False
        self.end_session(store.session)
        return True

    def _beat(self) -> None:
        """Hear of every process that can be heard; end the sessions of those that are silent for too long."""
        now_us = self.scheduler.now_us
        self._stores = [store for store in self._stores if not (store.is_over and store.session.has_ended)]
        for store in self._stores:
            alive = not store.is_over and store.life.paused_us is None
            if self.is_away or (alive and self.is_reached_by(store.life)):
                store.session.heard_us = now_us
                if store.session.has_ended and alive and not self.is_away:
                    store.lost_session()
        for session in list(self.sessions):
            if now_us - session.heard_us > self.session_timeout_ms * 1000:
                self.end_session(session)
        self.scheduler.after(self.session_timeout_ms * 1000 // BEATS_PER_SESSION, None, self._beat)

    def _tell_all(self) -> None:
        for store in self._stores:
            store.tell_later()


class _Follower:
    def __init__(self, place: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]) -> None:
        self.place = place
        self.on_changes = on_changes
        self.on_gap = on_gap


class _Watcher:
    def __init__(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> None:
        self.prefix = prefix
        self.on_change = on_change
        self.told: dict[str, bytes] | None = None


class SimulatedStore:
    """``MetadataStore`` of one life of one broker."""

    def __init__(self, ensemble: Ensemble, life: Life) -> None:
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self.life = life
        self.session: _Session  # from ``open`` on
        self._ensemble = ensemble
        self._scheduler = ensemble.scheduler
        self._random = ensemble.random
        self._followers: list[_Follower] = []
        self._watchers: list[_Watcher] = []
        self._last_arrival_us = 0
        self._last_answer_us = 0
        self._unanswered: deque[Callable[[], None]] = deque()  # each ends its request by what is known of it at the end
        self._is_telling = False
        self._is_closed = False

    @property
    def is_over(self) -> bool:
        """Whether nobody is there any more to keep the session up."""
        return self._is_closed or self.life.ended

    # --- at the start, and the end: these block ----------------------------------------------------------------------

    def open(self) -> None:
        self._check_reached()
        self.session = self._ensemble.begin_session(self)

    def load(self, prefix: str) -> dict[str, Entry]:
        self._check_reached()
        return self._ensemble.load(prefix)

    def revision(self) -> int:
        self._check_reached()
        return self._ensemble.revision

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        if not self._ensemble.is_reached_by(self.life):
            return CommitResult(error=StoreError("the metadata store cannot be reached"))
        return self._ensemble.apply(transaction, self.session)

    def look_for_news(self) -> None:
        """It is told at once, or when the seed says."""

    def close(self) -> None:
        """What is on its way is answered, by what has become of it."""
        while self._unanswered:
            self._unanswered.popleft()()
        self._is_closed = True
        self._followers.clear()
        self._watchers.clear()
        if hasattr(self, "session") and self._ensemble.is_reached_by(self.life):
            self._ensemble.end_session(self.session)

    def _check_reached(self) -> None:
        if not self._ensemble.is_reached_by(self.life):
            raise StoreError("the metadata store cannot be reached")

    # --- requests ----------------------------------------------------------------------------------------------------

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        session = self.session
        lost = CommitResult(error=StoreError("the connection to the metadata store was lost"))
        self._ask(lambda: self._ensemble.apply(transaction, session), lost, done, self._ensemble.silent_share)

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        def take() -> tuple[Snapshot | None, StoreError | None]:
            return Snapshot(self._ensemble.load(prefix), self._ensemble.revision), None

        def answer(found: tuple[Snapshot | None, StoreError | None]) -> None:
            snapshot, error = found
            if snapshot is not None:
                snapshot = Snapshot(self._partly_newer(prefix, snapshot.entries), snapshot.revision)
            done(snapshot, error)

        self._ask(take, (None, StoreError("the connection to the metadata store was lost")), answer)

    def _partly_newer(self, prefix: str, entries: dict[str, Entry]) -> dict[str, Entry]:
        """What a snapshot has of transactions that came while it was read."""
        if not self._ensemble.tears_snapshots:
            return entries
        now = self._ensemble.load(prefix)
        newer = {key for key in (*entries, *now) if self._random.random() < 0.5}
        found = {key: (now if key in newer else entries).get(key) for key in sorted({*entries, *now})}
        return {key: entry for key, entry in found.items() if entry is not None}

    def _ask(
        self, apply: Callable[[], Any], lost: Any, answer: Callable[[Any], None], silent_share: float = 0.0
    ) -> None:
        """One request: ``apply`` there, ``answer`` here; ``lost`` is the answer where nobody knows."""
        assert not self._is_closed, "the store is closed"
        outcome: list[Any] = []  # as it was at the store
        answered: list[bool] = []
        silent = self._random.random() < silent_share
        lost_before = silent and self._random.random() < 0.5

        def arrive() -> None:
            if not outcome:
                outcome.append(lost if lost_before or not self._ensemble.is_reached_by(self.life) else apply())
                self._answer_later(finish, bool(silent or outcome[0] is lost))

        def finish() -> None:
            if answered:
                return
            answered.append(True)
            self._unanswered.remove(end)
            hears = not silent and self._ensemble.is_reached_by(self.life)
            answer(outcome[0] if hears else lost)

        def end() -> None:
            if answered:
                return
            answered.append(True)
            if not outcome:
                outcome.append(apply() if self._ensemble.is_reached_by(self.life) else lost)
            answer(outcome[0])

        self._unanswered.append(end)
        now_us = self._scheduler.now_us
        self._last_arrival_us = max(self._last_arrival_us, now_us + self._ensemble.latency_us())
        self._scheduler.after(self._last_arrival_us - now_us, None, arrive)

    def _answer_later(self, finish: Callable[[], None], is_lost: bool) -> None:
        now_us = self._scheduler.now_us
        takes_us = self._random.randrange(*CONNECTION_LOSS_US) if is_lost else self._ensemble.latency_us()
        self._last_answer_us = max(self._last_answer_us, now_us + takes_us)
        self._scheduler.after(self._last_answer_us - now_us, self.life, finish)

    # --- following ---------------------------------------------------------------------------------------------------

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        follower = _Follower(revision, on_changes, on_gap)
        self._followers.append(follower)
        self.tell_later()

        def end() -> None:
            if follower in self._followers:
                self._followers.remove(follower)

        return end

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        watcher = _Watcher(prefix, on_change)
        self._watchers.append(watcher)
        self.tell_later()

        def end() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return end

    def tell_later(self) -> None:
        """There may be something to tell."""
        if not self._is_telling and (self._followers or self._watchers):
            self._is_telling = True
            self._scheduler.after(self._ensemble.latency_us(), self.life, self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        if not self._ensemble.tells_news_to(self.life):
            if not self._is_closed:
                self._is_telling = True
                self._scheduler.after(AGAIN_US, self.life, self._tell)
            return
        for watcher in list(self._watchers):
            there = self._ensemble.ephemerals(watcher.prefix)
            if watcher in self._watchers and there != watcher.told:
                watcher.told = there
                watcher.on_change(dict(there))
        for follower in list(self._followers):
            if follower in self._followers:
                self._tell_follower(follower)

    def _tell_follower(self, follower: _Follower) -> None:
        behind = self._ensemble.changes_behind(follower.place)
        if behind is None:
            self._followers.remove(follower)
            follower.on_gap()
            return
        if not behind:
            return
        told = behind[: self._random.randint(1, len(behind))]
        follower.place = told[-1].revision
        changes = _merged(told)
        if changes.puts or changes.deletes:
            follower.on_changes(changes)
        if len(told) < len(behind):
            self.tell_later()

    def lost_session(self) -> None:
        """The store ended the session and hears of its process again: another has begun by the time it knows."""
        self.session = self._ensemble.begin_session(self)
        self._scheduler.after(self._ensemble.latency_us(), self.life, self._tell_of_lost_session)

    def _tell_of_lost_session(self) -> None:
        if not self._is_closed:
            self.on_session_lost()


def _merged(several: list[Changes]) -> Changes:
    puts: dict[str, bytes] = {}
    deletes: dict[str, None] = {}
    for changes in several:
        for key in changes.deletes:
            puts.pop(key, None)
            deletes[key] = None
        for key, value in changes.puts.items():
            deletes.pop(key, None)
            puts[key] = value
    return Changes(several[-1].revision, puts, tuple(deletes))
