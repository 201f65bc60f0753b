"""Brokers inside of the caller's process, for tests: one alone, or several that are a cluster.

``Broker`` and ``Cluster`` are imported at first use, so that loading the pytest plugin costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybroker.testing.broker import Broker as Broker
    from pybroker.testing.cluster import Cluster as Cluster

__all__ = ["Broker", "Cluster"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from pybroker.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from pybroker.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
