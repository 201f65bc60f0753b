"""What cannot begin because too few brokers are registered, and when that is said.

Owns: the sentence, which the log and the commands have, and the moments at which a broker logs it. These are once
others had time to join after its start, and when one is unregistered. Owns no factor (``coordinator_table``) and no
creation (``auto_topic_creation``), whose refusal is logged besides.

Invariant: a topic that is there keeps the replicas that it began with, so that it waits for no more brokers.

Counterpart in Kafka: none; groups and transactions wait, and only a broker that is asked for the topic says why.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
from pybroker.cluster.image.coordinator_table import COORDINATORS
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env

# So long a broker waits for others that start with it before it says that too few are registered.
BROKERS_AWAITED_MS = 10_000


log = logging.getLogger(__name__)


def too_few_brokers_now(config: BrokerConfig, image: ClusterImage) -> str:
    """A line that says what cannot begin with so few registered brokers, and by which settings; "" if nothing."""
    factors = {each.topic: each.replication_factor(config) for each in COORDINATORS}
    return too_few_brokers_message(factors, image.topics_by_name, len(image.brokers))


def too_few_brokers_message(factors: Mapping[str, int], there: Container[str], count: int) -> str:
    """The same of ``count`` brokers: ``factors`` has the replicas of internal topics, some of which are ``there``."""
    lacking = [each for each in COORDINATORS if each.topic not in there and factors.get(each.topic, 0) > count]
    if not lacking:
        return ""
    users = " and ".join(each.name for each in lacking)
    settings = ", ".join(f"{each.factor_setting}={factors[each.topic]}" for each in lacking)
    registered = "1 broker is" if count == 1 else f"{count} brokers are"
    return (
        f"{registered} registered, so that {users} cannot begin before more join, or fewer replicas are set: {settings}"
    )


class TooFewBrokersWarning:
    """Logs that line.  Its owner closes it."""

    def __init__(self, env: Env, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata
        self._count = len(metadata.image.brokers)  # as it was last
        # Not at once: brokers that start together know of each other a moment later.
        self._timer = env.timers.call_later(BROKERS_AWAITED_MS, self._tell)
        self._unsubscribe = metadata.subscribe(self._on_image)

    def close(self) -> None:
        """Say nothing from now on."""
        self._timer.cancel()
        self._unsubscribe()

    def _on_image(self, image: ClusterImage, _: ImageDelta) -> None:
        former, self._count = self._count, len(image.brokers)
        if self._count < former:
            self._tell()

    def _tell(self) -> None:
        if why := too_few_brokers_now(self._config, self._metadata.image):
            log.warning("%s", why)
