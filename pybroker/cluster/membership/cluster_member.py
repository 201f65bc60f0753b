"""One broker of a cluster, which may have no other (``standalone``).

Owns: putting together what a member of a cluster has (``metadata_follower``, ``live_brokers``, ``controller_election``,
``broker_lifecycle``, ``controller_channel``, ``log_dir_reports``, ``leader_balancing``), the order of its start and
end, and founding a new store.  Owns no behaviour of theirs.  What only brokers that share a store need is imported
where it is put together, as the start-up budget of one that is alone asks.

Invariants: a new store is founded by one broker, however many try at the same time; ``join`` ends when this broker's
own image has its registration.

Counterpart in Kafka: ``BrokerServer`` and ``ControllerServer``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pybroker.cluster.controller.controller import Controller
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, Endpoint, ImageBuilder
from pybroker.cluster.image.supported_features import CORDONED_LOG_DIRS_LEVEL, METADATA_VERSION, unsupported_level
from pybroker.cluster.membership.controller_channel import ControllerChannel
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_follower import MetadataFollower
from pybroker.cluster.store.metadata_store import ABSENT, Entry, MetadataStore, StoreError, Transaction
from pybroker.cluster.store.store_codec import LiveBroker
from pybroker.cluster_limits import LIVENESS_INTERVAL_MS

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import FoundReplicas
    from pybroker.cluster.failure_detection.broker_contacts import BrokerContacts
    from pybroker.cluster.failure_detection.liveness import ConnectionProbe, Datagrams, Liveness
    from pybroker.cluster.failure_detection.stall_guard import RequestGate
    from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.membership.broker_lifecycle import BrokerLifecycle
    from pybroker.cluster.membership.heartbeats import Heartbeats
    from pybroker.cluster.membership.log_dir_reports import LogDirReports
    from pybroker.cluster.membership.peers import Peers
    from pybroker.cluster.store.initial_metadata import InitialMetadata
    from pybroker.cluster.store.sqlite.shared_sqlite_thread import SharedSqliteThread
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env

log = logging.getLogger(__name__)

# A broker that has withdrawn, because it decided and was cut off, comes back when another one decides, or after so many
# sessions.
WITHDRAWN_SESSIONS = 2

# A session ends so much later than its time-out at most.
SESSION_MARGIN_MS = 2_000


class LivenessTransport(NamedTuple):
    """By what other brokers are heard: a socket for datagrams at the address of the inter-broker listener, connections
    to that of others, and that listener's name."""

    datagrams: Datagrams
    connection_probe: ConnectionProbe
    listener: str


class ClusterMember:
    """Start is ``load``, which blocks (the cluster and the node are known), then ``join``.

    ``found()`` gives the first contents of a new store. ``connect(follower, secret)`` makes the way to the other
    brokers, whose addresses are in the follower's image; one that is alone has none, and no session.
    ``known_cluster_id`` is that of the data directory or of the settings, if any.
    """

    is_alone: ClassVar[bool] = False

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cache: MetadataCache,
        store: MetadataStore,
        node_id: int,
        found: Callable[[], InitialMetadata],
        connect: Callable[[MetadataFollower, bytes], Peers] | None = None,
        session_timeout_ms: int = 0,
        known_cluster_id: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = ""  # known from ``load`` on
        self.loaded_revision = 0  # the store's, at ``load``
        # This and the next: from ``join`` on, where other brokers are heard.
        self.suspected_brokers: SuspectedBrokers | None = None
        self.liveness: Liveness | None = None
        self.on_superseded: Callable[[], None] = lambda: None  # another process is this broker: this one has to end
        self._lifecycle: BrokerLifecycle | None = None  # this and the next two: from ``join`` on
        self._full_log_dirs: LogDirReports | None = None
        self._cordoned_log_dirs: LogDirReports | None = None
        self._env = env
        self._config = config
        self._cache = cache
        self._store = store
        self._found = found
        self._connect = connect
        self._session_timeout_ms = session_timeout_ms
        self._known_cluster_id = known_cluster_id
        self._closers: list[Callable[[], None]] = [store.close]

    def load(self) -> None:
        """Open and read the store, or found the cluster in a new one; StoreError.

        From now on there are a controller, which is not active, and the ways to the active one and to other brokers.
        """
        self._store.open()
        entries = self._load_exactly()
        if store_codec.CLUSTER not in entries:
            entries = self._put_first(entries, store_codec.CLUSTER, store_codec.encode_initial_metadata(self._found()))
        if store_codec.SECRET not in entries:  # the store of a broker that was alone until now
            entries = self._put_first(entries, store_codec.SECRET, {})
        image = store_codec.decode(entries)
        if not image.cluster_id:
            raise StoreError("the metadata store has no cluster, and none could be founded in it")
        if self._known_cluster_id not in (None, image.cluster_id):
            raise StoreError(
                f"the data directory or pybroker.cluster.id says cluster {self._known_cluster_id}, "
                f"and the metadata store is that of the cluster {image.cluster_id}"
            )
        if why := unsupported_level(image.features):
            raise StoreError(why)
        self.cluster_id = image.cluster_id
        self.secret = store_codec.decode_secret(entries[store_codec.SECRET].value)
        self._wire(_at_revision(image, self.loaded_revision))

    def _load_exactly(self) -> dict[str, Entry]:
        """All keys as they were at ``loaded_revision``: two brokers with the same epoch have the same image."""
        self.loaded_revision = self._store.revision()
        while True:
            entries, before = self._store.load("/"), self.loaded_revision
            self.loaded_revision = self._store.revision()
            if self.loaded_revision == before:
                return entries

    def _put_first(self, entries: dict[str, Entry], key: str, puts: Mapping[str, bytes]) -> dict[str, Entry]:
        """Put what a store without ``key`` lacks, a secret with it, unless another broker was faster; all keys then."""
        secret = store_codec.encode_secret(self._env.new_secret())
        transaction = Transaction({key: ABSENT}, {**puts, store_codec.SECRET: secret})
        result = self._store.commit_at_start(transaction)
        if result.error is not None:
            raise result.error
        return self._load_exactly()

    def _wire(self, image: ClusterImage) -> None:
        env, store = self._env, self._store
        self.follower = MetadataFollower(env, store, self._cache, image)
        self._peers = peers = None if self._connect is None else self._connect(self.follower, self.secret)
        self.controller = Controller(env, self._config, self.node_id, store, self.follower)
        self.channel = ControllerChannel(
            env, self.node_id, lambda: self.broker_epoch, self.controller, self.follower, peers
        )
        self._closers += [self.follower.close, self.controller.close]
        if peers is not None:
            from pybroker.cluster.controller.leader_balancing import LeaderBalancing

            self._closers += [LeaderBalancing(env, self._config, self.controller).close, peers.close]

    @property
    def loaded_image(self) -> ClusterImage:
        """What ``load`` found, or what has become of it; the cache has it once ``join`` is done."""
        return self.follower.image

    def join(
        self,
        endpoints: Mapping[str, Endpoint],
        rack: str | None,
        log_dirs: Sequence[bytes],
        previous_broker_epoch: int,
        done: Callable[[str | None], None],
        liveness_transport: LivenessTransport | None = None,
        found: FoundReplicas = MappingProxyType({}),
        on_registered: Callable[[], None] = lambda: None,
        claim: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Register this broker; ``done(None)`` when its own image has that, ``done(why)`` when it cannot come about.

        ``endpoints`` are what clients, and brokers, of each listener connect to; ``previous_broker_epoch`` is that of
        the last clean stop, or -1.  Without ``liveness_transport`` the sessions alone say who is alive.  ``found`` says
        where replicas lie for which ``loaded_image`` names another log dir, or none.  ``on_registered()`` is called
        when the controller has registered this broker, which is a moment before ``done``.  ``claim()`` has the log
        dirs say that they are this broker's, before it registers, or tells why they cannot.
        """
        from pybroker.cluster.controller.controller_election import ControllerElection
        from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
        from pybroker.cluster.membership.broker_lifecycle import BrokerLifecycle

        self.liveness = liveness = None if liveness_transport is None else self._listen(liveness_transport)
        incarnation_id, log_dirs = self._env.new_uuid(), tuple(log_dirs)
        registration = BrokerRegistration(self.node_id, 0, incarnation_id, dict(endpoints), rack, log_dirs=log_dirs)
        own = LiveBroker(incarnation_id, log_dirs, sends_heartbeats=True)
        live = LiveBrokers(self._store, self.node_id, own)
        contacts = self._meet()
        self._election = election = ControllerElection(
            self._env, self._store, self.follower, live, self.controller, self.node_id, liveness, contacts
        )
        self.controller.is_live = live.is_live
        self._lifecycle = lifecycle = BrokerLifecycle(
            self._env,
            live,
            self.follower,
            self.channel,
            registration,
            self.cluster_id,
            previous_broker_epoch,
            found,
            claim,
            election.start,
            on_registered,
            self._tell_superseded,
        )

        def on_session_lost() -> None:
            election.step_down()
            lifecycle.on_session_lost()

        self._tell_of_log_dirs(lifecycle)
        self._store.on_session_lost = on_session_lost
        heartbeats = self._heartbeats()
        election.withdraw = lambda: lifecycle.withdraw(WITHDRAWN_SESSIONS * self._broker_session_ms)
        self._closers += [live.close, election.close, lifecycle.close, heartbeats.close]
        self.follower.start()
        live.start()

        def started(why: str | None) -> None:
            if why is None:
                heartbeats.start()
                if liveness is not None:
                    liveness.start()
            done(why)

        timeout_ms = self._config.get_int("initial.broker.registration.timeout.ms")
        lifecycle.start(self._session_timeout_ms + SESSION_MARGIN_MS, timeout_ms, started)

    def _tell_of_log_dirs(self, lifecycle: BrokerLifecycle) -> None:
        """The controller hears which log dirs of this broker have no space, and which are cordoned."""
        from pybroker.cluster.membership.log_dir_reports import LogDirReports

        timers, channel = self._env.timers, self.channel

        def knows_of_cordons() -> bool:
            return self.follower.image.features.get(METADATA_VERSION, 0) >= CORDONED_LOG_DIRS_LEVEL

        self._full_log_dirs = full = LogDirReports(
            timers,
            lambda: lifecycle.registered,
            lambda own: own.full_dirs,
            self._active_controller,
            lambda directories, reports: channel.heartbeat(lambda _: reports(), full_directories=directories),
        )
        self._cordoned_log_dirs = cordoned = LogDirReports(
            timers,
            lambda: lifecycle.registered if knows_of_cordons() else None,
            lambda own: own.cordoned_log_dirs,
            self._active_controller,
            lambda directories, reports: channel.heartbeat(lambda _: reports(), cordoned_directories=directories),
        )
        for reports in (full, cordoned):
            self.follower.subscribe(lambda *_, reports=reports: reports.look())
            self._closers.append(reports.close)

    def _active_controller(self) -> tuple[int, int]:
        """Which process decides: the broker and its epoch."""
        image = self.follower.image
        holder = image.brokers.get(image.controller_id)
        return image.controller_id, -1 if holder is None else holder.epoch

    @property
    def _broker_session_ms(self) -> int:
        """Of a broker with the active controller."""
        return self._config.get_int("broker.session.timeout.ms")

    def _heartbeats(self) -> Heartbeats:
        from pybroker.cluster.membership.heartbeats import Heartbeats

        interval_ms = self._config.get_int("broker.heartbeat.interval.ms")
        return Heartbeats(self._env, self.channel, lambda: self.broker_epoch >= 0, interval_ms, self._broker_session_ms)

    def _meet(self) -> BrokerContacts:
        """Who reaches this broker's controller while that is the active one."""
        from pybroker.cluster.failure_detection.broker_contacts import BrokerContacts

        contacts = BrokerContacts(self._env, self._broker_session_ms)
        self.controller.on_contact = contacts.note
        self.controller.activity_listeners.append(contacts.on_activity)
        self._closers.append(contacts.close)
        return contacts

    def is_cut_off(self, broker_id: int) -> bool:
        """Whether this broker and the other one do not hear each other, as far as datagrams say."""
        return self.liveness is not None and self.liveness.is_cut_off(broker_id)

    def _listen(self, liveness_transport: LivenessTransport) -> Liveness:
        from pybroker.cluster.failure_detection.liveness import Liveness
        from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers

        def image() -> ClusterImage:
            return self.follower.image

        self.suspected_brokers = suspected_brokers = SuspectedBrokers(self._env)
        liveness = Liveness(
            self._env,
            self.node_id,
            lambda: self.broker_epoch,
            image,
            self.secret,
            liveness_transport.datagrams,
            liveness_transport.connection_probe,
            liveness_transport.listener,
            suspected_brokers,
            self._config.get_int("pybroker.liveness.timeout.ms"),
        )
        assert self._peers is not None
        self._peers.on_broken = liveness.suspect
        liveness.on_behind = self._store.look_for_news
        self.follower.subscribe(lambda *_: liveness.tell_news() if self.controller.is_active else None)
        self._closers += [self._cache.subscribe(suspected_brokers.on_image), suspected_brokers.close, liveness.close]
        return liveness

    def guard_against_stalls(self, gate: RequestGate) -> None:
        """Have clients wait at the gate whenever this broker has stood still for so long that others may lead."""
        from pybroker.cluster.failure_detection.stall_guard import StallGuard

        liveness_ms = self._config.get_int("pybroker.liveness.timeout.ms")
        wait_ms = min(self._session_timeout_ms, liveness_ms or self._session_timeout_ms)
        bound_ms = max(wait_ms - LIVENESS_INTERVAL_MS, 2 * LIVENESS_INTERVAL_MS)
        self._closers.append(StallGuard(self._env, self._store, self.follower, gate, bound_ms).close)

    @property
    def broker_epoch(self) -> int:
        """Under which this process is registered, -1 while it is not; it grows whenever the broker registers anew.

        It stays what it was when another process registers as this broker, so that all that asks under it is refused.
        """
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    def _tell_superseded(self) -> None:
        self.on_superseded()

    def take_directory_offline(self, directory: bytes) -> None:
        """A log dir of this broker failed: the controller hears of it, now and when the broker registers anew."""
        if self._lifecycle is not None:  # one that is alone registers once
            self._lifecycle.lose_directory(directory)
        self.channel.take_directory_offline(directory)

    def note_full_directories(self, directories: frozenset[bytes]) -> None:
        """These log dirs of this broker have no space, and its others have: replicas elsewhere take over."""
        assert self._full_log_dirs is not None
        self._full_log_dirs.become(directories)

    def cordon(self, directories: Sequence[bytes]) -> None:
        """These log dirs of this broker, and no others, take no new replicas: the controller hears of it."""
        assert self._cordoned_log_dirs is not None
        self._cordoned_log_dirs.become(directories)

    def leave(self, timeout_ms: int, done: Callable[[], None]) -> None:
        """Hand leaderships over, before the listeners close; ``done`` runs when that is so, or the time is over."""
        assert self._lifecycle is not None
        self._election.leave()
        self._lifecycle.leave(timeout_ms, done)

    def close(self) -> None:
        """End the session: the others take this broker for gone.  Blocks for the store's thread."""
        for close in reversed(self._closers):
            close()

    def abandon(self) -> None:
        """Let go of everything as the end of the process would: the session expires.  For tests, on SQLite."""
        for close in reversed(self._closers[1:]):  # all but the store's
            close()
        self._sqlite_thread().abandon()

    def stall(self, wait: Callable[[], None]) -> None:
        """Have the store's thread do nothing until ``wait()`` returns.  For tests, on SQLite."""
        self._sqlite_thread().stall(wait)

    def _sqlite_thread(self) -> SharedSqliteThread:
        from pybroker.cluster.store.sqlite.sqlite_store import SqliteStore

        assert isinstance(self._store, SqliteStore), "other stores have no process to outlive"
        return self._store.shared


def _at_revision(image: ClusterImage, revision: int) -> ClusterImage:
    builder = ImageBuilder(image)
    return builder.build(revision)[0]
