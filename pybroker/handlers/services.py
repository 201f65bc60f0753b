"""The services that handlers may call: one object, filled in by ``server.py``.

Owns nothing but the names.  A handler takes what it needs from here and never builds a service itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.cluster.controller import Controller
    from pybroker.cluster.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.service import ConfigService
    from pybroker.coordinators.group.service import GroupCoordinator
    from pybroker.coordinators.transaction.service import TransactionCoordinator
    from pybroker.env import Env
    from pybroker.replication.producer_ids import ProducerIds
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.replication.transaction_markers import TransactionMarkers
    from pybroker.replication.transaction_verification import TransactionVerification
    from pybroker.storage.log_manager import LogManager
    from pybroker.telemetry import ClientTelemetry


class Services:
    """The broker's services; one instance per broker."""

    __slots__ = (
        "broker_id",
        "cluster_id",
        "config",
        "configs",
        "controller",
        "env",
        "groups",
        "logs",
        "metadata",
        "producer_ids",
        "replicas",
        "telemetry",
        "transaction_markers",
        "transaction_verification",
        "transactions",
    )

    broker_id: int
    cluster_id: str
    env: Env
    config: BrokerConfig  # the broker's own settings, dynamic ones included
    configs: ConfigService  # describe and alter of every config resource
    controller: Controller
    metadata: MetadataCache  # the current ClusterImage: ``services.metadata.image``
    logs: LogManager
    producer_ids: ProducerIds
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    telemetry: ClientTelemetry
    transaction_markers: TransactionMarkers
    transaction_verification: TransactionVerification
