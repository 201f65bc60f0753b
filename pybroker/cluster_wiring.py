"""What a broker among others is wired with besides what each broker has: the way to them, and how it joins and leaves.

Owns: the connections and datagrams to the other brokers, and the waits for the cluster at start and stop.  Does not own
the order of start and stop (``server``), nor what a member of a cluster is (``cluster/membership``).

Invariant: a broker that is alone does not import this module.

Kafka counterpart: BrokerServer, where it starts its BrokerLifecycleManager and waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pybroker.cluster.failure_detection.recently_fenced import RecentlyFenced
from pybroker.cluster.membership.cluster_member import ClusterMember, LivenessTransport
from pybroker.cluster.membership.too_few_brokers import TooFewBrokersWarning
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.net.loop_env import outcome_of
from pybroker.net.peer_client import PeerClient
from pybroker.replication.isr_changes import IsrChanges
from pybroker.storage.results import StorageError

if TYPE_CHECKING:
    from pybroker.cluster.decisions.operations import FoundReplicas
    from pybroker.cluster.image.cluster_image import Endpoint
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.listeners import Listener
    from pybroker.env import Env
    from pybroker.handlers.services import Services
    from pybroker.net.channel_builders import ChannelBuilders
    from pybroker.net.socket_server import SocketServer
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.storage.manager.log_manager import LogManager

# How long a broker that stops waits for others to lead in its place: longer than a controller's fail-over.
CONTROLLED_SHUTDOWN_MS = 15_000

log = logging.getLogger("pybroker")


class ClusterWiring:
    """``listener`` is that of the brokers; ``close_later`` is given what is to be closed."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        services: Services,
        builders: ChannelBuilders,
        listener: Listener,
        close_later: list[Callable[[], None]],
    ) -> None:
        self._env = env
        self._config = config
        self._services = services
        self._builders = builders
        self._listener = listener
        self._close_later = close_later
        self.peers: PeerClient | None = None  # the way to the other brokers, once the metadata is loaded

    def connect(self, follower: MetadataFollower, node_id: int, secret: bytes) -> PeerClient:
        """Make the way to the other brokers of a cluster."""
        builders, name = self._builders, self._listener.name
        self.peers = self._services.peers = PeerClient(
            self._env,
            follower,
            node_id,
            name,
            self._config.get_int("socket.request.max.bytes"),
            secret,
            over_sasl=self._listener.asks_who_it_is,
            tls=lambda: builders[name].tls,
        )
        return self.peers

    def replicate(self, replicas: ReplicaManager, member: ClusterMember) -> None:
        """Have replicated partitions followed; the controller says which replicas are in sync."""
        changes = IsrChanges(self._env.timers, member.channel)
        self._close_later.append(changes.close)
        replicas.peers, replicas.isr_changer = self.peers, changes
        replicas.own_epoch = lambda: member.broker_epoch
        replicas.is_cut_off = member.is_cut_off

    async def join(
        self,
        member: ClusterMember,
        endpoints: Mapping[str, Endpoint],
        logs: LogManager,
        previous_broker_epoch: int,
        found: FoundReplicas,
        sockets: SocketServer,
        on_superseded: Callable[[], None],
    ) -> None:
        """Register the broker; StoreError when that cannot come about.

        ``previous_broker_epoch`` is that of the last clean stop, or -1; ``found`` says where replicas lie for which
        the metadata names another log dir, or none.  ``on_superseded()`` is called when another process is this broker.
        """
        member.on_superseded = on_superseded
        transport = await self._liveness_transport(sockets)
        rack, log_dirs = self._config["broker.rack"], logs.directory_ids()

        def claim() -> str | None:
            try:
                logs.set_cluster(member.cluster_id, member.node_id)
            except (OSError, StorageError) as error:
                return f"the log directories cannot be this broker's: {error}"
            return None

        def begin(done: Callable[[str | None], None]) -> None:
            member.join(endpoints, rack, log_dirs, previous_broker_epoch, done, transport, found, sockets.queue, claim)

        why = await outcome_of(begin)
        if why is not None:
            raise StoreError(why)

    async def _liveness_transport(self, sockets: SocketServer) -> LivenessTransport | None:
        """A socket for datagrams beside the listener of the brokers, at the same port."""
        if not self._config.get_int("pybroker.liveness.timeout.ms"):
            return None
        from pybroker.net.connection_probe import TcpConnectionProbe
        from pybroker.net.datagrams import DatagramSocket

        name = self._listener.name
        (bound,) = [each for each in sockets.listeners if each.name == name]
        try:
            return LivenessTransport(
                await DatagramSocket.bind(self._env, bound.host, bound.port), TcpConnectionProbe(), name
            )
        except OSError as error:
            log.warning("no datagrams from other brokers: %s; their sessions alone say who is alive", error)
            return None

    def watch(self, member: ClusterMember, metadata: MetadataCache, sockets: SocketServer) -> None:
        """Judge from now on which brokers are there: by silence, by stalls of this one, and by what it knew of them."""
        services = self._services
        member.guard_against_stalls(sockets.processor.gate)
        services.suspected_brokers, services.liveness = member.suspected_brokers, member.liveness
        # Brokers of the cluster are named a while longer than they are there.
        services.recently_fenced = recently_fenced = RecentlyFenced(self._env, metadata.image)
        self._close_later += [metadata.subscribe(recently_fenced.on_image), recently_fenced.close]
        self._close_later.append(TooFewBrokersWarning(self._env, self._config, metadata).close)

    async def leave(self, member: ClusterMember) -> None:
        """Have others lead in this broker's place."""
        if self.peers is not None:
            self.peers.is_leaving = True

        def begin(done: Callable[[None], None]) -> None:
            member.leave(CONTROLLED_SHUTDOWN_MS, partial(done, None))

        await outcome_of(begin)

    async def wait_closed(self) -> None:
        """Until the loop has let go of the connections to other brokers."""
        if self.peers is not None:
            await self.peers.wait_closed()
