"""Brokers inside of the caller's process, for tests: one alone, or several that are a cluster.

``Broker``, ``Cluster`` and ``Security`` are imported at first use, so that loading the pytest plugin costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybroker.testing.in_process_broker import Broker as Broker
    from pybroker.testing.in_process_cluster import Cluster as Cluster
    from pybroker.testing.security import Security as Security

__all__ = ["Broker", "Cluster", "Security"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from pybroker.testing.in_process_broker import Broker

        return Broker
    if name == "Cluster":
        from pybroker.testing.in_process_cluster import Cluster

        return Cluster
    if name == "Security":
        from pybroker.testing.security import Security

        return Security
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
