"""All scenarios by name: importing ``comparator.scenarios`` fills a list, ``comparator.cluster_scenarios`` another."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from comparator.broker import Broker
    from comparator.cluster import Cluster

F = TypeVar("F", bound=Callable[..., None])


class Scenario(NamedTuple):
    """``name`` is the module's and the function's: ``produce.duplicates_of_an_idempotent_producer``.

    ``run`` talks to a ``Broker``, or to a ``Cluster``.
    """

    name: str
    run: Callable[[Any], None]


_SCENARIOS: dict[str, Scenario] = {}
_CLUSTER_SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Callable[[Broker], None]) -> Callable[[Broker], None]:
    """Register a function that talks to one broker as a scenario."""
    return _register(function, _SCENARIOS)


def cluster_scenario(function: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
    """Register a function that talks to several brokers as a scenario."""
    return _register(function, _CLUSTER_SCENARIOS)


def all_scenarios() -> list[Scenario]:
    """Every scenario of ``comparator.scenarios``, in the order of modules and of definition."""
    return _all_of("comparator.scenarios", _SCENARIOS)


def all_cluster_scenarios() -> list[Scenario]:
    """The same of ``comparator.cluster_scenarios``."""
    return _all_of("comparator.cluster_scenarios", _CLUSTER_SCENARIOS)


def _register(function: F, scenarios: dict[str, Scenario]) -> F:
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    assert name not in scenarios, f"two scenarios are called {name}"
    scenarios[name] = Scenario(name, function)
    return function


def _all_of(package_name: str, scenarios: dict[str, Scenario]) -> list[Scenario]:
    package = importlib.import_module(package_name)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package_name}.{module.name}")
    return list(scenarios.values())
