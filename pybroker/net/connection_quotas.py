"""How many connections there may be: over all, and from one address.

Owns: the counts by address and the bounds on them.  Does not own the connections (``processor``).

Kafka counterpart: ConnectionQuotas.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.config.connections import OVERRIDES, parse_overrides
from pybroker.storage.files import os_file

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig


class ConnectionQuotas:
    """See the module's docstring."""

    __slots__ = ("_by_host", "_config", "_count", "_descriptors_max")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        descriptors = os_file.raise_open_files_limit()
        self._descriptors_max = descriptors - descriptors // limits.DESCRIPTOR_PARTS
        self._count = 0
        self._by_host: Counter[str] = Counter()

    def add(self, host: str) -> str | None:
        """Count a connection that is there already; why it is one too many, or None."""
        self._count += 1
        self._by_host[host] += 1
        if self._count > self._config.get_int("max.connections"):
            return "more than max.connections connections"
        if self._count > self._descriptors_max:
            return f"more than {self._descriptors_max} connections: other descriptors are for files"
        if self._by_host[host] > self._max_of(host):
            return "more than max.connections.per.ip connections from this address"
        return None

    def remove(self, host: str) -> None:
        """A connection is gone."""
        self._count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _max_of(self, host: str) -> int:
        """``max.connections.per.ip`` or its override for the address, which Kafka prints with a slash in front."""
        overrides = parse_overrides(self._config.get_str(OVERRIDES))
        return overrides.get(host[1:], self._config.get_int("max.connections.per.ip"))
