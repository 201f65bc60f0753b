"""Which records a cluster refuses, and that nothing is left of the trial.  By a real broker, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from threading import Event
from typing import Any
from unittest.mock import ANY
from uuid import uuid4

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from harness.waiting import PATIENCE_S

from pybroker.pipeline.topics import record_refusals
from pybroker.pipeline.topics.record_refusals import refused_records
from pybroker.pipeline.topics.rows import ANY_PARTITION, ProducerRecord
from pybroker.testing import Broker
from tests.pipeline.topics.test_epochs import Sink

SETTINGS = {
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SOON = {"topic.metadata.propagation.max.ms": "500"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as made:
        made.create_topic("large")
        made.create_topic("small", configs={"max.message.bytes": "1000"})
        made.create_topic("compacted", configs={"cleanup.policy": "compact"})
        made.create_topic("closed")
        _close(made.bootstrap, "closed")
        yield made


def _close(bootstrap: str, topic: str) -> None:
    """Have the topic be one that is read alone."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    of = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    binding = AclBinding(*of, AclOperation.READ, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_acls([binding]).values():
        future.result(PATIENCE_S)


def record(topic: str, value: bytes | None = b"v", key: bytes | None = b"k", partition: int = ANY_PARTITION) -> Any:
    return ProducerRecord(topic, value, key, partition, [("h", b"1")])


def refused(broker: Broker, records: list[Any], **settings: str) -> dict[int, str]:
    client = {"bootstrap.servers": broker.bootstrap, **SOON, **settings}
    found = list(refused_records(client, f"trial-{uuid4()}", records))
    assert len(dict(found)) == len(found)
    return dict(found)


def ends(broker: Broker, topic: str) -> tuple[int, int]:
    """What committed readers see of a topic, and where it ends."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        return int(message.error() is None), end
    finally:
        consumer.close()


def test_each_record_that_is_too_large_is_found_among_many(broker: Broker) -> None:
    bad = {0, 17, 18, 250, 299}
    records = [record("small", b"x" * (2_000 if n in bad else 100)) for n in range(300)]
    found = refused(broker, records)
    assert set(found) == bad
    assert "a record for small was refused: Broker: Message size too large (2001 bytes; the topic's" in found[17]
    seen, end = ends(broker, "small")
    assert seen == 0
    assert end > 0


def test_record_is_found_though_its_transaction_is_known_to_have_failed_before_its_report_comes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReportsLate(Producer):
        """Goes on to produce until the transaction has failed, and takes no report before."""

        def produce(self, *args: Any, **named: Any) -> None:
            super().produce(*args, **named)
            Event().wait(0.001)

        def poll(self, timeout: float = -1) -> int:
            return super().poll(timeout) if timeout else 0

    monkeypatch.setattr(record_refusals, "Producer", ReportsLate)
    records = [record("small", b"x" * (100 if n else 2_000)) for n in range(10_000)]
    assert list(islice(refused_records({"bootstrap.servers": broker.bootstrap}, f"trial-{uuid4()}", records), 1)) == [
        (0, ANY)
    ]


def test_one_that_is_too_large_for_the_client_is_refused_and_those_beside_it_are_not(broker: Broker) -> None:
    records = [record("large"), record("large", b"x" * 2_000_000), record("large")]
    assert set(refused(broker, records)) == {1}


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(broker: Broker) -> None:
    assert set(refused(broker, [record("compacted"), record("compacted", key=None), record("compacted", None)])) == {1}


def test_a_partition_that_is_not_there_refuses_its_records(broker: Broker) -> None:
    records = [record("large", partition=number) for number in (0, 7, 0, 8)]
    assert set(refused(broker, records)) == {1, 3}


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("nowhere", "Unknown topic or partition"),
        ("no topic", "Invalid topic"),
        ("closed", "Topic authorization failed"),
    ],
)
def test_a_topic_that_takes_nothing_refuses_all_of_its_records_and_no_other(
    broker: Broker, topic: str, told: str
) -> None:
    """It is asked once, because a topic that is not there is looked for over some time."""
    records = [record(topic if n % 2 else "large", b"%d" % n) for n in range(100)]
    found = refused(broker, records)
    assert set(found) == set(range(1, 100, 2))
    assert all(reason.startswith(f"a record for {topic} was refused: ") and told in reason for reason in found.values())


def test_what_is_taken_is_not_found_and_not_seen(broker: Broker) -> None:
    assert refused(broker, [record("large") for _ in range(20)]) == {}
    assert ends(broker, "large")[0] == 0
    assert refused(broker, []) == {}


@pytest.mark.parametrize("count", [2, 50_000])
def test_a_write_to_a_topic_that_takes_nothing_tells_why(broker: Broker, count: int) -> None:
    """And not that what was not sent was thrown away, or that the transaction is in another state."""
    from pybroker.pipeline.topics.epoch_transactions import NotDelivered, close_idle

    sink = Sink(broker.bootstrap, topic="closed")
    try:
        with pytest.raises((NotDelivered, KafkaException), match="Topic authorization failed"):
            sink.write(0, ["a"] * count)
    finally:
        close_idle()


def test_a_cluster_that_is_away_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_refusals, "REQUEST_TIMEOUT_S", 1.0)
    with Broker() as gone:
        bootstrap = gone.bootstrap
    client = {"bootstrap.servers": bootstrap}
    with pytest.raises(KafkaException):
        list(refused_records(client, "trial", [record("t")]))
