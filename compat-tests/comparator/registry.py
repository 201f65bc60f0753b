"""All scenarios by name: importing ``comparator.scenarios`` fills the list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from comparator.broker import Broker

ScenarioFunction = Callable[["Broker"], None]


class Scenario(NamedTuple):
    """``name`` is the module's and the function's: ``produce.duplicates_of_an_idempotent_producer``."""

    name: str
    run: ScenarioFunction


_SCENARIOS: dict[str, Scenario] = {}


def scenario(function: ScenarioFunction) -> ScenarioFunction:
    """Register a function that talks to one broker as a scenario."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    assert name not in _SCENARIOS, f"two scenarios are called {name}"
    _SCENARIOS[name] = Scenario(name, function)
    return function


def all_scenarios() -> list[Scenario]:
    """Every scenario of ``comparator.scenarios``, in the order of modules and of definition."""
    package = importlib.import_module("comparator.scenarios")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"comparator.scenarios.{module.name}")
    return list(_SCENARIOS.values())
