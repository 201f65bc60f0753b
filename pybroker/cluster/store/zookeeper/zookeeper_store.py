"""The ``MetadataStore`` of brokers on many machines: Apache ZooKeeper, through kazoo.

Owns: how transactions, followers and sessions are made of znodes. Every transaction is a znode of its own below
``/changes``, and sets ``/head``, whose version is the revision. A broker that sets it at the version that it knows has
seen all transactions before. So the order of all is one, and every check was made against what is. One watch on
``/head`` tells of every change, one on ``/ephemerals`` of every session that ends. What all came to is kept in memory;
a commit now and then writes it down as a snapshot, and removes the changes that are long past.

So a transaction may be of any size, and a broker that was away reads what it missed and no more. A commit whose answer
got lost is found by its id. What ZooKeeper holds is not for reading by hand.

Not owned: whose turn it is and waiting for a connection (``zookeeper_operations``), what znodes hold
(``zookeeper_codec``), what they came to (``zookeeper_contents``), the client (``zookeeper_client``).

Invariants: those of the port; everything here runs on the loop; state changes within operations of the strand alone.

Counterpart in Kafka: ``kafka.zk.KafkaZkClient`` before KRaft, which had a znode, and a watch, per thing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState

from pybroker.cluster.store.metadata_store import (
    ABSENT,
    Changes,
    CommitResult,
    Entry,
    Snapshot,
    StoreError,
    StoreUnavailableError,
    Transaction,
    ignore_session_loss,
)
from pybroker.cluster.store.store_followers import StoreFollowers
from pybroker.cluster.store.zookeeper import zookeeper_client
from pybroker.cluster.store.zookeeper import zookeeper_codec as codec
from pybroker.cluster.store.zookeeper.zookeeper_client import ClientRestart, failure, is_failure, new_client, reason_of
from pybroker.cluster.store.zookeeper.zookeeper_contents import Contents, Ephemeral
from pybroker.cluster.store.zookeeper.zookeeper_operations import AWAY, OperationQueue, Steps
from pybroker.env import Env

# ZooKeeper takes requests of 1 MB less a byte: of a longer transaction the writes go ahead by themselves, in parts.
STORE_CHANGE_BYTES_MAX = 900_000
# Revisions from one snapshot in ZooKeeper to the next, and bytes of changes that bring one about earlier; the changes
# of as many revisions before it are kept for those who follow.
STORE_CHANGES_PER_SNAPSHOT = 1_000
STORE_CHANGE_BYTES_PER_SNAPSHOT = 16 << 20
# Changes that are asked of ZooKeeper at once, and keys of a snapshot that are looked at within a turn of the loop.
STORE_CHANGES_PER_TURN = 100
STORE_KEYS_PER_TURN = 1_000
log = logging.getLogger(__name__)
_STALE: Final = (BadVersionError, NodeExistsError, NoNodeError)


class _Commit:
    """A transaction on its way, with an id by which it is found in the store."""

    __slots__ = ("ident", "revision", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.ident = uuid.uuid4().bytes
        self.revision: int | None = None  # behind which a request went out, whose answer may be lost


class ZooKeeperStore:
    """``MetadataStore`` at ``zookeeper://host:port,host:port/chroot``.

    ``digest`` is user:password of ZooKeeper's digest scheme: no other user may read or write what is made here then.
    Sessions last for about ``timeout_ms``, as far as the servers agree.
    """

    def __init__(self, url: str, env: Env, *, timeout_ms: int, digest: str | None = None) -> None:
        self.on_session_lost: Callable[[], None] = ignore_session_loss
        self._url = url
        self._env = env
        self._client = new_client(url, timeout_ms, digest)
        self._client_restart = ClientRestart(self._client, env, f"the metadata store {url}")
        self._operations = OperationQueue(env, lambda: bool(self._client.connected), timeout_ms)
        self._followers = StoreFollowers(env.timers, self._catch_up_follower)
        self._contents = Contents()
        self._ephemerals: dict[str, Ephemeral] = {}
        self._bytes_since_snapshot = 0
        self._ephemerals_are_stale = True
        self._look_is_waiting = self._session_is_lost = self._is_suspected = self._closed = False

    # ------------------------------------------------------------------ start and end

    def open(self) -> None:
        try:
            self._client.start_async().wait(self._operations.timeout_ms / 1000)
            if not self._client.connected:
                raise StoreError(f"no server answers at the metadata store {self._url}")
            self._client.add_listener(self._hear_state)
            zookeeper_client.make_folders(self._client, self._url)
            self._operations.block(self._read_everything)
        except (KazooException, *AWAY) as error:
            self.close()
            raise StoreError(f"cannot open the metadata store {self._url}: {reason_of(error)}") from error
        except StoreError:
            self.close()
            raise

    def _read_everything(self) -> Steps:
        yield from self._read_snapshot()
        yield from self._refresh()

    def _refresh(self) -> Steps:
        """Come to what all have committed up to now."""
        yield from self._catch_up(sync=True)
        yield from self._refresh_ephemerals()

    def load(self, prefix: str) -> dict[str, Entry]:
        self._ask(self._refresh)
        return self._entries(prefix)

    def _entries(self, prefix: str) -> dict[str, Entry]:
        found = {key: entry for key, entry in self._contents.entries.items() if key.startswith(prefix)}
        for key, ephemeral in self._ephemerals.items():
            if key.startswith(prefix):
                found[key] = Entry(ephemeral.value, ephemeral.version)
        return dict(sorted(found.items()))

    def revision(self) -> int:
        self._ask(self._refresh)
        return self._contents.revision

    def _ask(self, begin: Callable[[], Steps]) -> None:
        """Do an operation, and wait for it on the loop; StoreError."""
        try:
            self._operations.block(begin)
        except KazooException as error:
            raise failure(error) from error

    def commit_at_start(self, transaction: Transaction) -> CommitResult:
        commit = _Commit(transaction)
        try:
            result: CommitResult = self._operations.block(partial(self._commit, commit))
        except (KazooException, StoreError) as error:
            return CommitResult(error=failure(error))
        return result

    def look_for_news(self) -> None:
        """A watch tells of it."""

    def close(self) -> None:
        if self._closed:
            return
        self._operations.finish()
        self._closed = True
        self._followers.close()
        self._client_restart.close()
        self._client.stop()
        self._client.close()

    # ------------------------------------------------------------------ in service

    def commit(self, transaction: Transaction, done: Callable[[CommitResult], None]) -> None:
        def finish(result: CommitResult | None, error: Exception | None) -> None:
            done(result or CommitResult(error=failure(error)))

        commit = _Commit(transaction)
        self._operations.submit(partial(self._commit, commit), finish, of_session=bool(transaction.ephemerals))

    def read(self, prefix: str, done: Callable[[Snapshot | None, StoreError | None], None]) -> None:
        def read() -> Steps:
            yield from self._refresh()
            return Snapshot(self._entries(prefix), self._contents.revision)

        def finish(snapshot: Snapshot | None, error: Exception | None) -> None:
            done(snapshot, None if error is None else failure(error))

        self._operations.submit(read, finish)

    def follow(
        self, revision: int, on_changes: Callable[[Changes], None], on_gap: Callable[[], None]
    ) -> Callable[[], None]:
        return self._followers.follow(revision, on_changes, on_gap)

    def watch_ephemerals(self, prefix: str, on_change: Callable[[Mapping[str, bytes]], None]) -> Callable[[], None]:
        return self._followers.watch_ephemerals(prefix, on_change)

    # ------------------------------------------------------------------ what is heard of ZooKeeper

    def _hear_state(self, state: str) -> None:
        """On a thread of kazoo's."""
        with suppress(RuntimeError):  # the loop is closed
            self._env.call_threadsafe(self._on_state, state)

    def _hear_head(self, _: Any) -> None:
        """On a thread of kazoo's; so is the next."""
        with suppress(RuntimeError):
            self._env.call_threadsafe(self._look)

    def _hear_ephemerals(self, _: Any) -> None:
        with suppress(RuntimeError):
            self._env.call_threadsafe(self._look_at_ephemerals)

    def _on_state(self, state: str) -> None:
        if self._closed:
            return
        if state == KazooState.LOST:
            self._session_is_lost = self._is_suspected = True
            self._operations.session += 1
            self._client_restart.watch()
        elif state == KazooState.CONNECTED:
            self._look_at_ephemerals()
            self._operations.go_on()
            if self._session_is_lost:
                self._session_is_lost = False
                log.warning("the session in the metadata store %s has expired: a new one has begun", self._url)
                self.on_session_lost()
            else:
                log.info("the metadata store %s is back", self._url)
        else:
            log.warning("the metadata store %s is away", self._url)
            self._env.timers.call_later(self._operations.timeout_ms, self._take_any_server)

    def _take_any_server(self) -> None:
        """Servers turn away who has seen more than they hold: to begin anew is to find out that they were wiped."""
        if not self._client.connected:
            self._client.last_zxid, self._is_suspected = 0, True

    def _look_at_ephemerals(self) -> None:
        self._ephemerals_are_stale = True
        self._look()

    def _look(self) -> None:
        """Find out what is new, unless a look is about to; without a connection the next one brings it about."""
        if not self._look_is_waiting and not self._closed and self._client.connected:
            self._look_is_waiting = True
            self._operations.submit(self._hear_news, self._looked)

    def _hear_news(self) -> Steps:
        self._look_is_waiting = False
        yield from self._catch_up()
        if self._ephemerals_are_stale:
            yield from self._refresh_ephemerals()

    def _looked(self, _: Any, error: Exception | None) -> None:
        self._look_is_waiting = False
        if error is not None and self._client.connected:
            log.error("the metadata store %s cannot be followed: %s", self._url, reason_of(error))

    # ------------------------------------------------------------------ reading

    def _read_snapshot(self) -> Steps:
        """Begin anew with the last snapshot; followers hear that there is a gap."""
        former = None
        while True:
            pointer, _ = yield self._client.get_async(codec.SNAPSHOT)
            if pointer == former:
                raise StoreError(f"the snapshot {pointer.decode()} is damaged")
            former = pointer
            revision, names = codec.decode_pointer(pointer)
            try:
                data = yield from self._read_parts(codec.SNAPSHOTS, names)
                break
            except NoNodeError:  # another has taken its place
                continue
        state: dict[str, Entry] = {}
        for number, (key, entry) in enumerate(codec.decode_snapshot(data)):
            state[key] = entry
            if number % STORE_KEYS_PER_TURN == 0:
                yield None
        self._contents = Contents(state, revision)
        self._bytes_since_snapshot = 0
        self._followers.tell_gap()

    def _catch_up(self, *, sync: bool = False) -> Steps:
        """Apply every change there is; with ``sync``, or in doubt, those too that this server has not heard of yet."""
        if sync or self._is_suspected:
            yield self._client.sync_async(codec.HEAD)
        while True:
            head = yield from self._read_head()
            if head == self._contents.revision:
                return
            upto = min(head, self._contents.revision + STORE_CHANGES_PER_TURN)
            paths = [codec.change_path(revision) for revision in range(self._contents.revision + 1, upto + 1)]
            coming = [self._client.get_async(path) for path in paths]
            try:
                for answer in coming:
                    data, _ = yield answer
                    yield from self._apply(codec.decode_change(data))
            except NoNodeError:
                before = self._contents.revision
                yield from self._read_snapshot()
                if self._contents.revision <= before:
                    raise StoreError(f"the change of revision {before + 1} is missing") from None

    def _read_head(self) -> Steps:
        try:
            _, stat = yield self._client.get_async(codec.HEAD, watch=self._hear_head)
            head = stat.version
        except NoNodeError:
            head = -1
        if head < self._contents.revision:
            seen = f"ends at revision {max(head, 0)}, where this broker has seen {self._contents.revision}"
            raise StoreError(f"the metadata store {self._url} {seen}: it was wiped")
        if self._is_suspected:
            yield from self._recognize()
        return head

    def _recognize(self) -> Steps:
        """A store that was wiped may have grown anew: the last change that is known is in this one, or long past."""
        with suppress(NoNodeError):
            data, _ = yield self._client.get_async(codec.change_path(self._contents.revision))
            if not self._contents.may_end_with(codec.decode_change(data).ident):
                raise StoreError(f"the metadata store {self._url} has other changes than before: it was wiped")
        self._is_suspected = False

    def _read_parts(self, folder: str, names: Sequence[str]) -> Steps:
        coming = [self._client.get_async(f"{folder}/{name}") for name in names]
        parts = []
        for answer in coming:
            data, _ = yield answer
            parts.append(data)
        return b"".join(parts)

    def _apply(self, change: codec.Change) -> Steps:
        """The next change, which another broker has made."""
        writes = change.writes
        if change.parts:
            writes = yield from self._read_parts(codec.PARTS, change.parts)
        self._ephemerals_are_stale = self._ephemerals_are_stale or change.touches_ephemerals
        self._take(change.ident, *codec.decode_writes(writes), len(writes))

    def _take(self, ident: bytes, puts: Mapping[str, bytes], deletes: Sequence[str], size: int) -> None:
        """The next transaction is known, be it one's own."""
        self._bytes_since_snapshot += size
        self._followers.tell_changes(self._contents.apply(ident, puts, deletes))

    def _refresh_ephemerals(self) -> Steps:
        self._ephemerals_are_stale = False
        names = yield self._client.get_children_async(codec.EPHEMERALS, watch=self._hear_ephemerals)
        coming = [(name, self._client.get_async(f"{codec.EPHEMERALS}/{name}")) for name in sorted(names)]
        found: dict[str, Ephemeral] = {}
        for name, answer in coming:
            with suppress(NoNodeError):  # its session has ended meanwhile
                value, stat = yield answer
                found[codec.ephemeral_key(name)] = Ephemeral(value, stat.version, stat.ephemeralOwner)
        self._set_ephemerals(found)

    def _set_ephemerals(self, found: dict[str, Ephemeral]) -> None:
        self._ephemerals = found
        self._followers.tell_ephemerals({key: ephemeral.value for key, ephemeral in found.items()})

    def _catch_up_follower(self, revision: int, done: Callable[[Changes | None], None]) -> None:
        def tell() -> None:
            if not self._closed:
                done(self._contents.changes_behind(revision))

        self._env.timers.call_soon(tell)

    # ------------------------------------------------------------------ writing

    def _commit(self, commit: _Commit) -> Steps:
        """Try until it has committed, or conflicts with what is; begun again where the connection broke."""
        is_fresh = False  # what is known here may be behind: a conflict counts once everything was read
        while True:
            if is_fresh or commit.revision is not None:  # the latter: it may be there already, by its id
                yield from self._refresh()
                if (revision := self._contents.revision_of(commit.ident)) is not None:
                    return CommitResult(revision)
                if commit.revision is not None and not self._contents.remembers(commit.revision):
                    return CommitResult(error=StoreUnavailableError("whether the transaction has committed is unknown"))
                is_fresh = True
            conflict = self._conflict(commit.transaction.checks)
            if conflict is None:
                result = yield from self._try(commit)
                if result is not None:
                    return result
            elif is_fresh:
                return CommitResult(conflict=conflict)
            is_fresh = True

    def _conflict(self, checks: Mapping[str, int]) -> str | None:
        for key, version in checks.items():
            entry = self._contents.entries.get(key) or self._ephemerals.get(key)
            if (ABSENT if entry is None else entry.version) != version:
                return key
        return None

    def _try(self, commit: _Commit) -> Steps:
        """One request; None where something is not as it was thought to be."""
        transaction = commit.transaction
        deletes = [key for key in transaction.deletes if key in self._contents.entries]
        writes = codec.encode_writes(transaction.puts, deletes)
        touches = bool(transaction.ephemerals or self._ephemerals.keys() & transaction.deletes)
        parts: tuple[str, ...] = ()
        if len(writes) > STORE_CHANGE_BYTES_MAX:
            parts = yield from self._write_parts(codec.PARTS, writes)
        request = self._client.transaction()
        request.set_data(codec.HEAD, b"", version=self._contents.revision)
        content = codec.encode_change(codec.Change(commit.ident, touches, b"" if parts else writes, parts))
        request.create(codec.change_path(self._contents.revision + 1), content)
        self._add_ephemerals(request, transaction)
        commit.revision = self._contents.revision
        results = yield request.commit_async()
        failed = next((result for result in results if is_failure(result)), None)
        if failed is not None:
            if isinstance(failed, _STALE):
                return None
            raise failed
        if touches:
            self._note_ephemerals(transaction)
        self._take(commit.ident, transaction.puts, deletes, len(writes))
        self._snapshot_if_due()
        return CommitResult(self._contents.revision)

    def _write_parts(self, folder: str, data: bytes) -> Steps:
        """Write what is too long for one znode; the names.  Each try has its own, a snapshot removes what is left."""
        ident = uuid.uuid4().bytes
        names = []
        for number, part in enumerate(codec.cut(data)):
            names.append(codec.part_name(self._contents.revision, ident, number))
            yield self._client.create_async(f"{folder}/{names[-1]}", part)
        return tuple(names)

    def _add_ephemerals(self, request: Any, transaction: Transaction) -> None:
        """What the transaction checks and changes of ephemeral keys, which may vanish without a change of ours."""
        for key, version in transaction.checks.items():
            path = codec.ephemeral_path(key)
            if key in self._ephemerals:
                request.check(path, version)
            elif version == ABSENT and key not in transaction.puts and key not in transaction.ephemerals:
                request.create(path, b"", ephemeral=True)  # there is no check for what is not there
                request.delete(path)
        for key in transaction.deletes:
            if key in self._ephemerals:
                request.delete(codec.ephemeral_path(key), self._ephemerals[key].version)
        session = self._client.client_id[0]
        for key, value in transaction.ephemerals.items():
            path, there = codec.ephemeral_path(key), self._ephemerals.get(key)
            if there is not None and there.session == session:
                request.set_data(path, value, version=there.version)
                continue
            if there is not None:
                request.delete(path, there.version)
            request.create(path, value, ephemeral=True)

    def _note_ephemerals(self, transaction: Transaction) -> None:
        session = self._client.client_id[0]
        now = {key: there for key, there in self._ephemerals.items() if key not in transaction.deletes}
        for key, value in transaction.ephemerals.items():
            there = now.get(key)
            version = 0 if there is None or there.session != session else there.version + 1
            now[key] = Ephemeral(value, version, session)
        self._set_ephemerals(dict(sorted(now.items())))

    # ------------------------------------------------------------------ snapshots

    def _snapshot_if_due(self) -> None:
        """Each so many revisions have one, of any broker."""
        due = self._contents.revision % STORE_CHANGES_PER_SNAPSHOT == 0
        if due or self._bytes_since_snapshot > STORE_CHANGE_BYTES_PER_SNAPSHOT:
            self._bytes_since_snapshot = 0
            self._operations.submit(self._make_snapshot, self._made_snapshot)

    def _made_snapshot(self, _: object, error: Exception | None) -> None:
        if error is not None:  # the next one has its turn
            log.warning("no snapshot of the metadata store %s could be written: %s", self._url, reason_of(error))

    def _make_snapshot(self) -> Steps:
        """Write down what all changes came to, and remove those that are not asked for any more."""
        revision, data = self._contents.revision, bytearray()
        for number, (key, entry) in enumerate(self._contents.entries.items()):
            data += codec.encode_entry(key, entry)
            if number % STORE_KEYS_PER_TURN == 0:
                yield None
        before, stat = yield self._client.get_async(codec.SNAPSHOT)
        if codec.decode_pointer(before)[0] >= revision:
            return
        names = yield from self._write_parts(codec.SNAPSHOTS, bytes(data))
        pointer = codec.encode_pointer(revision, names)
        try:
            yield self._client.set_async(codec.SNAPSHOT, pointer, version=stat.version)
        except BadVersionError:  # another's is there first, and removes this one's parts
            return
        floor = revision - STORE_CHANGES_PER_SNAPSHOT
        yield from self._remove(codec.SNAPSHOTS, lambda name: codec.position_of(name) <= revision and name not in names)
        yield from self._remove(codec.CHANGES, lambda name: codec.position_of(name) <= floor)
        # A part is written when the store is at the revision before its change's, or its try has failed.
        yield from self._remove(codec.PARTS, lambda name: codec.position_of(name) < floor)

    def _remove(self, folder: str, is_old: Callable[[str], bool]) -> Steps:
        names = yield self._client.get_children_async(folder)
        coming = [self._client.delete_async(f"{folder}/{name}") for name in names if is_old(name)]
        for answer in coming:
            with suppress(NoNodeError):
                yield answer
