"""The controller: every change of the cluster's metadata goes through it.

Owns: the operations, and whether this broker's controller is the active one.  Owns no rule (``decisions/`` has them,
pure), no order (``write_queue``), no storage (``MetadataStore``), no wait of a request (``auto_topic_creation``), nor
how it becomes active (``standalone``, ``controller_election``).

Invariants:
- Every ``done`` runs on the loop, later than its call, exactly once, and after the image with the change was applied.
- The loop never waits for the store once the broker serves.

Counterpart in Kafka: ``org.apache.kafka.controller.QuorumController``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from pybroker.cluster.controller.write_queue import Images, WriteOperation, WriteQueue
from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.broker_changes import (
    assign_replicas,
    begin_controlled_shutdown,
    cordon_directories,
    fence_brokers,
    leads_anything,
    note_full_directories,
    register_broker,
    take_directories_offline,
    unregister_broker,
)
from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.decisions.elections import balance_leaders, elect_leaders, elect_uncleanly
from pybroker.cluster.decisions.feature_changes import update_features
from pybroker.cluster.decisions.operations import (
    Allows,
    Assignments,
    FeatureUpdate,
    FoundReplicas,
    Heartbeat,
    InSyncChange,
    InSyncResults,
    MorePartitions,
    NamedResult,
    NewTopic,
    OngoingReassignment,
    Outcome,
    PartitionResults,
    ProducerIdAllocation,
    ProducerIdBlock,
    QuotaAlteration,
    QuotaResult,
    Registration,
    TopicCreation,
    TopicDeletion,
    WantedElections,
    WantedPartitions,
    WantedReassignments,
    anything,
    refused_partitions,
)
from pybroker.cluster.decisions.partition_changes import alter_partitions
from pybroker.cluster.decisions.quota_changes import alter_client_quotas
from pybroker.cluster.decisions.reassignments import (
    ReassignmentRules,
    alter_reassignments,
    ongoing_reassignments,
)
from pybroker.cluster.decisions.topic_changes import TopicRules, create_partitions, create_topics, delete_topics
from pybroker.cluster.image.cluster_image import BrokerRegistration, ImageBuilder
from pybroker.cluster.image.run_callbacks import run_each
from pybroker.cluster.store.metadata_store import MetadataStore
from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import validate_topic_configs
from pybroker.config.resources import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION, ConfigChange
from pybroker.env import Env
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import ZERO_UUID, uuid_text

REQUEST_TIMEOUT_MS: Final = 30_000  # request.timeout.ms of Kafka's clients
PRODUCER_ID_BLOCK_SIZE: Final = 1_000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
PRODUCER_ID_MAX: Final = 2**63 - 1

log = logging.getLogger(__name__)


class Controller:
    """The operations on the cluster; ``done`` runs when the module says.

    While it is not active it refuses them with NOT_CONTROLLER.  ``images`` has the newest image and takes those that
    are committed.
    """

    def __init__(self, env: Env, config: BrokerConfig, node_id: int, store: MetadataStore, images: Images) -> None:
        self.node_id = node_id
        self._env = env
        self._config = config
        self._store = store
        self._images = images
        self._queue: WriteQueue | None = None  # while it is active
        self.epoch = 0  # that of the controller key in its present or last activity
        self.activity_listeners: list[Callable[[bool], None]] = []  # called with whether it is active from now on
        self.is_live: Callable[[int, bytes], bool] = lambda broker_id, incarnation_id: True  # as far as is known
        self.on_contact: Callable[[int], None] = lambda broker_id: None  # a broker's heartbeat or registration came
        self.topic_rules = TopicRules(config, validate_topic_configs, env.new_uuid, env.random)

    # ------------------------------------------------------------------ activity

    @property
    def is_active(self) -> bool:
        """Whether this broker's controller is the one that decides."""
        return self._queue is not None

    def activate(self, key_version: int, epoch: int, on_deposed: Callable[[], None] | None = None) -> None:
        """Decide from now on, under this version of the controller key, which this broker holds, and its epoch.

        ``on_deposed()`` is called when a transaction did not come about for the key's sake, or it is not known whether
        it did: the election deactivates this controller, and finds out.  Without it the store's failures are the
        operation's alone.
        """
        self.epoch = epoch
        self._queue = WriteQueue(self._env, self._store, self._images, key_version, on_deposed)
        self._tell_activity(True)

    def deactivate(self) -> None:
        """Decide nothing more; what waits is refused."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.stop()
            self._tell_activity(False)

    def _tell_activity(self, is_active: bool) -> None:
        for failure in run_each(self.activity_listeners, is_active):
            log.error("a listener of whether the controller is active failed", exc_info=failure)

    def close(self) -> None:
        """What still waits is dropped; a transaction in flight still ends, and answers."""
        if self._queue is not None:
            self._queue.close()

    # ------------------------------------------------------------------ brokers

    def register_broker(
        self,
        registration: BrokerRegistration,
        cluster_id: str,
        previous_broker_epoch: int,
        done: Callable[[Registration], None],
    ) -> None:
        """Register a broker, and give it its partitions back.

        ``previous_broker_epoch`` is what the broker had when it last stopped cleanly, -1 if it did not.  Where it found
        replicas it tells by ``assign_replicas``.
        """

        def decide(builder: ImageBuilder) -> Generator[None, None, Registration]:
            image = builder.view()
            if cluster_id != image.cluster_id:
                return Registration(ErrorCode.INCONSISTENT_CLUSTER_ID)
            if not self.is_live(registration.broker_id, registration.incarnation_id):
                # Its key is not seen yet, or it is another process's: to register it would be to fence it at once.
                return Registration(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            before = image.brokers.get(registration.broker_id)
            if eligible_replicas.are_tracked(image):
                eligible_replicas.prepare_settings(builder, static_min_insync_replicas(self._config))
            # Of one that was unregistered nobody knows how it stopped.  A process that asks again has its log whole.
            clean = before is not None and (
                before.epoch == previous_broker_epoch or before.incarnation_id == registration.incarnation_id
            )
            missing = register_broker(builder, registration, {}, clean_shutdown=clean)
            tell_missing(registration.broker_id, missing)
            yield from self._elect_uncleanly(builder)
            self.on_contact(registration.broker_id)
            return Registration(0, builder.view().brokers[registration.broker_id].epoch)

        self.submit(decide, lambda code, message: Registration(code), done, timeout_ms=REQUEST_TIMEOUT_MS)

    def fence_brokers(self, dead: Mapping[int, int], done: Callable[[list[int]], None]) -> None:
        """Brokers have died, or are silent: others lead in their place.  Tells who was not fenced before.

        ``dead`` has the epochs under which they died: who has registered anew since lives.
        """

        def decide(builder: ImageBuilder) -> Generator[None, None, list[int]]:
            fenced = yield from fence_brokers(builder, dead)
            yield from self._elect_uncleanly(builder)
            return fenced

        self.submit(decide, lambda code, message: [], done)

    def unregister_broker(self, broker_id: int, done: Callable[[Outcome], None]) -> None:
        """Forget a broker that is gone for good."""

        def decide(builder: ImageBuilder) -> Generator[None, None, Outcome]:
            return unregister_broker(builder, broker_id)

        self.submit(decide, Outcome, done, timeout_ms=REQUEST_TIMEOUT_MS)

    def heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        done: Callable[[Heartbeat], None],
        *,
        offline_directories: Collection[bytes] = (),
        full_directories: Collection[bytes] | None = None,
        cordoned_directories: Collection[bytes] | None = None,
        wants_shutdown: bool = False,
    ) -> None:
        """A broker lives, tells of its log dirs (failed; all without space; all cordoned; None says nothing), or wants
        to stop and be rid of its leaderships first.  A heartbeat that tells nothing does not wait for the store."""
        known = self._images.image.brokers.get(broker_id)
        if self.is_active and known is not None and known.epoch == broker_epoch:
            self.on_contact(broker_id)
            says_nothing = not offline_directories and full_directories is None and cordoned_directories is None
            if says_nothing and not wants_shutdown:
                self._env.timers.call_soon(done, Heartbeat(0, known.fenced))
                return

        def decide(builder: ImageBuilder, broker: BrokerRegistration) -> Generator[None, None, Heartbeat]:
            if cordoned_directories is not None:
                cordon_directories(builder, broker_id, cordoned_directories)
            if offline_directories:
                take_directories_offline(builder, broker_id, offline_directories)
            if full_directories is not None:
                yield from note_full_directories(builder, broker_id, full_directories)
            if wants_shutdown and not broker.in_controlled_shutdown:
                yield from begin_controlled_shutdown(builder, broker_id)
            if offline_directories or wants_shutdown:
                yield from self._elect_uncleanly(builder)
            should_shut_down = wants_shutdown and not leads_anything(builder.view(), broker_id)
            return Heartbeat(0, broker.fenced, should_shut_down)

        self.submit_of(broker_id, broker_epoch, decide, Heartbeat, done)

    def assign_replicas(
        self, broker_id: int, broker_epoch: int, found: FoundReplicas, done: Callable[[Assignments], None]
    ) -> None:
        """A broker tells in which log dirs it found replicas; an error each for those that are not its own."""

        def decide(builder: ImageBuilder, broker: BrokerRegistration) -> Generator[None, None, Assignments]:
            errors = yield from assign_replicas(builder, broker_id, found)
            yield from self._elect_uncleanly(builder)
            return Assignments(errors)

        self.submit_of(broker_id, broker_epoch, decide, lambda code: Assignments({}, code), done)

    def alter_partitions(
        self,
        broker_id: int,
        broker_epoch: int,
        changes: Sequence[InSyncChange],
        done: Callable[[InSyncResults], None],
    ) -> None:
        """Give a leader the in-sync replicas that it asks for; one answer each, in the order asked."""

        def decide(builder: ImageBuilder, broker: BrokerRegistration) -> Generator[None, None, InSyncResults]:
            if broker.fenced:
                return InSyncResults([], ErrorCode.STALE_BROKER_EPOCH)
            results = yield from alter_partitions(builder, broker_id, changes)
            return InSyncResults(results)

        self.submit_of(broker_id, broker_epoch, decide, lambda code: InSyncResults([], code), done)

    # ------------------------------------------------------------------ topics

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[TopicCreation]], None],
        *,
        validate_only: bool = False,
        allows: Allows = anything,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Create the valid ones; one answer per name, in the order asked."""

        def refuse(code: int, message: str | None) -> list[TopicCreation]:
            return [TopicCreation(name, code, message) for name in dict.fromkeys(topic.name for topic in topics)]

        def decide(builder: ImageBuilder) -> Generator[None, None, list[TopicCreation]]:
            return create_topics(builder, topics, self.topic_rules, allows)

        self.submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_topics(
        self,
        topics: Sequence[str | bytes],
        done: Callable[[list[TopicDeletion]], None],
        *,
        allows: Allows = anything,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Delete topics by name (str) or by id (bytes); one answer per name or id."""

        def refuse(code: int, message: str | None) -> list[TopicDeletion]:
            return [
                TopicDeletion(topic, ZERO_UUID, code, message)
                if isinstance(topic, str)
                else TopicDeletion(None, topic, code, message)
                for topic in dict.fromkeys(topics)
            ]

        self.submit(lambda builder: delete_topics(builder, topics, allows), refuse, done, timeout_ms=timeout_ms)

    def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        allows: Allows = anything,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Grow topics; one answer per name."""
        refuse = refuse_named([topic.name for topic in topics])

        def decide(builder: ImageBuilder) -> Generator[None, None, list[NamedResult]]:
            return create_partitions(builder, topics, self._env.random, allows)

        self.submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        election_type: int,
        wanted: WantedElections,
        done: Callable[[PartitionResults], None],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Elect leaders of the wanted partitions; one answer for each, in the order asked."""

        def refuse(code: int, message: str | None) -> PartitionResults:
            return refused_partitions(wanted or (), code, message)

        def decide(builder: ImageBuilder) -> PartitionResults:
            return elect_leaders(builder, election_type, wanted)

        self.submit(decide, refuse, done, timeout_ms=timeout_ms)

    def balance_leaders(self, elections_max: int, done: Callable[[int], None]) -> None:
        """Give leadership back to preferred replicas, in so many partitions at most; tells in how many."""

        def decide(builder: ImageBuilder) -> Generator[None, None, int]:
            return balance_leaders(builder, elections_max)

        self.submit(decide, lambda code, message: 0, done)

    def alter_partition_reassignments(
        self,
        wanted: WantedReassignments,
        done: Callable[[PartitionResults], None],
        *,
        may_change_factor: bool = True,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Begin, change or take back the moving of partitions; one answer for each, in the order asked."""
        named = [(name, [reassignment.partition for reassignment in partitions]) for name, partitions in wanted]

        def refuse(code: int, message: str | None) -> PartitionResults:
            return refused_partitions(named, code, message)

        def decide(builder: ImageBuilder) -> Generator[None, None, PartitionResults]:
            rules = ReassignmentRules(self._config.get_bool(UNCLEAN_LEADER_ELECTION), may_change_factor)
            return alter_reassignments(builder, wanted, rules)

        self.submit(decide, refuse, done, timeout_ms=timeout_ms)

    def ongoing_reassignments(self, wanted: WantedPartitions | None) -> Iterator[tuple[str, list[OngoingReassignment]]]:
        """What is being moved, of the partitions wanted (None: of all), a topic at each step; also while not active."""
        return ongoing_reassignments(self._images.image, wanted)

    # ------------------------------------------------------------------ configs, quotas, features, producer ids
    def alter_configs(
        self,
        changes: Sequence[ConfigChange],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Commit overrides; one answer per change, in the order asked (a topic may be gone meanwhile)."""

        def refuse(code: int, message: str | None) -> list[NamedResult]:
            return [NamedResult(change.resource_name, code, message) for change in changes]

        def decide(builder: ImageBuilder) -> Generator[None, None, list[NamedResult]]:
            results = alter_configs(builder, changes)
            if any(UNCLEAN_LEADER_ELECTION in change.updates for change in changes):
                yield from self._elect_uncleanly(builder)
            return results

        self.submit(decide, refuse, done, validate_only=validate_only)

    def alter_client_quotas(
        self,
        alterations: Sequence[QuotaAlteration],
        done: Callable[[list[QuotaResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set and remove quotas; one answer per entity."""

        def refuse(code: int, message: str | None) -> list[QuotaResult]:
            return [QuotaResult(entity, code, message) for entity in {each.entity: 0 for each in alterations}]

        self.submit(lambda b: alter_client_quotas(b, alterations), refuse, done, validate_only=validate_only)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Finalize feature levels: all of them or, when one is refused, none; then that refusal is the only answer."""
        refuse = refuse_named([update.name for update in updates])

        def decide(builder: ImageBuilder) -> list[NamedResult]:
            return update_features(builder, updates, static_min_insync_replicas(self._config))

        self.submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def _elect_uncleanly(self, builder: ImageBuilder) -> Generator[None, None, None]:
        return elect_uncleanly(builder, self._config.get_bool(UNCLEAN_LEADER_ELECTION))

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int, done: Callable[[ProducerIdAllocation], None]
    ) -> None:
        """Give a broker the next block of producer ids; UNKNOWN_SERVER_ERROR when all are used, as in Kafka."""

        def decide(builder: ImageBuilder, broker: BrokerRegistration) -> ProducerIdAllocation:
            first = builder.view().next_producer_id
            if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
                return ProducerIdAllocation(ErrorCode.UNKNOWN_SERVER_ERROR)
            builder.set_next_producer_id(first + PRODUCER_ID_BLOCK_SIZE)
            return ProducerIdAllocation(0, ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE))

        self.submit_of(broker_id, broker_epoch, decide, ProducerIdAllocation, done, timeout_ms=None)

    # ------------------------------------------------------------------ the queue

    def submit_of(
        self,
        broker_id: int,
        broker_epoch: int,
        decide: Callable[[ImageBuilder, BrokerRegistration], Any],
        refuse: Callable[[int], Any],
        done: Callable[[Any], None],
        *,
        timeout_ms: int | None = REQUEST_TIMEOUT_MS,
    ) -> None:
        """``submit`` of what a broker asks for itself: STALE_BROKER_EPOCH unless it is registered under that epoch."""

        def decide_for_broker(builder: ImageBuilder) -> Any:
            broker = builder.view().brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch:
                return refuse(ErrorCode.STALE_BROKER_EPOCH)
            return decide(builder, broker)

        self.submit(decide_for_broker, lambda code, message: refuse(code), done, timeout_ms=timeout_ms)

    def submit(
        self,
        decide: Callable[[ImageBuilder], Any],
        refuse: Callable[[int, str | None], Any],
        done: Callable[[Any], None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Queue an operation (``WriteOperation``); with ``validate_only`` it is decided on a copy, and forgotten."""
        queue = self._queue
        if queue is None:
            self._env.timers.call_soon(lambda: done(refuse(ErrorCode.NOT_CONTROLLER, None)))
            return
        deadline_ms = None if timeout_ms is None else self._env.clock.monotonic_ms() + timeout_ms
        if validate_only:
            queue.submit(WriteOperation(lambda b: decide(ImageBuilder(b.view())), refuse, done, deadline_ms))
        else:
            queue.submit(WriteOperation(decide, refuse, done, deadline_ms))


def refuse_named(names: Sequence[str]) -> Callable[[int, str | None], list[NamedResult]]:
    """A ``WriteOperation``'s ``refuse`` that answers for each name once."""
    return lambda code, message: [NamedResult(name, code, message) for name in dict.fromkeys(names)]


def static_min_insync_replicas(config: BrokerConfig) -> str:
    """As the operator, or Kafka's default, has it."""
    return config.static.get(MIN_INSYNC_REPLICAS, "1")


def tell_missing(broker_id: int, missing: Mapping[bytes, int]) -> None:
    """Partitions of a broker lie in log dirs that it did not register."""
    for directory, count in missing.items():
        lost = uuid_text(directory)
        line = "no log dir of broker %d has the id %s: of %d replicas those that no other broker leads stay offline"
        log.error(line, broker_id, lost, count)
