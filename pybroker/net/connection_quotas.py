"""How many connections there may be: over all, by each listener, and from one address.

Owns: the counts by listener and by address, and the bounds on them.  Does not own the connections (``processor``).

A listener's own bound is ``listener.name.<name>.max.connections``; without one the broker's holds for each of them.

Invariant: where brokers come by a listener of their own (KIP-402), clients cannot keep them out. The bound over all
counts their connections and refuses none, and clients leave them descriptors.

Kafka counterpart: ConnectionQuotas.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from pybroker import limits
from pybroker.config.connections import OVERRIDES, parse_overrides
from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.schema import ConfigError
from pybroker.storage.files import os_process

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = "max.connections"

# Where other brokers come by a listener of their own, clients leave them one of so many parts of the connections.
CONNECTION_PARTS = 16


class ConnectionQuotas:
    __slots__ = ("_by_host", "_by_listener", "_config", "_count", "_descriptors_max", "_listener_of_brokers", "_maxima")

    def __init__(self, config: BrokerConfig, listener_of_brokers: str | None) -> None:
        self._config = config
        self._listener_of_brokers = listener_of_brokers
        self._maxima: dict[str, int] = {}  # of each listener
        descriptors = os_process.raise_open_files_limit()
        self._descriptors_max = descriptors - descriptors // limits.DESCRIPTOR_PARTS
        self._count = 0
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()

    def add_listener(self, name: str) -> None:
        """There are connections by that listener, too; ConfigError where its bound is none."""
        self._maxima[name] = ListenerSettings(self._config, name).get(MAX_CONNECTIONS)

    def follow_settings(self) -> None:
        """The bounds of listeners may be others by now."""
        for name in self._maxima:
            try:
                self.add_listener(name)
            except ConfigError as error:  # an earlier version's
                log.warning("dynamic setting ignored: %s", error)

    def protects(self, listener: str) -> bool:
        """Whether brokers come by it, and clients by others."""
        return listener == self._listener_of_brokers and self._brokers_come_apart

    @property
    def _brokers_come_apart(self) -> bool:
        return self._listener_of_brokers in self._maxima and len(self._maxima) > 1

    def add(self, host: str, listener: str) -> str | None:
        """Count a connection that is there already; why it is one too many, or None."""
        self._count += 1
        self._by_host[host] += 1
        self._by_listener[listener] += 1
        is_protected = self.protects(listener)
        if self._count > self._config.get_int(MAX_CONNECTIONS) and not is_protected:
            return "more than max.connections connections"
        if self._by_listener[listener] > self._maxima.get(listener, self._count):
            return "more than max.connections connections by this listener"
        count_max = self._descriptors_max
        if self._brokers_come_apart and not is_protected:
            count_max -= count_max // CONNECTION_PARTS
        if self._count > count_max:
            return f"more than {count_max} connections: other descriptors are for files, or other brokers"
        if self._by_host[host] > self._max_of(host):
            return "more than max.connections.per.ip connections from this address"
        return None

    def remove(self, host: str, listener: str) -> None:
        """A connection is gone."""
        self._count -= 1
        self._by_listener[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _max_of(self, host: str) -> int:
        """``max.connections.per.ip`` or its override for the address, which Kafka prints with a slash in front."""
        overrides = parse_overrides(self._config.get_str(OVERRIDES))
        return overrides.get(host[1:], self._config.get_int("max.connections.per.ip"))
