"""Services that a broker has no use for before a client asks, or before their topic exists: built at their first use.

Owns: which part each of them is given.  The rest of that is ``server``'s; ``handlers/services`` has one built when it
is asked for.  Imports of theirs stand where they are built, as the start-up budget asks.

Kafka counterpart: the wiring in BrokerServer.startup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.coordinator_table import COORDINATORS, GROUPS, TRANSACTIONS
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.resources import BROKER
from pybroker.handlers.services import Services
from pybroker.replication.coordinator_partitions import CoordinatorPartitions

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.cluster.links.source_port import Connect
    from pybroker.cluster.membership.controller_channel import ControllerChannel
    from pybroker.cluster.membership.peers import Peers
    from pybroker.coordinators.group.group_coordinator import GroupCoordinator
    from pybroker.coordinators.settlements import Settlements
    from pybroker.coordinators.transaction.transaction_coordinator import TransactionCoordinator
    from pybroker.coordinators.transaction.transaction_ports import MarkerWriter
    from pybroker.replication.mirrors import Mirrors, Report
    from pybroker.replication.replication_ports import TransactionPartitions
    from pybroker.replication.transaction_markers import TransactionMarkers
    from pybroker.replication.transaction_verification import TransactionVerification
    from pybroker.telemetry import ClientTelemetry


# The end of the name under which a broker shows how far it is with a link.
OF_PROGRESS: Final = ".partitions"
# Of one value; a partition has a tenth of that at most.
_LISTED_CHARS_MAX: Final = 30_000


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


class LazyLinks:
    """The parts of cluster links: built when there is a link, or a topic that one mirrors.

    ``connect`` makes the way to a link's source, ``report`` has the controller hear what was found there.
    """

    def __init__(
        self, services: Services, connect: Connect, report: Report, close_later: list[Callable[[], None]]
    ) -> None:
        self._services = services
        self._connect = connect
        self._report = report
        self._close_later = close_later
        self._has_keeper = self._has_mirrors = False

    def follow(self) -> None:
        """Look at the image that there is, and at those that come."""
        metadata = self._services.metadata
        self._close_later.append(metadata.subscribe(self._on_image))
        self._look(metadata.image)

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.mirrors_changed or (BROKER, "") in delta.configs_changed:
            self._look(image)

    def _look(self, image: ClusterImage) -> None:
        config = self._services.config
        if not self._has_mirrors and image.mirrors:
            self._has_mirrors = True
            self._mirror()
            self._carry()
        names = [name for name in (*config.static, *config.cluster_default) if name.startswith(LINKS_PREFIX)]
        if not self._has_keeper and (names or image.links):
            self._has_keeper = True
            self._keep()

    def _mirror(self) -> None:
        """Fetch what this broker leads, and have no client write to it."""
        from pybroker.cluster.image.link_states import LOWERED, own_producer_ids
        from pybroker.cluster.links.mirror_reasons import reason_of
        from pybroker.coordinators.offsets_past_the_end import OffsetsPastTheEnd
        from pybroker.handlers.read_only_topics import ReadOnlyTopics
        from pybroker.replication.mirrors import Mirrors
        from pybroker.replication.partition_ends import PartitionEnds

        services = self._services
        services.producer_ids.begin_at(own_producer_ids(services.cluster_id))
        services.authorizer = ReadOnlyTopics(services.metadata, services.authorizer)
        mirrors = Mirrors(services.replicas, services.metadata, self._connect, self._report)
        self._close_later.append(mirrors.close)
        written_ends = partial(PartitionEnds(services.replicas).ask, written=True)
        past = OffsetsPastTheEnd(
            services.env, services.metadata, lambda: services.groups, written_ends, self._settlements(LOWERED)
        )
        self._close_later.append(past.close)
        services.configs.show = partial(_progress, mirrors)
        services.configs.reason_of_mirror = lambda name, mirror: reason_of(
            services.metadata.image, services.config, name, mirror
        )

    def _settlements(self, kind: int) -> Settlements:
        from pybroker.coordinators.settlements import Settlements

        services = self._services
        return Settlements(services.env, services.metadata, services.broker_id, self._report, kind)

    def _keep(self) -> None:
        """Look at sources while this broker's controller is active, and leave topics to links that are to make them."""
        from pybroker.cluster.links.awaited_topics import AwaitedTopics
        from pybroker.cluster.links.link_keeper import LinkKeeper

        services = self._services
        awaited = AwaitedTopics(services.env, services.config, services.metadata)
        services.auto_topic_creation.link_of = awaited.link_of
        self._close_later.append(awaited.close)
        keeper = LinkKeeper(services.env, services.config, services.controller, services.metadata, self._connect)
        self._close_later.append(keeper.close)

    def _carry(self) -> None:
        """Take over what groups commit at sources."""
        from pybroker.cluster.image.link_states import CARRIED
        from pybroker.coordinators.carried_offsets import CarriedOffsets
        from pybroker.coordinators.partitioning import partitioner
        from pybroker.replication.partition_ends import PartitionEnds

        services = self._services
        metadata = services.metadata
        partition_of = partitioner(GROUPS, services.config, metadata)

        def coordinates(group_id: str) -> bool:
            if GROUPS.topic not in metadata.image.topics_by_name:
                services.auto_topic_creation.ensure(GROUPS.topic, lambda _: None)
                return False
            return metadata.leader(GROUPS.topic, partition_of(group_id)) == services.broker_id

        ends = PartitionEnds(services.replicas)
        carried = CarriedOffsets(
            services.env,
            services.config,
            metadata,
            self._connect,
            lambda: services.groups,
            coordinates,
            ends.ask,
            ends.ask_before,
            self._settlements(CARRIED),
        )
        self._close_later.append(carried.close)


def _progress(mirrors: Mirrors, names: Collection[str]) -> dict[str, str]:
    """How far this broker is with each link that is asked for: ``pybroker.links.<link>.partitions``.

    It is shown as several values, each a list in JSON, because a single one has 32 KiB at most: that name with a dot
    and a number behind it.
    """
    shown = {}
    for name in names:
        link = name.removeprefix(LINKS_PREFIX).removesuffix(OF_PROGRESS)
        if name == f"{LINKS_PREFIX}{link}{OF_PROGRESS}":
            for number, text in enumerate(_lists(mirrors.progress(link))):
                shown[f"{name}.{number}"] = text
    return shown


def _lists(values: Sequence[object]) -> Iterator[str]:
    """The values as JSON lists, none of them too long for a reply."""
    parts: list[str] = []
    size = 0
    for value in values:
        part = json.dumps(value)
        if parts and size + len(part) > _LISTED_CHARS_MAX:
            yield f"[{','.join(parts)}]"
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield f"[{','.join(parts)}]"
