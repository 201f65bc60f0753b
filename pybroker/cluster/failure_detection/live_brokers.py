"""Which brokers are alive: whose process has a session in the metadata store.

Owns: what the ephemeral keys say, this broker's own key, and who hears of a change.  Does not own what follows from a
death (``controller_election``, ``controller``) nor registration (``broker_lifecycle``).

Invariant: a broker's key is put by one process at a time. A process that finds it taken by one that held the same log
dirs knows that one to be dead, because it has locked them since. Any other process is to be left alone.

Counterpart in Kafka: the ephemeral nodes of ``KafkaZkClient.registerBroker``, and ``BrokerHeartbeatManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pybroker.cluster.image.run_callbacks import run_each
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import ABSENT, CommitResult, MetadataStore, Snapshot, StoreError, Transaction
from pybroker.cluster.store.store_codec import LiveBroker

log = logging.getLogger(__name__)


class LiveBrokers:
    """``listeners`` are called with every change, once ``start`` has been."""

    def __init__(self, store: MetadataStore, broker_id: int, own: LiveBroker) -> None:
        self.brokers: Mapping[int, LiveBroker] = {}
        self.known = False  # whether the store has said who is alive
        self.listeners: list[Callable[[], None]] = []
        self._store = store
        self._key = store_codec.live_key(broker_id)
        self._broker_id = broker_id
        self._own = own
        self._unwatch: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unwatch = self._store.watch_ephemerals(store_codec.LIVE, self._on_ephemerals)

    def close(self) -> None:
        self._unwatch()
        self.listeners.clear()

    @property
    def has_own(self) -> bool:
        """Whether this process itself has a session, and no other with its broker id, as far as is known here."""
        return self.is_live(self._broker_id, self._own.incarnation_id)

    def is_live(self, broker_id: int, incarnation_id: bytes) -> bool:
        """Whether that process of the broker has a session, as far as is known here."""
        live = self.brokers.get(broker_id)
        return live is not None and live.incarnation_id == incarnation_id

    def _on_ephemerals(self, entries: Mapping[str, bytes]) -> None:
        self.brokers = store_codec.decode_live(entries)
        self.known = True
        for failure in run_each(self.listeners):
            log.error("a listener of which brokers are alive failed", exc_info=failure)

    def enter(self, done: Callable[[str | None], None]) -> None:
        """Put this broker's key; ``done(why)`` says why that was not possible, ``done(None)`` that it is there."""

        def on_read(snapshot: Snapshot | None, error: StoreError | None) -> None:
            if snapshot is None:
                done(str(error))
                return
            entry = snapshot.entries.get(self._key)
            if entry is None or entry.value == value:
                # One that is there may be a former session's, of a store that was away for long and does not know yet
                # that it is over.
                version = ABSENT if entry is None else entry.version
                self._commit(Transaction({self._key: version}, ephemerals={self._key: value}), done)
                return
            holder = store_codec.decode_live({self._key: entry.value})[self._broker_id]
            if set(holder.directories) & set(self._own.directories):
                deletion = Transaction({self._key: entry.version}, deletes=(self._key,))
                self._commit(deletion, lambda why: self.enter(done) if why is None else done(why))
            else:
                done(f"another broker with the id {self._broker_id} is alive")

        value = store_codec.encode_live(self._own)
        self._store.read(self._key, on_read)

    def withdraw(self, done: Callable[[str | None], None]) -> None:
        """Take this process's key away, so that the others take it for gone; ``done`` as of ``enter``."""

        def on_read(snapshot: Snapshot | None, error: StoreError | None) -> None:
            if snapshot is None:
                done(str(error))
                return
            entry = snapshot.entries.get(self._key)
            if entry is None or entry.value != value:
                done(None)  # it is gone already, or it is another process's
            else:
                self._commit(Transaction({self._key: entry.version}, deletes=(self._key,)), done)

        value = store_codec.encode_live(self._own)
        self._store.read(self._key, on_read)

    def _commit(self, transaction: Transaction, done: Callable[[str | None], None]) -> None:
        def committed(result: CommitResult) -> None:
            if result.revision is not None:
                done(None)
            else:
                done(str(result.error) if result.error else f"{result.conflict} has changed meanwhile")

        self._store.commit(transaction, committed)
