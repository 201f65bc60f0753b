"""The broker's current ``ClusterImage`` and the listeners that follow it.

Owns: which image is current, and the order in which listeners hear of a new one (the order of subscription).
Owns no decision and no I/O: the controller hands in committed images, on the loop.

Invariants: images arrive with growing epochs; listeners run on the loop, after ``image`` has moved; each of them hears
of an image, also when one before it failed.

Counterpart in Kafka: ``KRaftMetadataCache`` and the ``MetadataPublisher``s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage
from pybroker.cluster.image.listener_view import ListenerView
from pybroker.cluster.image.run_callbacks import run_each

log = logging.getLogger(__name__)

ImageListener = Callable[[ClusterImage, ImageDelta], None]


class MetadataCache:
    """Holds the current image; ``subscribe`` to hear of changes."""

    __slots__ = ("_listeners", "_views", "image")

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image if image is not None else ClusterImage()
        self._listeners: list[ImageListener] = []
        self._views: dict[str, ListenerView] = {}

    def apply(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Make ``image`` the current one, then tell every listener; then raise what the first failed one raised."""
        assert image.epoch > self.image.epoch, "images arrive with growing epochs"
        self.image = image
        self._refresh_views(delta)
        failures = run_each(self._listeners, image, delta)
        for failure in failures[1:]:
            log.error("a listener failed on the image of epoch %d", image.epoch, exc_info=failure)
        if failures:
            raise failures[0]

    def subscribe(self, listener: ImageListener) -> Callable[[], None]:
        """Call ``listener(image, delta)`` at every change from now on; returns the function that ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition's state, or None when the topic or the index does not exist."""
        return self.image.partition(topic, index)

    def leader(self, topic: str, index: int) -> int | None:
        """Broker id of the partition's leader, -1 when it has none now, None when the partition does not exist."""
        partition = self.image.partition(topic, index)
        return None if partition is None else partition.leader

    def topic_name(self, topic_id: bytes) -> str | None:
        """Name of the topic with this id, or None."""
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def view(self, listener: str) -> ListenerView:
        """What clients of ``listener`` may see."""
        view = self._views.get(listener)
        if view is None:
            view = self._views[listener] = ListenerView(self.image.brokers, listener)
        return view

    def _refresh_views(self, delta: ImageDelta) -> None:
        if delta.brokers_changed or delta.controller_changed:
            self._views.clear()
            return
        changed = [topic.topic_id for topic in delta.topics_deleted]
        changed += [before.topic_id for before, _ in delta.topics_changed]
        if changed:
            for view in self._views.values():
                view.forget_topics(changed)
