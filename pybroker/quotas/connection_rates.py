"""How fast new connections come, and which of them are to wait or to go (KIP-612).

Owns: the buckets of the broker, of each listener and of each address, and the bounds on them.  Does not own
connections, nor the waiting (``net/connection_rate_limit``).

Invariants:
- Who is to wait for a listener, or for the broker, has been counted, and waits for a second of the quota's window at
  most.
- Who is to go for its address counts nowhere.
- Addresses are kept only where a quota holds for them, for as long as a window, and at most ``limits.QUOTA_CLIENTS`` of
  them.

Where brokers come by a listener of their own the broker's bound does not hold for it.

Kafka counterpart: the rates of ConnectionQuotas.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from pybroker import limits
from pybroker.cluster.image.quota_entities import CONNECTION_CREATION_RATE, IP
from pybroker.quotas.rates import TokenBucket, Window

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from pybroker.cluster.image.quota_entities import QuotaEntity, QuotaValues

_UNBOUNDED: Final = (1 << 31) - 1  # Kafka's default of all three


class ConnectionRates:
    """Bounds are connections per second."""

    def __init__(self, now_ms: Callable[[], int], window: Window) -> None:
        self._now_ms = now_ms
        self._window = window
        self._broker = window.rate()
        self._broker_max = _UNBOUNDED
        self._listeners: dict[str, TokenBucket] = {}
        self._listeners_max: Mapping[str, int] = {}
        self._hosts: OrderedDict[str, TokenBucket] = OrderedDict()  # who came last is the last
        self._hosts_max: Mapping[IPv4Address | IPv6Address, float] = {}
        self._host_max: float = _UNBOUNDED  # of an address without a quota of its own

    @property
    def bounds_anything(self) -> bool:
        """Whether any connection could have to wait or to go."""
        listeners_max = self._listeners_max.values()
        return min(self._broker_max, self._host_max, *listeners_max) < _UNBOUNDED or bool(self._hosts_max)

    def set_bounds(self, broker: int, listeners: Mapping[str, int]) -> None:
        """``max.connection.creation.rate`` of the broker, and of each listener by its name."""
        self._broker_max = broker
        self._listeners_max = listeners

    def set_quotas(self, quotas: Mapping[QuotaEntity, QuotaValues]) -> None:
        """The quotas of addresses, from now on."""
        bounds = {
            entity[0][1]: values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            if entity[0][0] == IP and CONNECTION_CREATION_RATE in values
        }
        self._host_max = bounds.pop(None, _UNBOUNDED)
        self._hosts_max = {ip_address(name): bound for name, bound in bounds.items() if name is not None}

    def on_arrival(self, listener: str, *, is_protected: bool) -> int:
        """A connection is at the door: for how many ms it, and those behind it, are to wait there.

        ``is_protected``: it comes by the listener of the brokers, which clients have none of.
        """
        now_ms = self._now_ms()
        broker_ms = 0 if is_protected else self._count(self._broker, self._broker_max, now_ms)
        return max(broker_ms, self._count(self._listener_bucket(listener), self._listener_max(listener), now_ms))

    def on_entry(self, listener: str, host: str, *, is_protected: bool) -> int:
        """Its wait is over: 0 if it may come in, or after how many ms it is to be closed, and then it counts nowhere.

        ``host`` is its address as text, without a slash.
        """
        bound = self._bound_of(host)
        if bound >= _UNBOUNDED:
            return 0
        now_ms = self._now_ms()
        bucket = self._host_bucket(host, now_ms)
        throttle_ms = self._count(bucket, bound, now_ms)
        if throttle_ms:
            bucket.take(-1, bound, now_ms)
            self._listener_bucket(listener).take(-1, self._listener_max(listener), now_ms)
            if not is_protected:
                self._broker.take(-1, self._broker_max, now_ms)
        return throttle_ms

    def _listener_max(self, listener: str) -> int:
        return self._listeners_max.get(listener, _UNBOUNDED)

    def _listener_bucket(self, listener: str) -> TokenBucket:
        bucket = self._listeners.get(listener)
        if bucket is None:
            bucket = self._listeners[listener] = self._window.rate()
        return bucket

    def _bound_of(self, host: str) -> float:
        if not self._hosts_max:
            return self._host_max
        try:
            address = ip_address(host)
        except ValueError:  # of no address: a simulated one
            return self._host_max
        return self._hosts_max.get(address, self._host_max)

    def _host_bucket(self, host: str, now_ms: int) -> TokenBucket:
        hosts = self._hosts
        bucket = hosts.get(host)
        if bucket is not None:
            hosts.move_to_end(host)
            return bucket
        while hosts and (len(hosts) >= limits.QUOTA_CLIENTS or next(iter(hosts.values())).is_idle(now_ms)):
            hosts.popitem(last=False)
        bucket = hosts[host] = self._window.rate()
        return bucket

    def _count(self, bucket: TokenBucket, bound: float, now_ms: int) -> int:
        """Count one: for how long that is too fast, a sample's length at most, as in Kafka."""
        bucket.take(1, bound, now_ms)
        if bound <= 0:
            return self._window.sample_ms
        return min(bucket.throttle_ms(bound, now_ms), self._window.sample_ms)
