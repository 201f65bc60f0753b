"""Brokers that were fenced a moment ago, and are still named to clients.

Owns: which brokers those are. When a Metadata response no longer names a broker, librdkafka takes back the partitions
that it is about to give to their new leader. It asks again up to a second later. So the response that names the new
leaders names the old one's address, too, and a later one does not. A broker that stops cleanly hands its leaderships
over before it goes, so its clients have heard of the new leaders by then: it leaves the list at once.

Invariant: no broker is named for longer than ``FENCED_NAMED_MS``, nor once it has registered anew.

Counterpart in Kafka: none; there the broker is gone from the list at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.env import Cancellable, Env

# How long a broker that died is named in Metadata: clients whose connection to it broke ask again
# for a second or two.
FENCED_NAMED_MS = 2_000


class RecentlyFenced:
    """``image`` is the one behind which it follows."""

    def __init__(self, env: Env, image: ClusterImage) -> None:
        self._env = env
        self._unfenced = _unfenced(image)
        self._timers: dict[int, Cancellable] = {}

    @property
    def broker_ids(self) -> Collection[int]:
        """Those that died a moment ago."""
        return self._timers.keys()

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """See who has left."""
        if not delta.brokers_changed:
            return
        before, self._unfenced = self._unfenced, _unfenced(image)
        for broker_id in self._unfenced & self._timers.keys():
            self._forget(broker_id)
        for broker_id in sorted(before - self._unfenced):
            if (broker := image.brokers.get(broker_id)) is not None and broker.in_controlled_shutdown:
                continue
            self._timers[broker_id] = self._env.timers.call_later(FENCED_NAMED_MS, self._forget, broker_id)

    def close(self) -> None:
        """Name no broker any more."""
        for broker_id in list(self._timers):
            self._forget(broker_id)

    def _forget(self, broker_id: int) -> None:
        self._timers.pop(broker_id).cancel()


def _unfenced(image: ClusterImage) -> frozenset[int]:
    return frozenset(broker_id for broker_id, broker in image.brokers.items() if not broker.fenced)
