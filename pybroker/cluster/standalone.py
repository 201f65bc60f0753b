"""The only broker of its cluster: its own store, and a controller that is active from the start.

Owns: reading or founding the store, taking the controller key and registering the broker, all in the one transaction
of a start.  Owns no rule (``decisions/``) and no operation (``controller``).

Invariant: ``load`` writes nothing; ``register`` commits what it registers, or nothing.

Where brokers share a store it is ``cluster_member``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pybroker.cluster import store_codec
from pybroker.cluster.controller import Controller, static_min_insync_replicas, tell_missing
from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.brokers import cordon_directories, register_broker
from pybroker.cluster.features import unsupported_level
from pybroker.cluster.founding import Founding
from pybroker.cluster.image import BrokerRegistration, ClusterImage, Endpoint, ImageBuilder, first_delta
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.cluster.metadata_store import ABSENT, Entry, MetadataStore, StoreError, Transaction
from pybroker.cluster.operations import FoundReplicas, NewTopic, ProducerIdBlock, TopicCreation
from pybroker.cluster.store_codec import ControllerKey
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env

log = logging.getLogger(__name__)


class OwnChannel:
    """The way to the active controller, which is here; see ``ControllerChannel``."""

    def __init__(self, broker_id: int, controller: Controller, cache: MetadataCache) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._cache = cache

    def create_topics(self, topics: Sequence[NewTopic], done: Callable[[list[TopicCreation]], None]) -> None:
        """Create topics that this broker needs."""
        self._controller.create_topics(topics, done)

    def allocate_producer_ids(self, done: Callable[[ProducerIdBlock | None], None]) -> None:
        """The next block of producer ids for this broker; None when there is none to be had now."""
        self._controller.allocate_producer_ids(
            self._broker_id, self._broker_epoch(), lambda allocation: done(allocation.block)
        )

    def assign_replicas(self, found: FoundReplicas, done: Callable[[int], None]) -> None:
        """Tell in which log dirs this broker found replicas; ``done(error code)``."""
        self._controller.assign_replicas(
            self._broker_id, self._broker_epoch(), found, lambda assignments: done(assignments.error_code)
        )

    def _broker_epoch(self) -> int:
        return self._cache.image.brokers[self._broker_id].epoch


class Standalone:
    """Start is ``load`` (the cluster and the node are known), then ``register`` (the image is published, operations are
    served); both block.  ``found()`` gives the first contents of a new store.
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
        self.is_alone: Literal[True] = True
        self.node_id = node_id
        self.cluster_id = ""  # known from ``load`` on
        self.loaded_revision = 0  # the store's, at ``load``
        self.controller = Controller(env, config, node_id, store, cache)
        self.channel = OwnChannel(node_id, self.controller, cache)
        self._env = env
        self._config = config
        self._cache = cache
        self._store = store
        self._found = found
        self._loaded = ClusterImage()
        self._first_puts: Mapping[str, bytes] = {}
        self._retained: Mapping[str, bytes] = {}
        self._holder: Entry | None = None
        self.secret = b""  # known from ``load`` on

    def take_directory_offline(self, directory: bytes) -> None:
        """A log dir of this broker failed."""
        self.controller.take_directory_offline(directory)

    def cordon(self, directories: Sequence[bytes]) -> None:
        """These log dirs of this broker, and no others, take no new replicas."""
        broker = self._cache.image.brokers[self.node_id]
        self.controller.heartbeat(self.node_id, broker.epoch, lambda _: None, cordoned_directories=directories)

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
            self._first_puts = store_codec.encode_founding(founding)
        if store_codec.SECRET in entries:
            self.secret = store_codec.decode_secret(entries[store_codec.SECRET].value)
        else:
            self.secret = self._env.new_secret()
            self._first_puts = {**self._first_puts, store_codec.SECRET: store_codec.encode_secret(self.secret)}
        if why := unsupported_level(image.features):
            raise StoreError(why)
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
        cordoned: Sequence[bytes] = (),
    ) -> None:
        """Take the controller key, register this broker and publish the first image, in one transaction.

        ``endpoints`` are what clients of each listener connect to, ``log_dirs`` the ids of the log dirs that work,
        ``cordoned`` those of them that take no new replicas, ``found`` where replicas lie for which ``loaded_image``
        names another log dir, or none.  After an unclean shutdown the leader epochs of this broker's partitions grow.
        StoreError when the store fails.
        """
        incarnation_id = self._env.new_uuid()
        registration = BrokerRegistration(
            self.node_id, 0, incarnation_id, dict(endpoints), rack, log_dirs=tuple(log_dirs)
        )
        builder = ImageBuilder(self._loaded)
        if eligible_replicas.are_tracked(self._loaded):
            eligible_replicas.prepare_settings(builder, static_min_insync_replicas(self._config))
        tell_missing(self.node_id, register_broker(builder, registration, found, clean_shutdown=clean_shutdown))
        cordon_directories(builder, self.node_id, cordoned)
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
        self.controller.activate(version + 1, key.controller_epoch)
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
        self.controller.close()
        self._store.close()


def _next_key(holder: Entry | None, broker: BrokerRegistration) -> ControllerKey:
    controller_epoch = 0 if holder is None else store_codec.decode_controller(holder.value).controller_epoch
    return ControllerKey(broker.broker_id, broker.epoch, controller_epoch + 1)
