"""The settings that the rules of transactions depend on, taken out of the broker's configuration once.

Owns: which settings those are.  All of them need a restart to change, in Kafka as here.

Counterpart in Kafka: ``TransactionConfig`` and ``TransactionStateManagerConfig``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig


class TransactionSettings(NamedTuple):
    """Kafka's settings, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000
    write_timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        """The values that a broker's configuration has for them."""
        return cls(
            config.get_int("transaction.max.timeout.ms"),
            config.get_int("transactional.id.expiration.ms"),
            config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            config.get_int("request.timeout.ms"),
        )
