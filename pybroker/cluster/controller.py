"""The controller: every change of the cluster's metadata goes through it.

Owns: the operations, taking the controller key and registering this broker at start.  Owns no rule (``decisions/`` has
them, pure), no order (``write_queue``), no storage (``MetadataStore``), and nobody's waits (``auto_topic_creation``).

Invariants: every ``done`` runs on the loop, later than the call that brought it, exactly once, and after the image
with the change was applied; the loop never waits for the store once ``start`` has returned.

Counterpart in Kafka: ``org.apache.kafka.controller.QuorumController``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pybroker.cluster import store_codec
from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.brokers import FoundReplicas, register_broker, take_directories_offline
from pybroker.cluster.decisions.configs import alter_configs
from pybroker.cluster.decisions.elections import WantedElections, elect_leaders, refused_elections
from pybroker.cluster.decisions.features import update_features
from pybroker.cluster.decisions.topics import TopicRules, create_partitions, create_topics, delete_topics
from pybroker.cluster.founding import Founding
from pybroker.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    ImageBuilder,
    first_delta,
)
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.cluster.metadata_store import ABSENT, Entry, MetadataStore, StoreError, Transaction
from pybroker.cluster.operations import (
    FeatureUpdate,
    LeaderElections,
    MorePartitions,
    NamedResult,
    NewTopic,
    ProducerIdBlock,
    TopicCreation,
    TopicDeletion,
)
from pybroker.cluster.store_codec import ControllerKey
from pybroker.cluster.write_queue import WriteOperation, WriteQueue
from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import validate_topic_configs
from pybroker.config.resources import MIN_INSYNC_REPLICAS, ConfigChange
from pybroker.env import Env
from pybroker_protocol.uuids import ZERO_UUID, uuid_text

REQUEST_TIMEOUT_MS: Final = 30_000  # request.timeout.ms of Kafka's clients
PRODUCER_ID_BLOCK_SIZE: Final = 1_000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
PRODUCER_ID_MAX: Final = 2**63 - 1

log = logging.getLogger(__name__)


class Controller:
    """The operations on the cluster; see the module's docstring for when ``done`` runs.

    Start is ``load`` (the cluster and the node are known), then ``register`` (the image is published, operations
    are served); both block.  ``found()`` gives the first contents of a new store.
    """

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        cache: MetadataCache,
        store: MetadataStore,
        node_id: int,
        found: Callable[[], Founding],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = ""  # known from ``load`` on
        self.loaded_revision = 0  # the store's, at ``load``
        self._env = env
        self._config = config
        self._cache = cache
        self._store = store
        self._found = found
        self._queue = WriteQueue(env, store, cache)
        self._rules = TopicRules(config, validate_topic_configs, env.new_uuid, env.random)
        self._loaded = ClusterImage()
        self._first_puts: Mapping[str, bytes] = {}
        self._retained: Mapping[str, bytes] = {}
        self._holder: Entry | None = None

    # ------------------------------------------------------------------ start and end

    def load(self) -> None:
        """Open and read the store, or find the cluster that a new one will hold; nothing is written yet.

        StoreError when the store cannot be read or does not make sense.
        """
        self._store.open()
        self.loaded_revision = self._store.revision()
        entries = self._store.load("/")
        self._holder = entries.get(store_codec.CONTROLLER)
        if store_codec.CLUSTER in entries:
            self._loaded = image = store_codec.decode(entries)
            self._retained = store_codec.retained(entries)
        else:
            founding = self._found()
            self._loaded = image = founding.image
            first = store_codec.encode(ClusterImage(), image, first_delta(image))
            self._first_puts = {**store_codec.encode_retained(founding.retained_records), **first.puts}
        self.cluster_id = image.cluster_id

    @property
    def loaded_image(self) -> ClusterImage:
        """What ``load`` found; the cache has it, and later ones, once ``register`` has run."""
        return self._loaded

    def register(
        self,
        endpoints: Mapping[str, Endpoint],
        rack: str | None,
        log_dirs: Sequence[bytes],
        found: FoundReplicas = MappingProxyType({}),
        *,
        clean_shutdown: bool = True,
    ) -> None:
        """Take the controller key, register this broker and publish the first image, in one transaction.

        ``endpoints`` are what clients of each listener connect to, ``log_dirs`` the ids of the log dirs that
        work, ``found`` where replicas lie for which ``loaded_image`` names another log dir, or none.  After an unclean
        shutdown the leader epochs of this broker's partitions grow.  StoreError when the store fails.
        """
        incarnation_id = self._env.new_uuid()
        registration = BrokerRegistration(
            self.node_id, 0, incarnation_id, dict(endpoints), rack, log_dirs=tuple(log_dirs)
        )
        builder = ImageBuilder(self._loaded)
        if eligible_replicas.are_tracked(self._loaded):
            eligible_replicas.prepare_settings(builder, self._static_min_insync_replicas())
        missing = register_broker(builder, registration, found, clean_shutdown=clean_shutdown)
        for directory, count in missing.items():
            log.error("no log dir here has the id %s: its %d partitions stay offline", uuid_text(directory), count)
        builder.set_controller(self.node_id)
        applied = self._apply_retained(builder)
        puts, deletes = store_codec.encode(self._loaded, builder.view(), builder.delta())
        key = _next_key(self._holder, builder.view().brokers[self.node_id])
        puts[store_codec.CONTROLLER] = store_codec.encode_controller(key)
        version = ABSENT if self._holder is None else self._holder.version
        checks = {store_codec.CONTROLLER: version}
        result = self._store.commit_at_start(Transaction(checks, {**self._first_puts, **puts}, deletes + applied))
        if result.revision is None:
            raise result.error or StoreError("another broker has just become the controller in this metadata store")
        self._queue.start(version + 1)
        image, _ = builder.build(result.revision)
        self._loaded = ClusterImage()  # the cache keeps the image from here on
        self._first_puts = self._retained = {}
        self._cache.apply(image, first_delta(image))

    def _apply_retained(self, builder: ImageBuilder) -> tuple[str, ...]:
        """Take up what a takeover from Kafka kept and this version serves; returns the keys that are done with."""
        if not self._retained:
            return ()
        from pybroker.cluster.kraft_takeover import apply_retained

        return apply_retained(builder, self._retained)

    def close(self) -> None:
        """Finish the transaction in flight and end the store's thread; what still waits is dropped.  Blocks."""
        self._queue.close()
        self._store.close()

    def take_directory_offline(self, directory: bytes) -> None:
        """A log dir of this broker failed: what lies in it loses its leader until a start finds the log dir again."""

        def decide(builder: ImageBuilder) -> None:
            take_directories_offline(builder, self.node_id, (directory,))

        self._submit(decide, lambda code, message: None, lambda _: None)

    # ------------------------------------------------------------------ topics

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[TopicCreation]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Create the valid ones; one answer per name, in the order asked."""

        def refuse(code: int, message: str | None) -> list[TopicCreation]:
            return [TopicCreation(name, code, message) for name in dict.fromkeys(topic.name for topic in topics)]

        def decide(builder: ImageBuilder) -> Generator[None, None, list[TopicCreation]]:
            return create_topics(builder, topics, self._rules)

        self._submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_topics(
        self,
        topics: Sequence[str | bytes],
        done: Callable[[list[TopicDeletion]], None],
        *,
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

        self._submit(lambda builder: delete_topics(builder, topics), refuse, done, timeout_ms=timeout_ms)

    def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Grow topics; one answer per name."""
        refuse = _refuse_named([topic.name for topic in topics])

        def decide(builder: ImageBuilder) -> Generator[None, None, list[NamedResult]]:
            return create_partitions(builder, topics, self._env.random)

        self._submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        election_type: int,
        wanted: WantedElections,
        done: Callable[[LeaderElections], None],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Elect leaders of the wanted partitions; one answer for each, in the order asked."""

        def refuse(code: int, message: str | None) -> LeaderElections:
            return refused_elections(wanted, code, message)

        def decide(builder: ImageBuilder) -> LeaderElections:
            return elect_leaders(builder, election_type, wanted)

        self._submit(decide, refuse, done, timeout_ms=timeout_ms)

    # ------------------------------------------------------------------ configs, features, producer ids

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

        self._submit(lambda builder: alter_configs(builder, changes), refuse, done, validate_only=validate_only)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Finalize feature levels: all of them or, when one is refused, none; then that refusal is the only answer."""
        refuse = _refuse_named([update.name for update in updates])

        def decide(builder: ImageBuilder) -> list[NamedResult]:
            return update_features(builder, updates, self._static_min_insync_replicas())

        self._submit(decide, refuse, done, validate_only=validate_only, timeout_ms=timeout_ms)

    def _static_min_insync_replicas(self) -> str:
        """As the operator, or Kafka's default, has it."""
        return self._config.static.get(MIN_INSYNC_REPLICAS, "1")

    def allocate_producer_ids(self, done: Callable[[ProducerIdBlock | None], None]) -> None:
        """Give this broker the next block of producer ids; None when the store failed or the ids are used up."""

        def decide(builder: ImageBuilder) -> ProducerIdBlock | None:
            first = builder.view().next_producer_id
            if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
                return None
            builder.set_next_producer_id(first + PRODUCER_ID_BLOCK_SIZE)
            return ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE)

        self._submit(decide, lambda code, message: None, done)

    # ------------------------------------------------------------------ the queue

    def _submit(
        self,
        decide: Callable[[ImageBuilder], Any],
        refuse: Callable[[int, str | None], Any],
        done: Callable[[Any], None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Queue an operation; with ``validate_only`` it is decided on a copy, and forgotten."""
        deadline_ms = None if timeout_ms is None else self._env.clock.monotonic_ms() + timeout_ms
        if validate_only:
            self._queue.submit(WriteOperation(lambda b: decide(ImageBuilder(b.view())), refuse, done, deadline_ms))
        else:
            self._queue.submit(WriteOperation(decide, refuse, done, deadline_ms))


def _refuse_named(names: Sequence[str]) -> Callable[[int, str | None], list[NamedResult]]:
    return lambda code, message: [NamedResult(name, code, message) for name in dict.fromkeys(names)]


def _next_key(holder: Entry | None, broker: BrokerRegistration) -> ControllerKey:
    controller_epoch = 0 if holder is None else store_codec.decode_controller(holder.value).controller_epoch
    return ControllerKey(broker.broker_id, broker.epoch, controller_epoch + 1)
