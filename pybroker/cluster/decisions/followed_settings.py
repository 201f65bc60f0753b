"""Settings of a mirrored topic that are those of its source's topic.

Owns: which settings these are, and what a topic here is set to so that they hold. Does not own when they are asked for
(``links/link_keeper``), nor what becomes of a topic that cannot have them (``mirrored_topics``).

Invariant: a value that no topic here would have by default is set, also where it is a default at the source.

Counterpart in Kafka: none yet; KIP-1279 proposes to mirror the settings of topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pybroker.config.schema import ConfigError
from pybroker.config.topic_settings import TOPIC_SETTINGS

if TYPE_CHECKING:
    from pybroker.cluster.image.link_states import SourceTopic
    from pybroker.config.broker import BrokerConfig

# The settings of a topic that are the same here: what they say of its records holds for the mirrored ones, too.
# Those of replicas and of the disk are this cluster's own.
FOLLOWED_SETTINGS: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)


def followed_settings(topic: SourceTopic, config: BrokerConfig) -> dict[str, str]:
    """Those that a mirrored topic takes over: what is set there, and defaults that are others than here."""
    configs = topic.configs or {}
    defaults = {name: text for name, text in topic.defaults.items() if not _is_default(config, name, text)}
    both = {**defaults, **configs}
    return {name: both[name] for name in FOLLOWED_SETTINGS if name in both}


def _is_default(config: BrokerConfig, name: str, text: str) -> bool:
    """Whether a topic here has that value of a setting where nothing sets it."""
    try:
        value = TOPIC_SETTINGS[name].parse(text)
    except (KeyError, ConfigError):
        return False
    here = config.log_config.value(name)
    return bool((frozenset(value) if isinstance(here, frozenset) else value) == here)
