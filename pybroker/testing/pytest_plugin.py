"""The pytest plugin: the fixtures ``pybroker``, ``pybroker_topic`` and ``pybroker_cluster``.

Owns: the fixtures, and when their former names hold (``former_broker_names`` and
``former_cluster_names``): other plugins define some of those, too, such
as pytest-kafka-broker.  Imports nothing but the standard library and pytest until a fixture is used, because pytest
loads it in every project that has pybroker installed.

Invariants:
- A former name is never taken from another plugin, whichever of the two pytest loads first, and the header of the run
  then says so in a line.
- A conftest's own definition goes before the plugin's, as pytest has it.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pybroker.testing.in_process_broker import Broker, Setting
    from pybroker.testing.in_process_cluster import Cluster
    from pybroker.testing.security import Security

# Former names that go together, since a topic is of use on its own broker alone: the plugin that has them, and the new
# ones in their place.
_OF_THE_BROKER = "pybroker.testing.former_broker_names"
_OF_THE_CLUSTER = "pybroker.testing.former_cluster_names"
_FORMER_NAMES = {
    _OF_THE_BROKER: ("kafka_broker", "kafka_topic", "kafka_broker_settings", "kafka_broker_security"),
    _OF_THE_CLUSTER: ("kafka_cluster", "kafka_cluster_settings"),
}
_INSTEAD = {_OF_THE_BROKER: "pybroker and pybroker_topic", _OF_THE_CLUSTER: "pybroker_cluster"}
_FIXTURE_MANAGER = "funcmanage"  # pytest's name for it
_clashes = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def pybroker_settings(request: pytest.FixtureRequest) -> Mapping[str, Setting]:
    """Kafka's broker settings for ``pybroker``; override it in a conftest, with ``scope="session"``."""
    settings: Mapping[str, Setting] = _by_former_name(request, _OF_THE_BROKER, "kafka_broker_settings") or {}
    return settings


@pytest.fixture(scope="session")
def pybroker_security(request: pytest.FixtureRequest) -> Security | str | None:
    """What ``pybroker`` asks of its clients ("SASL_SSL"); override it in a conftest, with ``scope="session"``."""
    security: Security | str | None = _by_former_name(request, _OF_THE_BROKER, "kafka_broker_security")
    return security


@pytest.fixture(scope="session")
def pybroker(pybroker_settings: Mapping[str, Setting], pybroker_security: Security | str | None) -> Iterator[Broker]:
    """One in-process ``Broker`` per test run, and per worker of pytest-xdist.

    ``pybroker.bootstrap`` is what a client's ``bootstrap_servers`` takes.
    """
    from pybroker.testing.in_process_broker import Broker

    with Broker(pybroker_settings, security=pybroker_security) as broker:
        yield broker


@pytest.fixture
def pybroker_topic(pybroker: Broker) -> Iterator[str]:
    """The name of a topic of ``pybroker``, of one partition, that exists for this test only."""
    with fresh_topic(pybroker) as name:
        yield name


@pytest.fixture(scope="session")
def pybroker_cluster_settings(request: pytest.FixtureRequest) -> Mapping[str, Setting]:
    """Kafka's settings for each broker of ``pybroker_cluster``; override it in a conftest, with ``scope="session"``."""
    settings: Mapping[str, Setting] = _by_former_name(request, _OF_THE_CLUSTER, "kafka_cluster_settings") or {}
    return settings


@pytest.fixture(scope="session")
def pybroker_cluster_security() -> Security | str | None:
    """What ``pybroker_cluster`` asks of its clients; override it in a conftest, with ``scope="session"``."""
    return None


@pytest.fixture
def pybroker_cluster(
    pybroker_cluster_settings: Mapping[str, Setting], pybroker_cluster_security: Security | str | None
) -> Iterator[Cluster]:
    """A ``Cluster`` of three in-process brokers, anew for each test, because tests kill them.

    ``pybroker_cluster.bootstrap`` has all their addresses.
    """
    from pybroker.testing.in_process_cluster import Cluster

    with Cluster(3, pybroker_cluster_settings, security=pybroker_cluster_security) as cluster:
        yield cluster


@contextmanager
def fresh_topic(broker: Broker) -> Iterator[str]:
    """The name of a topic of one partition, which is deleted at the end."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    yield name
    broker.delete_topic(name)


# --- former names --------------------------------------------------------------------------------------------------


def pytest_plugin_registered(plugin: Any, manager: pytest.PytestPluginManager) -> None:
    """Add the former names that no other plugin defines, once pytest knows the fixtures of all plugins."""
    if manager.get_name(plugin) != _FIXTURE_MANAGER:
        return
    plugin.config.stash[_clashes] = clashes = []
    for module, names in _FORMER_NAMES.items():
        taken = [f"{name} is the fixture of {other}" for name in names for other in _other_definers(plugin, name)]
        if taken:
            clashes.append(f"{', '.join(taken)}; pybroker's own: {_INSTEAD[module]}")
        else:
            manager.import_plugin(module)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """A line where another plugin has former names."""
    return [f"pybroker: {clash}" for clash in config.stash.get(_clashes, [])]


def _other_definers(fixtures: Any, name: str) -> list[str]:
    """The modules of plugins that define a fixture; a conftest is no plugin here: it goes before them by itself."""
    asked = fixtures.session
    if "node" not in inspect.signature(fixtures.getfixturedefs).parameters:  # before pytest 8
        asked = asked.nodeid
    modules = [found.func.__module__ for found in fixtures.getfixturedefs(name, asked) or ()]
    return [module for module in modules if module.rpartition(".")[2] != "conftest"]


def _by_former_name(request: pytest.FixtureRequest, module: str, name: str) -> Any:
    """What a conftest says by a former name; None where that is another plugin's."""
    if request.config.pluginmanager.has_plugin(module):
        return request.getfixturevalue(name)
    return None
