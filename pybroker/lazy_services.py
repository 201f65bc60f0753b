"""Services that a broker has no use for before a client asks, or before their topic exists: built at their first use.

Owns: which part each of them is given.  The rest of that is ``server``'s; ``handlers/services`` has one built when it
is asked for.  Imports of theirs stand where they are built, as the start-up budget asks.

Kafka counterpart: the wiring in BrokerServer.startup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pybroker.cluster.image.coordinator_table import COORDINATORS, GROUPS, TRANSACTIONS
from pybroker.handlers.services import Services
from pybroker.replication.coordinator_partitions import CoordinatorPartitions

if TYPE_CHECKING:
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.cluster.membership.peers import Peers
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.transaction.transaction_coordinator import TransactionCoordinator
    from pybroker.coordinators.transaction.transaction_ports import MarkerWriter
    from pybroker.replication.replication_ports import TransactionPartitions
    from pybroker.replication.transaction_markers import TransactionMarkers
    from pybroker.replication.transaction_verification import TransactionVerification
    from pybroker.telemetry import ClientTelemetry


class LazyServices:
    """``peers`` are the other brokers, None where there are none.  ``close_later`` is given what is to be closed."""

    def __init__(self, services: Services, peers: Peers | None, close_later: list[Callable[[], None]]) -> None:
        self._services = services
        self._peers = peers
        self._close_later = close_later

    def wire(self, channel: ControllerChannel) -> None:
        """Say how each is built; where other brokers are, what clients ask of the controller goes by ``channel``."""
        services = self._services
        if self._peers is not None:
            from pybroker.handlers.forwarding import Forwarder

            services.forwarder = Forwarder(services, channel)
        services.build_later("telemetry", self._build_telemetry)
        services.build_later("transaction_markers", self._build_transaction_markers)
        services.build_later("transaction_verification", self._build_transaction_verification)
        builders = {GROUPS: self._build_groups, TRANSACTIONS: self._build_transactions}
        followers = []
        for kind in COORDINATORS:
            partitions = CoordinatorPartitions(
                services.replicas,
                services.metadata,
                services.broker_id,
                kind.topic,
                lambda: services.transaction_verification,
            )
            services.build_later(kind.name, partial(builders[kind], partitions))
            followers.append(partial(partitions.follow, partial(getattr, services, kind.name)))
        # Groups first: transactions that are completed after a crash end in partitions of groups, too.
        for follow in followers:
            follow()

    def _build_telemetry(self) -> ClientTelemetry:
        from pybroker.telemetry import ClientTelemetry

        services = self._services
        return ClientTelemetry(services.env, services.metadata, services.config)

    def _build_groups(self, offsets: CoordinatorPartitions) -> GroupCoordinator:
        from pybroker.coordinators.group.group_coordinator import GroupCoordinator

        services = self._services
        groups = GroupCoordinator(services.env, services.config, services.metadata, writer=offsets, reader=offsets)
        self._close_later.append(groups.close)
        return groups

    def _build_transactions(self, state: CoordinatorPartitions) -> TransactionCoordinator:
        from pybroker.coordinators.transaction.transaction_coordinator import TransactionCoordinator

        services = self._services
        transactions = TransactionCoordinator(
            services.env,
            services.config,
            services.metadata,
            writer=state,
            reader=state,
            producer_ids=services.producer_ids,
            markers=self._markers(),
        )
        self._close_later.append(transactions.close)
        return transactions

    def _markers(self) -> MarkerWriter:
        services = self._services
        if self._peers is None:
            return services.transaction_markers
        from pybroker.replication.cluster_markers import ClusterMarkers

        return ClusterMarkers(services.metadata, services.broker_id, services.transaction_markers, self._peers)

    def _build_transaction_markers(self) -> TransactionMarkers:
        from pybroker.replication.transaction_markers import TransactionMarkers

        services = self._services
        markers = TransactionMarkers(services.env.clock, services.replicas, services.groups.end_transaction)
        self._close_later.append(markers.close)
        return markers

    def _build_transaction_verification(self) -> TransactionVerification:
        from pybroker.replication.transaction_verification import TransactionVerification

        services = self._services
        return TransactionVerification(services.env, services.config, self._transactions())

    def _transactions(self) -> TransactionPartitions:
        services = self._services
        if self._peers is None:
            return services.transactions
        from pybroker.coordinators.partitioning import partitioner
        from pybroker.replication.cluster_transactions import ClusterTransactions

        partition_of = partitioner(TRANSACTIONS, services.config, services.metadata)
        return ClusterTransactions(
            services.metadata, services.broker_id, partition_of, lambda: services.transactions, self._peers
        )
