"""The composition root: here concrete parts are wired into a broker.

Owns: the order of start and stop.  Owns no behaviour (whatever a broker does is in the parts), and not the process
around a broker (``cli/serve/broker_process``, ``testing/in_process_broker``).

Order of start:
- Lock and list the log dirs, and bind the listeners, by which a port 0 becomes known.
- Load the metadata. Once the broker's id is known to be its own, the log dirs say whose they are.
- Register the broker with the addresses to advertise; from then on connections wait.
- Wire the services, and accept.

Stop is the reverse; the logs are closed last and leave the clean-shutdown mark, or, where the id was never the
broker's, leave their directories as they were found. Services that not every broker needs are built, and their modules
imported, when they are asked for first (``lazy_services``); what a broker among others needs besides is wired by
``cluster_wiring``.

Kafka counterpart: KafkaRaftServer and BrokerServer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker.cluster.bootstrap import check_nothing_is_lost, open_membership
from pybroker.cluster.controller.auto_topic_creation import AutoTopicCreation
from pybroker.cluster.image.cluster_image import ClusterImage, Endpoint, ImageDelta, first_delta
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.moved_replicas import MovedReplicas
from pybroker.cluster.membership.standalone import Standalone
from pybroker.cluster.store.initial_metadata import NO_USERS, tell_of_users_passed_over
from pybroker.config.broker import BrokerConfig
from pybroker.config.config_service import ConfigService
from pybroker.config.listeners import Listener, inter_broker_listener, listeners_of
from pybroker.config.resources import CORDONED_LOG_DIRS
from pybroker.handlers.services import Services
from pybroker.lazy_services import LazyLinks, LazyServices
from pybroker.net.channel_builders import ChannelBuilders, ImageUsers
from pybroker.net.loop_env import loop_env
from pybroker.net.socket_server import SocketServer
from pybroker.net.sources import Sources
from pybroker.replication.producer_ids import ProducerIds
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from pybroker.cluster.controller.token_operations import DelegationTokens
    from pybroker.cluster.membership.cluster_member import ClusterMember
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.cluster.store.initial_metadata import Users
    from pybroker.cluster_wiring import ClusterWiring
    from pybroker.env import Env
    from pybroker.quotas.client_quotas import ClientQuotas
    from pybroker.security.mechanisms import MechanismContext
    from pybroker_protocol.schema import Request

log = logging.getLogger("pybroker")


class AdvertisedListener(NamedTuple):
    """Where clients of one listener connect to."""

    name: str
    host: str
    port: int


class BrokerServer:
    """One broker on the running loop.  ``start`` and ``stop`` are each called once.

    ``on_failure()`` is called when no log dir is left, or another process is this broker: then the process must end
    with exit code 1.
    ``own_process``: the process is there for the broker alone.  Then logs are cleaned by a process beside it, else on
    a thread with a small budget; and the loop may keep a processor awake for a client (``net/busy_poll``).
    ``first_users`` are those of SCRAM that a cluster begins with which this broker founds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        on_failure: Callable[[], None] = lambda: None,
        *,
        own_process: bool = False,
        env: Env | None = None,
        first_users: Users = NO_USERS,
    ) -> None:
        self.config = config
        self._first_users = first_users
        self._env = env  # None: that of the running loop
        self._own_process = own_process
        self.services = Services()
        self.endpoints: list[AdvertisedListener] = []
        self.bound: list[list[tuple[Any, ...]]] = []  # the sockets' addresses, of each endpoint
        self._on_failure = on_failure
        self._sockets: SocketServer | None = None
        self._logs: LogManager | None = None
        self._membership: ClusterMember | None = None
        self._close_what_was_built: list[Callable[[], None]] = []
        self._replicas: ReplicaManager | None = None
        self._cluster: ClusterWiring | None = None  # where other brokers may be
        self._sources = Sources(self.services)
        self._client_quotas: ClientQuotas | None = None
        self._is_serving = False
        # For the mark of a clean stop (KIP-966): the last of this run or, before it has one, the last clean stop's.
        self._broker_epoch = -1

    async def start(self) -> None:
        """Start everything; when it returns the broker serves.

        Raises ``ConfigError`` (settings), ``StorageError`` and ``StoreError`` (data dir locked, unusable or another
        node's) and ``OSError`` (addresses).
        After a failed start ``stop`` must be called all the same.
        """
        config, services = self.config, self.services
        env = self._env or loop_env()
        listeners = listeners_of(config)
        name_of_brokers = inter_broker_listener(config, listeners)
        metadata = MetadataCache()
        self._authorize(env, metadata)
        # Before anything is written: whose keys or passwords are wrong begins nothing.
        around = self._mechanism_context(env, metadata) if any(each.asks_who_it_is for each in listeners) else None
        builders = ChannelBuilders(config, listeners, around, env.clock)
        self._logs = logs = LogManager(env, config, self._on_all_dirs_failed, self._own_process)
        logs.start()
        self._broker_epoch = clean_epoch = logs.clean_broker_epoch()
        services.env, services.config = env, config
        cluster = self._cluster = self._wire_cluster(
            env, builders, next(each for each in listeners if each.name == name_of_brokers)
        )
        self._sockets = sockets = SocketServer(env, services, config, self._own_process)
        endpoints = await self._listen(sockets, listeners, builders)
        membership = self._load_membership(env, logs, metadata)
        metadata.subscribe(lambda image, _: logs.note_metadata(image.epoch))
        logs.check_cluster(membership.cluster_id, membership.node_id)
        found = logs.settle(membership.loaded_image.replica_places(membership.node_id))
        services.broker_id, services.cluster_id = membership.node_id, membership.cluster_id
        services.metadata = metadata
        services.logs = logs
        services.controller = membership.controller
        self._serve_tokens(env, membership, metadata)
        channel = membership.channel
        channel.serve = self._serve_own
        services.auto_topic_creation = AutoTopicCreation(env, config, metadata, channel.create_topics)
        self._close_what_was_built.append(services.auto_topic_creation.close)
        if around is not None or cluster is not None:
            around = around or self._mechanism_context(env, metadata)
            self._let_brokers_in(builders, around, membership)
        # Settings are heard of before partitions: with an image's replicas goes its min.insync.replicas.
        services.configs = ConfigService(config, metadata, membership.controller, services.broker_id)
        self._follow_settings(services.configs, builders, sockets)
        self._replicas = services.replicas = ReplicaManager(env, services.broker_id, metadata, logs, config)
        if cluster is not None:
            cluster.replicate(self._replicas, membership)
        services.producer_ids = ProducerIds(channel.allocate_producer_ids)
        self._tell_of_moved_replicas(env, logs, channel)
        log_dirs = logs.directory_ids()
        if isinstance(membership, Standalone):
            rack = config["broker.rack"]
            cordoned = logs.cordon(config.cordoned_log_dirs)
            membership.register(endpoints, rack, log_dirs, found, clean_shutdown=clean_epoch >= 0, cordoned=cordoned)
            logs.set_cluster(membership.cluster_id, membership.node_id)
        elif cluster is not None:
            await cluster.join(membership, endpoints, logs, clean_epoch, found, sockets, self._on_failure)
            cluster.watch(membership, metadata, sockets)
            self._tell_of_full_dirs(logs, membership)
        self._tell_of_failed_dirs(logs, membership, log_dirs)
        self._keep_cordoned(services.configs, logs, membership)
        self._broker_epoch = metadata.image.brokers[services.broker_id].epoch
        LazyServices(services, None if cluster is None else cluster.peers, self._close_what_was_built).wire(channel)
        LazyLinks(services, self._sources.connect, channel.report_mirrors, self._close_what_was_built).follow()
        self._hold_clients_to_quotas(metadata)
        sockets.bound_arrivals(metadata.image.quotas)
        await sockets.accept()
        self._is_serving = True

    @staticmethod
    def _tell_of_failed_dirs(logs: LogManager, membership: ClusterMember, registered: list[bytes]) -> None:
        """The controller hears of log dirs that fail, also of those that did so while the broker registered."""
        logs.on_directory_failed = membership.take_directory_offline
        for failed in [each for each in registered if each not in logs.directory_ids()]:
            membership.take_directory_offline(failed)

    @staticmethod
    def _tell_of_full_dirs(logs: LogManager, membership: ClusterMember) -> None:
        """The controller hears of log dirs without space, so that replicas of others take over what lies in there."""
        logs.on_free_space_changed = membership.note_full_directories
        membership.note_full_directories(logs.full_directory_ids())
        logs.check_free_space()

    def _tell_of_moved_replicas(self, env: Env, logs: LogManager, channel: ControllerChannel) -> None:
        moved = MovedReplicas(env.timers, channel.assign_replicas)
        self._close_what_was_built.append(moved.close)
        logs.on_replica_moved = moved.tell

    def _keep_cordoned(self, configs: ConfigService, logs: LogManager, membership: ClusterMember) -> None:
        """The controller hears which log dirs take no new replicas, by the settings that the image has, too."""

        def tell(names: frozenset[str]) -> None:
            if CORDONED_LOG_DIRS in names:
                membership.cordon(logs.cordon(self.config.cordoned_log_dirs))

        configs.subscribe(tell)
        tell(frozenset((CORDONED_LOG_DIRS,)))

    def _serve_own(self, request: Request, version: int, done: Callable[[Any], None]) -> None:
        """Answer what the broker asks of its own controller."""
        from pybroker.handlers.own_requests import serve_own

        serve_own(self.services, request, version, done)

    def _wire_cluster(self, env: Env, builders: ChannelBuilders, listener: Listener) -> ClusterWiring | None:
        """What it takes where other brokers may come by ``listener``; None for a broker that is alone."""
        if self.config["pybroker.metadata"] is None:
            return None
        from pybroker.cluster_wiring import ClusterWiring

        self.services.inter_broker_listener = listener.name
        return ClusterWiring(env, self.config, self.services, builders, listener, self._close_what_was_built)

    def _load_membership(self, env: Env, logs: LogManager, metadata: MetadataCache) -> ClusterMember:
        """This broker's place in its cluster, whose metadata is loaded."""
        membership = open_membership(
            env,
            self.config,
            metadata,
            str(logs.metadata_dir),
            logs.partition_count,
            None if self._cluster is None else self._cluster.connect,
            self._first_users,
        )
        self._membership = membership  # ``stop`` closes it, also where the load fails
        membership.load()
        tell_of_users_passed_over(membership.loaded_image, self._first_users)
        check_nothing_is_lost(self.config, str(logs.metadata_dir), membership.loaded_revision, logs.metadata_seen())
        return membership

    def _follow_settings(self, configs: ConfigService, builders: ChannelBuilders, sockets: SocketServer) -> None:
        """Have settings of brokers that change hold at once, and refuse those that cannot."""
        configs.subscribe(self._on_config_change)
        configs.checks += [builders.check, sockets.check]
        configs.look = builders.look
        self._close_what_was_built.append(builders.follow_files(self.services.env))
        configs.subscribe(lambda names: builders.update(self.config))
        configs.subscribe(lambda names: sockets.processor.follow_settings())
        configs.subscribe(lambda names: sockets.bound_arrivals(self.services.metadata.image.quotas))

    def _authorize(self, env: Env, metadata: MetadataCache) -> None:
        """Ask the authorizer that is configured; the first image tells it of all ACLs, before the first request is
        served.
        """
        if not self.config.get_str("authorizer.class.name"):
            return
        from pybroker.security.standard_authorizer import AuthorizerSettings, StandardAuthorizer

        settings = AuthorizerSettings.of_config(self.config)
        assert settings is not None
        self.services.authorizer = authorizer = StandardAuthorizer(settings, env.timers)
        metadata.subscribe(lambda image, delta: authorizer.on_acls(image.acls, delta.acls_changed))
        self._close_what_was_built.append(authorizer.close)

    def _mechanism_context(self, env: Env, metadata: MetadataCache) -> MechanismContext:
        """What logins need of the broker; a start without logins does without."""
        from pybroker.net.key_fetch import fetch_keys
        from pybroker.security.key_sets import KeySets
        from pybroker.security.mechanisms import MechanismContext

        key_sets = KeySets(env, fetch_keys)
        self._close_what_was_built.append(key_sets.close)
        return MechanismContext(ImageUsers(metadata), env.random, b"", key_sets=key_sets)

    def _serve_tokens(self, env: Env, membership: ClusterMember, metadata: MetadataCache) -> None:
        """Have delegation tokens served, or have requests for them refused."""

        def build() -> DelegationTokens:
            from pybroker.cluster.controller.token_operations import DelegationTokens

            tokens = DelegationTokens(env, self.config, membership.controller, metadata)
            self._close_what_was_built.append(tokens.close)
            return tokens

        if self.config.get_str("delegation.token.secret.key"):
            self.services.tokens = build()  # before the controller becomes active, which looks for expired ones
        else:
            self.services.build_later("tokens", build)

    async def _listen(
        self, sockets: SocketServer, listeners: list[Listener], builders: ChannelBuilders
    ) -> dict[str, Endpoint]:
        """Bind all listeners: what clients of each connect to."""
        endpoints: dict[str, Endpoint] = {}
        unguarded: list[str] = []
        for listener in listeners:
            bound = await sockets.listen(listener.name, listener.host, listener.port, builders[listener.name])
            host, port = listener.advertised(bound.port)
            endpoints[listener.name] = Endpoint(host, port, listener.security_protocol_id)
            self.endpoints.append(AdvertisedListener(listener.name, host, port))
            self.bound.append(bound.addresses)
            if bound.reaches_beyond_this_machine and not builders[listener.name].authenticates:
                unguarded.append(listener.name)
        if unguarded:
            names = ", ".join(unguarded)
            log.warning("reached from beyond this machine without a login: listener %s", names)
        return endpoints

    def _let_brokers_in(self, builders: ChannelBuilders, around: MechanismContext, membership: ClusterMember) -> None:
        """Who knows the cluster's secret is one of its brokers."""
        from pybroker.security.mechanisms import ClusterLogin

        cluster = None if self._cluster is None else ClusterLogin(membership.secret, around.random)
        around = around._replace(fake_key=membership.secret, cluster=cluster, tokens=self.services.tokens.logins)
        builders.set_cluster_secret(around, self.services.inter_broker_listener)

    def _hold_clients_to_quotas(self, metadata: MetadataCache) -> None:
        self._close_what_was_built.append(metadata.subscribe(self._follow_client_quotas))
        self._follow_client_quotas(metadata.image, first_delta(metadata.image))

    def _follow_client_quotas(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Hold clients to quotas while any is set."""
        if not delta.quotas_changed:
            return
        assert self._sockets is not None
        self._sockets.bound_arrivals(image.quotas)
        services = self.services
        quotas = self._client_quotas
        if quotas is None:
            from pybroker.quotas.client_quotas import ClientQuotas

            quotas = self._client_quotas = ClientQuotas(services.env, self.config)
            self._close_what_was_built.append(quotas.close)
        services.quotas = quotas if quotas.on_image(image) else None
        self._sockets.processor.measure(services.quotas)

    async def stop(self) -> None:
        """Stop in reverse order of start; what was never started is skipped.

        A member of a cluster hands its leaderships over first.
        """
        member, cluster = self._membership, self._cluster
        if member is not None and cluster is not None:
            if self._is_serving:
                await cluster.leave(member)
            if member.broker_epoch >= 0:
                self._broker_epoch = member.broker_epoch  # also where the start ended after it, or it registered anew
        if self._sockets is not None:
            await self._sockets.stop()
        for close in reversed(self._close_what_was_built):
            close()
        if self._replicas is not None:
            self._replicas.close()
        if member is not None:
            member.close()
        if cluster is not None:
            await cluster.wait_closed()
        await self._sources.wait_closed()
        if self._logs is not None:
            self._logs.close(self._broker_epoch)

    def abandon(self, end_threads: Callable[[], None]) -> None:
        """Let go of connections, files and locks, as the end of the process would: nothing is said to clients, nothing
        is handed over, finished or marked.

        For tests, whose ``Env`` has died before; ``end_threads()`` waits for its threads.  Ends by ``wait_closed``.
        """
        if self._sockets is not None:
            self._sockets.abort()
        self._sources.close()
        member = self._membership
        if member is not None:
            member.close() if member.is_alone else member.abandon()
        end_threads()
        if self._logs is not None:
            self._logs.abandon()

    async def wait_closed(self) -> None:
        """After ``abandon``: until the loop has let go of the connections, too."""
        if self._sockets is not None:
            await self._sockets.processor.wait_aborted()
        if self._cluster is not None:
            await self._cluster.wait_closed()
        await self._sources.wait_closed()

    @property
    def is_alone(self) -> bool:
        """Whether no other broker shares its metadata; once it has started."""
        return self._membership is None or self._membership.is_alone

    def stall(self, wait: Callable[[], None]) -> None:
        """Do nothing until ``wait()`` returns, which blocks: as a process that was stopped by a signal.  For tests."""
        if self._membership is not None and not self._membership.is_alone:
            self._membership.stall(wait)  # the metadata store's thread
        wait()

    def _on_all_dirs_failed(self) -> None:
        log.critical("no log directory is left, or not that of the metadata; the broker stops")
        self._on_failure()

    def _on_config_change(self, names: frozenset[str]) -> None:
        self.services.replicas.on_broker_config()
