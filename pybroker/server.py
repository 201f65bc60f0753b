"""The composition root: the only place that wires concrete parts into a broker.

Owns: the order of start and stop.  Owns no behaviour (whatever a broker does is in the parts), and not the process
around a broker (``cli/broker_process``, ``testing/broker``).

Order of start: lock and list the log dirs, load the metadata, bind the listeners (a port 0 becomes known), register the
broker with the addresses to advertise, wire the services, accept.  Stop is the reverse; the logs are closed last and
leave the clean-shutdown mark.

Kafka counterpart: KafkaRaftServer and BrokerServer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from pybroker.cluster.bootstrap import open_controller
from pybroker.cluster.controller import Controller
from pybroker.cluster.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, Endpoint
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import listeners_of
from pybroker.config.service import ConfigService
from pybroker.coordinators.group.service import GroupCoordinator
from pybroker.coordinators.transaction.service import TransactionCoordinator
from pybroker.handlers.services import Services
from pybroker.net.loop_env import loop_env
from pybroker.net.socket_server import SocketServer
from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.replication.producer_ids import ProducerIds
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.replication.transaction_markers import TransactionMarkers
from pybroker.replication.transaction_verification import TransactionVerification
from pybroker.storage.log_manager import LogManager
from pybroker.telemetry import ClientTelemetry

log = logging.getLogger("pybroker")


class AdvertisedListener(NamedTuple):
    """Where clients of one listener connect to."""

    name: str
    host: str
    port: int


class BrokerServer:
    """One broker on the running loop.  ``start`` and ``stop`` are each called once.

    ``on_failure()`` is called when no log dir is left: then the process must end with exit code 1.
    ``cleaner_process``: logs are cleaned in a process of its own, else on a thread with a small budget.
    """

    def __init__(
        self, config: BrokerConfig, on_failure: Callable[[], None] = lambda: None, *, cleaner_process: bool = False
    ) -> None:
        self.config = config
        self._cleaner_process = cleaner_process
        self.services = Services()
        self.endpoints: list[AdvertisedListener] = []
        self._on_failure = on_failure
        self._sockets: SocketServer | None = None
        self._logs: LogManager | None = None
        self._controller: Controller | None = None
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._replicas: ReplicaManager | None = None
        # For the mark of a clean stop (KIP-966): this run's epoch or, before it has one, the last clean stop's.
        self._broker_epoch = -1

    async def start(self) -> None:
        """Start everything; when it returns the broker serves.

        Raises ``ConfigError`` (settings), ``StorageError`` and ``StoreError`` (data dir locked, unusable or another
        node's) and ``OSError`` (addresses).
        After a failed start ``stop`` must be called all the same.
        """
        config, services = self.config, self.services
        env = loop_env()
        listeners = listeners_of(config)
        self._logs = logs = LogManager(env, config, self._on_all_dirs_failed, self._cleaner_process)
        logs.start()
        self._broker_epoch = logs.clean_broker_epoch()
        metadata = MetadataCache()
        self._controller = controller = open_controller(
            env, config, metadata, str(logs.metadata_dir), logs.partition_count
        )
        controller.load()
        logs.set_cluster(controller.cluster_id, controller.node_id)
        found = logs.settle(controller.loaded_image.replica_places(controller.node_id))
        services.env = env
        services.config = config
        services.broker_id = controller.node_id
        services.cluster_id = controller.cluster_id
        services.metadata = metadata
        services.logs = logs
        services.controller = controller
        self._sockets = sockets = SocketServer(env, services, config)
        endpoints: dict[str, Endpoint] = {}
        for listener in listeners:
            bound = await sockets.listen(listener.name, listener.host, listener.port)
            host, port = listener.advertised(bound.port)
            endpoints[listener.name] = Endpoint(host, port)
            self.endpoints.append(AdvertisedListener(listener.name, host, port))
        self._replicas = services.replicas = ReplicaManager(env, services.broker_id, metadata, logs, config)
        services.producer_ids = ProducerIds(controller.allocate_producer_ids)
        services.configs = ConfigService(config, metadata, controller, services.broker_id)
        services.configs.subscribe(self._on_config_change)
        services.telemetry = ClientTelemetry(env, metadata, config)
        clean_shutdown = logs.clean_broker_epoch() >= 0
        controller.register(
            endpoints, config["broker.rack"], logs.directory_ids(), found, clean_shutdown=clean_shutdown
        )
        logs.on_directory_failed = controller.take_directory_offline
        self._broker_epoch = metadata.image.brokers[services.broker_id].epoch
        self._wire_coordinators(metadata)
        await sockets.accept()

    def _wire_coordinators(self, metadata: MetadataCache) -> None:
        services, config = self.services, self.config
        env, replicas, broker_id = services.env, services.replicas, services.broker_id
        offsets = CoordinatorPartitions(replicas, metadata, broker_id, GROUP_METADATA_TOPIC)
        self._groups = services.groups = GroupCoordinator(env, config, metadata, writer=offsets, reader=offsets)
        state = CoordinatorPartitions(replicas, metadata, broker_id, TRANSACTION_STATE_TOPIC)
        services.transaction_markers = TransactionMarkers(env.clock, replicas, services.groups.end_transaction)
        self._transactions = services.transactions = TransactionCoordinator(
            env,
            config,
            metadata,
            writer=state,
            reader=state,
            producer_ids=services.producer_ids,
            markers=services.transaction_markers,
        )
        services.transaction_verification = TransactionVerification(env, config, services.transactions)
        offsets.verification = services.transaction_verification
        # Groups first: transactions that are completed after a crash end in partitions of groups, too.
        offsets.follow(services.groups)
        state.follow(services.transactions)

    async def stop(self) -> None:
        """Stop in reverse order of start; what was never started is skipped."""
        if self._sockets is not None:
            await self._sockets.stop()
        if self._transactions is not None:
            self._transactions.close()
        if self._groups is not None:
            self._groups.close()
        if self._replicas is not None:
            self._replicas.close()
        if self._controller is not None:
            self._controller.close()
        if self._logs is not None:
            self._logs.close(self._broker_epoch)

    def _on_all_dirs_failed(self) -> None:
        log.critical("no log directory is left, or not that of the metadata; the broker stops")
        self._on_failure()

    def _on_config_change(self, names: frozenset[str]) -> None:
        self.services.replicas.on_broker_config()
