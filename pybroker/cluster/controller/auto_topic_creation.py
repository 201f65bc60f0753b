"""Topics that come into being because they are needed: by Metadata, or as one of Kafka's own.

Owns: which topics are being created at need, and who waits for them.  Owns no rule: ``coordinator_table`` says
how Kafka's own are created, and the controller creates them.

Invariants:
- A name is created once at a time, however many need it.
- Names without a waiting request can be asked for without end, and have a bound.
- A name that is a link's to make is left to it: a topic that takes writes would keep the link from making its own.
- Names count for the quota of the client that asks first, and are not created while that is used up.
- Every ``done`` runs on the loop, later than the call that brought it, exactly once, and when the image has the topic.

Counterpart in Kafka: ``DefaultAutoTopicCreationManager``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pybroker.cluster.decisions.operations import Allows, NewTopic, TopicCreation, anything
from pybroker.cluster.decisions.topic_changes import PARTITIONS_PER_REQUEST_MAX, partition_count
from pybroker.cluster.image.coordinator_table import COORDINATOR_OF_TOPIC, CoordinatorType
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.image.run_callbacks import run_each
from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.env import Env
from pybroker.rate_limited_log import RateLimitedLog
from pybroker_protocol.errors import ErrorCode

# Topics that Metadata requests may have begun to create and that are not there yet.  A client that needs others asks
# again, and one that asks for names without end does not fill the memory.  As many as one request may create.
AUTO_CREATIONS_IN_FLIGHT_MAX = PARTITIONS_PER_REQUEST_MAX

# Names whose refusal is logged, and is not logged again; beyond, it begins anew.
REFUSED_CREATIONS_REMEMBERED = 1_000

# Topics whose creation is begun per turn of the loop: each takes some 20 µs, so that a turn stays at a millisecond.
AUTO_CREATIONS_PER_TURN = 50

TopicDone = Callable[[int], None]

log = logging.getLogger(__name__)


class CreateTopics(Protocol):
    """``Controller.create_topics``."""

    def __call__(self, topics: Sequence[NewTopic], done: Callable[[list[TopicCreation]], None]) -> None: ...


class AutoTopicCreation:
    """Creates what is missing, each name once at a time."""

    def __init__(self, env: Env, config: BrokerConfig, cache: MetadataCache, create_topics: CreateTopics) -> None:
        self._env = env
        self._config = config
        self._cache = cache
        self._create_topics = create_topics
        self._in_flight: dict[str, list[TopicDone]] = {}
        self._not_begun: deque[NewTopic] = deque()
        self._logged_refusals: set[str] = set()
        self._limited_log = RateLimitedLog(log, env.timers)
        # Which link is to make a topic of that name (``awaited_topics``); set where there are links.
        self.link_of: Callable[[str], str | None] = lambda name: None

    def close(self) -> None:
        """Log what is not logged yet; nothing is called off."""
        self._limited_log.close()

    def begin(self, names: Iterable[str], allows: Allows = anything) -> None:
        """Create these topics with the broker's defaults, Kafka's own with theirs; no request waits.

        Those that are being created already, too many now, a link's to make, or refused by ``allows``,
        are left out: who still needs them asks again.  Thousands take so long that others would notice, so they are
        begun over several turns of the loop.
        """
        for name in names:
            if len(self._in_flight) >= AUTO_CREATIONS_IN_FLIGHT_MAX:
                break
            if name not in self._in_flight and not self._is_left_to_link(name):
                topic = self._creatable(name)
                if not allows(partition_count(topic, self._config)):
                    break
                self._in_flight[name] = []
                self._not_begun.append(topic)
                if len(self._not_begun) == 1:
                    self._env.timers.call_soon(self._begin_some)

    def _is_left_to_link(self, name: str) -> bool:
        """Whether a link is to make it; Kafka's own topics are this cluster's."""
        link = None if name in COORDINATOR_OF_TOPIC else self.link_of(name)
        if link is not None:
            self._tell(name, f"the link {link} mirrors it")
        return link is not None

    def ensure(self, name: str, done: TopicDone) -> None:
        """Create the topic of a coordinator unless it exists; ``done(error_code)`` runs when the image has it."""
        assert name in COORDINATOR_OF_TOPIC, f"{name} is no coordinator's"
        if name in self._in_flight:
            self._in_flight[name].append(done)
        elif name in self._cache.image.topics_by_name:
            self._env.timers.call_soon(done, 0)
        else:
            self._in_flight[name] = [done]
            self._create(self._creatable(name))

    def _creatable(self, name: str) -> NewTopic:
        coordinator = COORDINATOR_OF_TOPIC.get(name)
        return NewTopic(name) if coordinator is None else topic_of(coordinator, self._config)

    def _begin_some(self) -> None:
        for _ in range(min(len(self._not_begun), AUTO_CREATIONS_PER_TURN)):
            self._create(self._not_begun.popleft())
        if self._not_begun:
            self._env.timers.call_soon(self._begin_some)

    def _create(self, topic: NewTopic) -> None:
        self._create_topics([topic], lambda results: self._created(topic.name, results[0]))

    def _created(self, name: str, result: TopicCreation) -> None:
        error_code = 0 if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS else result.error_code
        if error_code:
            reason = result.error_message or ErrorCode(error_code).name
            coordinator = COORDINATOR_OF_TOPIC.get(name)
            if error_code == ErrorCode.INVALID_REPLICATION_FACTOR and coordinator is not None:
                reason = f"{reason} ({coordinator.factor_setting})"
            self._tell(name, reason)
        for failure in run_each(self._in_flight.pop(name), error_code):
            log.error("a callback that waited for topic %s failed", name, exc_info=failure)

    def _tell(self, name: str, reason: str) -> None:
        """Clients get no reason, and ask again and again: the log has it, once for a name."""
        if name not in self._logged_refusals:
            if len(self._logged_refusals) >= REFUSED_CREATIONS_REMEMBERED:
                self._logged_refusals.clear()
            self._logged_refusals.add(name)
            line = "topic %s is asked for, and cannot be created: %s"
            self._limited_log.warning("topics that are asked for", reason, line, name, reason)


def topic_of(coordinator: CoordinatorType, config: BrokerConfig) -> NewTopic:
    """The topic that keeps a coordinator's state, to be created."""
    factor = coordinator.replication_factor(config)
    segment_bytes = config.get_int(f"{coordinator.settings}.segment.bytes")
    configs = {**dict(coordinator.configs), "segment.bytes": str(segment_bytes)}
    if (min_isr := f"{coordinator.settings}.min.isr") in BROKER_SETTINGS:
        configs["min.insync.replicas"] = str(min(config.get_int(min_isr), factor))
    partitions = coordinator.partition_count(config)
    return NewTopic(coordinator.topic, partitions, factor, (), tuple(sorted(configs.items())))
