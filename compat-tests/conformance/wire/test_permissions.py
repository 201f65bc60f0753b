"""Each API with each missing permission: refused as Apache Kafka refuses it.

The requests, and what Kafka answers, are the comparator's (``comparator/scenarios/acls.py``, ``permissions.json``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from comparator import permissions
from comparator.broker import Broker
from comparator.run import PROPERTIES
from comparator.scenarios import acls
from harness.batches import batch

from conformance.broker_under_test import brokers_of_the_run, first_address, start_own_broker
from pybroker_protocol.errors import ErrorCode

APIS = sorted({row.api for row in acls.table(bytes(16))})


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with an authorizer, of which the whole table was asked."""
    if brokers_of_the_run() > 1:
        pytest.skip("the table is asked of one broker, which coordinates and leads everything")
    settings = {name: value for name, value in PROPERTIES.items() if name != "node.id"}
    own = start_own_broker(tmp_path_factory.mktemp("permissions"), settings)
    try:
        with Broker(first_address(own.bootstrap)).opened() as broker:
            acls.each_missing_permission(broker)
            yield broker
    finally:
        own.stop()


@pytest.fixture(scope="module")
def answers(asked: Broker) -> Mapping[str, Mapping[str, int | None]]:
    return {step.title: dict(permissions.told(step.reply)) for step in asked.steps}


@pytest.mark.parametrize("api", APIS)
def test_who_lacks_a_permission_is_refused(api: str, answers: Mapping[str, Mapping[str, int | None]]) -> None:
    expected = {title: told for title, told in permissions.written().items() if title.startswith(f"{api} v")}
    assert expected
    assert {title: answers[title] for title in expected} == expected


def test_who_may_not_write_produces_nothing(asked: Broker) -> None:
    guest = asked.connect(acls.GUEST)

    def produce(topic: str, transactional_id: str | None = None) -> int:
        data = [{"index": 0, "records": bytes(batch(b"a"))}]
        topics = [{"name": topic, "partition_data": data}]
        sent = guest.send(
            "Produce", 9, {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 9_000, "topic_data": topics}
        )
        reply = guest.receive("Produce", 9, sent)
        code: int = reply["responses"][0]["partition_responses"][0]["error_code"]
        return code

    asked.prepare_topic("written")
    assert [produce("written") for _ in range(4)] == [0] * 4
    with acls.denied(asked, (acls.TOPIC, "written", acls.WRITE)):
        assert [produce("written") for _ in range(4)] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 4
    assert produce("written") == 0
