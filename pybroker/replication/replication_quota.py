"""Replication quotas (KIP-73): how fast the replicas are copied that an administrator has throttled.

Owns: ``SlidingRate``, the bytes per second of the last seconds. ``ReplicationQuota`` is a bound, the partitions that
are held to it, and what went by of theirs. ``ReplicationQuotas`` are a leader's and a follower's, as the settings have
them. Does not own what is left out while a quota is exceeded: of a leader's answer (``follower_fetch``), and of what a
follower asks for (``follower_throttle``).

Invariants:
- All bytes of a throttled partition count, but only replicas that are not in sync are kept waiting.
- A fetch is let through or not as a whole, so that the bound may be passed by what one fetch brings, and the next ones
  wait for that.
- Where nothing is throttled nothing is kept, and a question is a look at an empty dict.

As in Kafka, what was fetched longer ago than the window is forgotten: a bound below what one fetch may bring
(``replica.fetch.response.max.bytes``) over the window is not held.

Kafka counterpart: ReplicationQuotaManager with SimpleRate, TopicConfigHandler.parseThrottledPartitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from pybroker.config.log_config import LogConfig
from pybroker.config.resources import TOPIC

if TYPE_CHECKING:
    from pybroker.env import Clock
    from pybroker.replication.replication_ports import ReplicatingBroker

ALL_PARTITIONS: Final = range(1 << 31)


class _Sample:
    """What went by in one stretch of time, which ends at the first bytes that come ``sample_ms`` after its begin."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.size = 0


class SlidingRate:
    """The rate over the last ``samples`` stretches of ``sample_ms``, and the one that is not over yet.

    Time only goes on: no call may have an earlier time than the one before.
    """

    __slots__ = ("_sample_ms", "_samples", "_size", "_window_ms")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._sample_ms = sample_ms
        self._window_ms = samples * sample_ms
        self._samples: deque[_Sample] = deque()  # ``samples`` + 1 at most
        self._size = 0

    def record(self, size: int, now_ms: int) -> None:
        """So many bytes have gone by."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].size += size
        samples[-1].last_ms = now_ms
        self._size += size

    def exceeds(self, bound: int, now_ms: int) -> bool:
        """Whether it is above ``bound`` bytes per second; as if the first stretch were over."""
        self._forget(now_ms)
        if not self._samples:
            return False
        elapsed_ms = max(now_ms - self._samples[0].start_ms, self._sample_ms)
        return 1000 * self._size > bound * elapsed_ms

    def per_second(self, now_ms: int) -> int:
        """Bytes per second, as if the first stretch were over; 0 where nothing has gone by of late."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        return 1000 * self._size // max(now_ms - self._samples[0].start_ms, self._sample_ms)

    def ms_above(self, bound: int, now_ms: int) -> int:
        """For how long it is above ``bound`` if nothing comes, or until something is forgotten; 0 if it is not."""
        if not self.exceeds(bound, now_ms):
            return 0
        oldest = self._samples[0]
        forgotten_in = oldest.last_ms + self._window_ms - now_ms
        if bound <= 0:
            return forgotten_in
        return min(forgotten_in, oldest.start_ms - (-1000 * self._size // bound) - now_ms)

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._window_ms:
            self._size -= samples.popleft().size


class ReplicationQuota:
    """``bound()`` is in bytes per second, and may change."""

    __slots__ = ("_bound", "_clock", "_rate", "_throttled")

    def __init__(self, clock: Clock, bound: Callable[[], int], samples: int, sample_ms: int) -> None:
        self._clock = clock
        self._bound = bound
        self._rate = SlidingRate(samples, sample_ms)
        self._throttled: dict[str, Collection[int]] = {}

    def throttle(self, topic: str, partitions: Collection[int]) -> None:
        """Hold these partitions of the topic to the bound, and no others of it."""
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    @property
    def is_in_use(self) -> bool:
        """Whether any partition is throttled."""
        return bool(self._throttled)

    def throttles(self, topic: str, index: int) -> bool:
        """Whether the partition is held to the bound."""
        return bool(self._throttled) and index in self._throttled.get(topic, ())

    def record(self, size: int) -> None:
        """Bytes of throttled partitions have gone by."""
        if size:
            self._rate.record(size, self._clock.monotonic_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more of throttled partitions may go by now."""
        return self._rate.exceeds(self._bound(), self._clock.monotonic_ms())

    def wait_ms(self) -> int:
        """When to ask again whether it is exceeded; 0 while it is not."""
        return self._rate.ms_above(self._bound(), self._clock.monotonic_ms())


class ReplicationQuotas:
    """What this broker sends as a leader, and what it fetches as a follower."""

    def __init__(self, broker: ReplicatingBroker) -> None:
        self._broker_id = broker.broker_id
        config, image = broker.config, broker.image
        clock, samples = broker.env.clock, config.get_int("replication.quota.window.num")
        sample_ms = 1000 * config.get_int("replication.quota.window.size.seconds")
        self.leader = ReplicationQuota(
            clock, lambda: config.get_int("leader.replication.throttled.rate"), samples, sample_ms
        )
        self.follower = ReplicationQuota(
            clock, lambda: config.get_int("follower.replication.throttled.rate"), samples, sample_ms
        )
        for (resource_type, name), overrides in image.configs.items():
            if resource_type == TOPIC:
                self.learn(name, LogConfig.from_overrides(overrides, config))

    def learn(self, topic: str, config: LogConfig) -> None:
        """The topic has these settings now."""
        self.leader.throttle(topic, self._own(config.leader_replication_throttled_replicas))
        self.follower.throttle(topic, self._own(config.follower_replication_throttled_replicas))

    def _own(self, replicas: tuple[str, ...]) -> Collection[int]:
        """The partitions whose replicas here are meant by ``("*",)``, or by ``("partition:broker", ...)``."""
        if replicas == ("*",):
            return ALL_PARTITIONS
        pairs = (replica.split(":") for replica in replicas if replica)
        return frozenset(int(partition) for partition, broker_id in pairs if int(broker_id) == self._broker_id)
