"""The settings that the rules of groups depend on, taken out of the broker's configuration once.

Owns: which settings those are.  All of them need a restart to change, in Kafka as here.

Counterpart in Kafka: ``GroupCoordinatorConfig``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig

MINUTE_MS = 60_000


class GroupSettings(NamedTuple):
    """Kafka's settings, with Kafka's defaults; the unit is the last word of each name."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    offsets_commit_timeout_ms: int = 5_000

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """The values that a broker's configuration has for them."""
        return cls(
            config.get_int("group.min.session.timeout.ms"),
            config.get_int("group.max.session.timeout.ms"),
            config.get_int("group.initial.rebalance.delay.ms"),
            config.get_int("group.max.size"),
            config.get_int("offset.metadata.max.bytes"),
            config.get_int("offsets.retention.minutes") * MINUTE_MS,
            config.get_int("offsets.retention.check.interval.ms"),
            config.get_int("offsets.commit.timeout.ms"),
        )
