"""What the report tells of the broker under test and of the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import subjects
from conformance.all_clients import CHOSEN, CLIENTS
from conformance.broker_under_test import BOOTSTRAP, MAKE

from pybroker.apis import APIS
from pybroker.testing import Broker
from report.tests import samples


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_broker_tells_its_keys_features_and_cluster(broker: Broker) -> None:
    told = subjects.describe_broker("other", (broker.host, broker.port))
    served = {api["key"]: api["max"] for api in told["keys"]}
    assert served.items() <= {api.key: api.versions[1] for api in APIS}.items()
    assert len(served) > 40
    assert told["features"]["transaction.version"] == 2
    assert (told["make"], told["version"], told["brokers"]) == ("other", None, 1)


def test_all_that_the_report_wants_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP, broker.bootstrap)
    monkeypatch.setenv(MAKE, "apache")
    told = subjects.all_facts()
    assert set(samples.scenarios()) <= set(told) | {"started", "seconds", "exit_status", "outcomes"}
    assert told["broker"]["make"] == "apache"


def test_every_chosen_client_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOSEN, raising=False)
    told = subjects.client_facts()
    assert [client["name"] for client in told] == list(CLIENTS)
    assert all(client["version"] and client["language"] for client in told)
    monkeypatch.setenv(CHOSEN, "librdkafka")
    (only,) = subjects.client_facts()
    assert only["version"].startswith("confluent-kafka ")
