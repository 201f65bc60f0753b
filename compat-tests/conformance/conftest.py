"""The clients, each pointed at the run's broker, and topics of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import pytest
from harness.waiting import wait_until

from conformance.adapter import Admin, Client
from conformance.all_clients import BUILT, CLIENTS, IN_PROCESS, chosen
from conformance.broker_under_test import BrokerUnderTest, first_address, running_broker
from conformance.security import client_address
from conformance.wire.asking import Wire, fresh_name, metadata, wait_for_coordinator
from pybroker.testing import Broker

MakeTopic = Callable[..., str]
TOPIC_RESOURCE = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for ``client`` once per client, with all that this client brings.

    ``codec``, ``assignor`` and ``partitioner`` are what the client at hand has of them.  ``library`` is the client's
    name, for tests that point it elsewhere.
    """
    if "library" in metafunc.fixturenames:
        metafunc.parametrize("library", [_marked(name, name) for name in chosen()])
    if "client" not in metafunc.fixturenames:
        return
    for name, choices in (("codec", "codecs"), ("assignor", "assignors"), ("partitioner", "partitioners")):
        if name in metafunc.fixturenames:
            rows = [
                _marked(client, client, choice)
                for client, kind in chosen().items()
                for choice in getattr(kind, choices)
            ]
            metafunc.parametrize(("client", name), rows, indirect=["client"])
            return
    metafunc.parametrize("client", [_marked(name, name) for name in chosen()], indirect=True)


def _marked(client: str, *values: str) -> object:
    """The parameters of a test, which cannot be run or only by ``scripts/conformance`` with some clients."""
    marks = []
    if client in BUILT:
        marks.append(pytest.mark.built)
        if (reason := _missing_requirement(client)) is not None:
            marks.append(pytest.mark.skip(reason=reason))
    return pytest.param(*values, marks=marks)


@cache
def _missing_requirement(client: str) -> str | None:
    """Looked at once per process, and not for each of 700 tests."""
    return CLIENTS[client].missing_requirement()


@pytest.fixture(scope="session", autouse=True)
def drivers_end() -> Iterator[None]:
    """What runs for the clients ends with the tests."""
    yield
    for kind in CLIENTS.values():
        kind.end()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerUnderTest]:
    """The broker of the run; where none runs yet, one that ends with the module.

    Other modules of the same process patch what a broker of this process would use, too.
    """
    if (running := running_broker()) is not None:
        wait_for_the_group_coordinator(running)
        yield running
        return
    with Broker() as started:
        yield BrokerUnderTest(((started.host, started.port),), (started.data_dir,))


def wait_for_the_group_coordinator(broker: BrokerUnderTest) -> None:
    """A fresh broker makes the topic of committed offsets with the first question for it, and refuses until then."""
    for address in broker.addresses:
        wire = Wire(address)
        wait_for_coordinator(wire, fresh_name("clients"))
        wire.close()


@pytest.fixture
def data_dir(broker: BrokerUnderTest) -> Path:
    """The directory of the broker's log; of several, the first one's, which has a replica of whatever tests make."""
    if not broker.data_dirs:
        pytest.skip("the broker's files are not at hand")
    return broker.data_dirs[0]


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: BrokerUnderTest) -> Iterator[Client]:
    """A client pointed at the run's broker; whatever it opens is closed after the test."""
    made = CLIENTS[request.param](client_address(broker.bootstrap))
    yield made
    made.close()


@pytest.fixture(scope="module")
def topic_admin(broker: BrokerUnderTest) -> Iterator[Admin]:
    """Deletes the topics of the tests, whichever client they are about."""
    made = IN_PROCESS["librdkafka"](broker.bootstrap)
    yield made.admin()
    made.close()


@pytest.fixture
def make_topic(topic_admin: Admin, broker: BrokerUnderTest) -> Iterator[MakeTopic]:
    """Creates topics of the given partitions and configs, deleted after the test."""
    names: list[str] = []

    def make(partitions: int = 1, **configs: str) -> str:
        names.append(fresh_name("clients"))
        create_topic(broker.bootstrap, names[-1], partitions, **configs)
        return names[-1]

    yield make
    for name in names:
        topic_admin.delete_topic(name)


@pytest.fixture
def fresh_topic(make_topic: MakeTopic) -> str:
    """A topic of one partition, on a broker of any make; the plugin's is pybroker's alone."""
    return make_topic()


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic, replicated as the brokers' settings say, and wait until its partitions are led.

    Underscores in ``configs`` stand for dots.
    """
    wire = Wire(first_address(bootstrap))
    try:
        wire.make_spread_topic(name, partitions, **configs)
    finally:
        wire.close()


class EveryBroker:
    """Waits until each broker of the run knows what one of them was told."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._addresses = broker.addresses

    def wait_for_partitions(self, topic: str, expected: int) -> None:
        self._wait(lambda wire: len(metadata(wire, topic)["partitions"]) == expected, f"{expected} partitions")

    def wait_for_config(self, topic: str, name: str, expected: str) -> None:
        asked = [{"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": [name]}]

        def is_set(wire: Wire) -> bool:
            (found,) = wire.ask("DescribeConfigs", 4, resources=asked)["results"]
            return [entry["value"] for entry in found["configs"]] == [expected]

        self._wait(is_set, f"{name}={expected}")

    def _wait(self, condition: Callable[[Wire], bool], what: str) -> None:
        for address in self._addresses:
            with closing(Wire(address)) as wire:
                wait_until(partial(condition, wire), f"{what} at {address}")


@pytest.fixture
def every_broker(broker: BrokerUnderTest) -> EveryBroker:
    return EveryBroker(broker)


@pytest.fixture
def name() -> str:
    """A topic, group or transactional id that no other test uses."""
    return fresh_name("clients")
