"""How many connections one address may have: the syntax of ``max.connections.per.ip.overrides``.

Owns: ``host:count,host:count`` as a mapping, and its check where a value is accepted.  Owns no connection (``net``).

Invariant: what the check lets through can be read, so that no value that was accepted shuts clients out by mistake.

Counterparts in Kafka: ``AbstractKafkaConfig.getMap``, ``Utils.validHostPattern``, ``ConnectionQuotas``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pybroker.config.schema import INT, ConfigError, parse_value

OVERRIDES: Final = "max.connections.per.ip.overrides"

# Utils.validHostPattern; not compiled here, because most brokers have no overrides.
_HOST: Final = r"[0-9a-zA-Z\-%._:]*"


def parse_overrides(text: str) -> dict[str, int]:
    """Bound on connections by host; raises ``ConfigError``.  The last colon ends the host: IPv6 has more of them."""
    counts: dict[str, int] = {}
    for element in filter(None, (element.strip() for element in text.split(","))):
        host, colon, count = (part.strip() for part in element.rpartition(":"))
        if not colon:
            raise ConfigError(f"Error parsing configuration property '{OVERRIDES}': '{element}' is not host:count")
        if not re.fullmatch(_HOST, host):
            raise ConfigError(f"{OVERRIDES} contains invalid addresses : {host}")
        counts[host] = parse_value(OVERRIDES, count, INT)
    return counts


class OverridesForm:
    """Refuses what ``parse_overrides`` cannot read.  Kafka prints no bounds for the setting, as it checks it later."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        parse_overrides(value)

    def __str__(self) -> str:
        return ""
