"""The settings of consumer groups (KIP-848): the broker's, and a group's own where it has any.

Owns: which settings those are, and that a group's own stay inside the broker's limits even if those were drawn later.

Counterpart in Kafka: ``GroupCoordinatorConfig``, ``GroupConfig`` and ``GroupConfigManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pybroker.config.group_settings import CONSUMER_ASSIGNORS, GROUP_SETTINGS
from pybroker.config.resources import GROUP
from pybroker.coordinators.group.assignors import ASSIGNORS, Assignor
from pybroker.coordinators.group.group_topics import Topics

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig


class _GroupSetting(NamedTuple):
    """A group's own setting, and the broker's for groups that have none, and those that bound it."""

    name: str
    of_broker: str
    low: str
    high: str


SESSION_TIMEOUT = _GroupSetting(
    "consumer.session.timeout.ms",
    "group.consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
HEARTBEAT_INTERVAL = _GroupSetting(
    "consumer.heartbeat.interval.ms",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
ASSIGNMENT_INTERVAL = _GroupSetting(
    "consumer.assignment.interval.ms",
    "group.consumer.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
)


class ConsumerSettings:
    """Read when they are needed: some of them change while the broker runs."""

    __slots__ = ("_config", "_topics", "assignors", "max_size", "may_downgrade", "may_upgrade", "regex_refresh_ms")

    def __init__(self, config: BrokerConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self.max_size = config.get_int("group.consumer.max.size")
        policy = config.get_str("group.consumer.migration.policy").lower()
        self.may_upgrade = policy in {"bidirectional", "upgrade"}
        self.may_downgrade = policy in {"bidirectional", "downgrade"}
        self.regex_refresh_ms = config.get_int("group.consumer.regex.refresh.interval.ms")
        known = {assignor.name: assignor for assignor in ASSIGNORS}
        names = [CONSUMER_ASSIGNORS[name] for name in config.get_list("group.consumer.assignors")]
        # By name, the default first.
        self.assignors: dict[str, Assignor] = {name: known[name] for name in names}

    @property
    def default_assignor(self) -> str:
        """What a group gets whose members name none."""
        return next(iter(self.assignors))

    def session_timeout_ms(self, group_id: str) -> int:
        return self._of_group(group_id, SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._of_group(group_id, HEARTBEAT_INTERVAL)

    def assignment_interval_ms(self, group_id: str) -> int:
        """The shortest time between two target assignments of the group."""
        return self._of_group(group_id, ASSIGNMENT_INTERVAL)

    def _of_group(self, group_id: str, setting: _GroupSetting) -> int:
        config = self._config
        text = self._topics.image.overrides(GROUP, group_id).get(setting.name)
        if text is None:
            return config.get_int(setting.of_broker)
        value: int = GROUP_SETTINGS[setting.name].parse(text)
        return min(max(value, config.get_int(setting.low)), config.get_int(setting.high))
