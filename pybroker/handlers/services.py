"""The services that handlers may call: one object, filled in by ``server.py``.

Owns the names, and that a service which not every broker needs is built at its first use, so that a start waits for
none of them.  A handler takes what it needs from here and never builds a service itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pybroker.cluster.controller.auto_topic_creation import AutoTopicCreation
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.controller.token_operations import DelegationTokens
    from pybroker.cluster.failure_detection.liveness import Liveness
    from pybroker.cluster.failure_detection.recently_fenced import RecentlyFenced
    from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.cluster.membership.peers import Peers
    from pybroker.config.broker import BrokerConfig
    from pybroker.config.config_service import ConfigService
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.transaction.transaction_coordinator import TransactionCoordinator
    from pybroker.env import Env
    from pybroker.handlers.authorizer import Authorizer
    from pybroker.quotas.client_quotas import ClientQuotas
    from pybroker.replication.producer_ids import ProducerIds
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.replication.transaction_markers import TransactionMarkers
    from pybroker.replication.transaction_verification import TransactionVerification
    from pybroker.storage.manager.log_manager import LogManager
    from pybroker.telemetry import ClientTelemetry


class ControllerRoute(Protocol):
    """The way of requests to the active controller (``forwarding.Forwarder``)."""

    def handle(self, handler: Any, ctx: Any, request: Any) -> Any:
        """What a handler gives back; ``handler`` is the module of the request's own."""
        ...


class Services:
    """The broker's services; one instance per broker."""

    __slots__ = (
        "_builders",
        "authorizer",
        "auto_topic_creation",
        "broker_id",
        "cluster_id",
        "config",
        "configs",
        "controller",
        "env",
        "forwarder",
        "groups",
        "inter_broker_listener",
        "liveness",
        "logs",
        "metadata",
        "peers",
        "producer_ids",
        "quotas",
        "recently_fenced",
        "replicas",
        "suspected_brokers",
        "telemetry",
        "tokens",
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
    auto_topic_creation: AutoTopicCreation
    tokens: DelegationTokens
    metadata: MetadataCache  # the current ClusterImage: ``services.metadata.image``
    peers: Peers  # the other brokers, where there are others
    inter_broker_listener: str | None  # by which they come; None where there are none
    logs: LogManager
    producer_ids: ProducerIds
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    telemetry: ClientTelemetry
    transaction_markers: TransactionMarkers
    transaction_verification: TransactionVerification

    def __init__(self) -> None:
        self._builders: dict[str, Callable[[], Any]] = {}
        self.inter_broker_listener = None
        self.suspected_brokers: SuspectedBrokers | None = None  # None, as is the next, without other brokers
        self.liveness: Liveness | None = None
        self.recently_fenced: RecentlyFenced | None = None  # None: there are no others
        self.authorizer: Authorizer | None = (
            None  # None: everybody may do everything, and long lists are not gone through
        )
        self.quotas: ClientQuotas | None = None  # None: no client has any
        self.forwarder: ControllerRoute | None = None  # None: this broker is alone, and its controller always active

    def build_later(self, name: str, build: Callable[[], Any]) -> None:
        """``build()`` makes the service of that name when it is asked for first."""
        self._builders[name] = build

    if not TYPE_CHECKING:  # types know the names above and no others

        def __getattr__(self, name: str) -> Any:
            """A service that is not there yet."""
            if name not in self._builders:
                raise AttributeError(f"no service {name!r}")
            service = self._builders[name]()
            del self._builders[name]
            setattr(self, name, service)
            return service
