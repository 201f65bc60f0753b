"""Following the metadata store: what any controller commits becomes this broker's image.

Owns: the newest image that the store's changes make, and reading everything anew where the store does not know all the
changes since.  Does not own the store, what keys mean (``store_codec``) or who listens (``metadata_cache``).

Invariants:
- Images are published with growing epochs, which are revisions of the store, so that two brokers with the same epoch
  have the same image.
- What a controller of this broker committed itself is published by it and not again.
- Nothing is published before ``publish``, since a broker acts on no image that does not know its registration.
- A listener that fails keeps neither the cache nor another listener from a step.

Counterpart in Kafka: ``MetadataLoader``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, ImageDelta, first_delta
from pybroker.cluster.image.metadata_cache import ImageListener, MetadataCache
from pybroker.cluster.image.run_callbacks import run_each
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import Changes, MetadataStore, Snapshot, StoreError
from pybroker.cluster_limits import STORE_RETRY_MS
from pybroker.env import Env

log = logging.getLogger(__name__)


class MetadataFollower:
    """``image`` is what the store held at its epoch, which is a revision.

    ``listeners`` are called after each step, published or not.
    """

    def __init__(self, env: Env, store: MetadataStore, cache: MetadataCache, image: ClusterImage) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._env = env
        self._store = store
        self._cache = cache
        self._image = image
        self._revision = image.epoch  # of the last changes, which need not have touched the image
        self._published = False
        self._closed = False
        self._image_listeners: list[ImageListener] = []
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._unfollow: Callable[[], None] = lambda: None

    @property
    def image(self) -> ClusterImage:
        """The newest image, published or not."""
        return self._image

    @property
    def revision(self) -> int:
        """Everything up to here is in the image."""
        return max(self._revision, self.image.epoch)

    def start(self) -> None:
        """Follow, from the image that was given on."""
        self._unfollow = self._store.follow(self._revision, self._on_changes, self._on_gap)

    def close(self) -> None:
        """Follow no more."""
        self._closed = True
        self._unfollow()
        self._waiting.clear()

    def subscribe(self, listener: ImageListener) -> Callable[[], None]:
        """Call ``listener(image, delta)`` at every change, published or not; the result ends that."""
        self._image_listeners.append(listener)
        return lambda: self._image_listeners.remove(listener) if listener in self._image_listeners else None

    def publish(self) -> None:
        """Give the cache the newest image, and every later one."""
        if not self._published:
            self._published = True
            self._cache.apply(self._image, first_delta(self._image))

    def apply(self, image: ClusterImage, delta: ImageDelta) -> None:
        """This broker's controller has committed the image."""
        if image.epoch > self.image.epoch:
            self._env.timers.call_soon(self._moved_to, image.epoch)
            self._advance(image, delta)

    def when_at(self, revision: int, then: Callable[[], None]) -> None:
        """Run ``then`` once everything up to ``revision`` is in the image; at once if it is."""
        if self.revision >= revision:
            then()
        else:
            self._waiting.append((revision, then))

    def _on_changes(self, changes: Changes) -> None:
        if changes.revision <= self.image.epoch:
            self._moved_to(changes.revision)  # this broker's own controller has applied them
            return
        builder = ImageBuilder(self.image)
        store_codec.apply_changes(builder, changes)
        if builder.has_changes:
            self._advance(*builder.build(changes.revision))
        self._moved_to(changes.revision)

    def _advance(self, image: ClusterImage, delta: ImageDelta) -> None:
        self._image = image
        # The image has moved: a listener's fault must not keep the cache, or this broker, behind.
        listeners = [*self._image_listeners, self._cache.apply] if self._published else self._image_listeners
        for failure in run_each(listeners, image, delta):
            log.error("a listener failed on the image of epoch %d", image.epoch, exc_info=failure)

    def _moved_to(self, revision: int) -> None:
        self._revision = max(self._revision, revision)
        reached = [then for wanted, then in self._waiting if wanted <= self.revision]
        self._waiting = [(wanted, then) for wanted, then in self._waiting if wanted > self.revision]
        for failure in run_each((*reached, *self.listeners)):
            log.error("a callback that waited for revision %d failed", self._revision, exc_info=failure)

    def _on_gap(self) -> None:
        log.warning("the metadata store knows not all changes since revision %d: all is read anew", self.revision)
        self._read_anew()

    def _read_anew(self) -> None:
        self._unfollow()
        if not self._closed:
            self._store.read("/", self._on_snapshot)

    def _on_snapshot(self, snapshot: Snapshot | None, error: StoreError | None) -> None:
        if self._closed:
            return
        if snapshot is None or snapshot.revision < self._revision:
            reason = error or f"it is at revision {0 if snapshot is None else snapshot.revision}"
            log.warning("cannot read the metadata store: %s; trying again", reason)
            self._env.timers.call_later(STORE_RETRY_MS, self._read_anew)
            return
        if snapshot.revision > self.image.epoch:
            builder = ImageBuilder(self.image)
            builder.become(store_codec.decode(snapshot.entries))
            if builder.has_changes:
                self._advance(*builder.build(snapshot.revision))
        self._unfollow = self._store.follow(snapshot.revision, self._on_changes, self._on_gap)
        self._moved_to(snapshot.revision)
