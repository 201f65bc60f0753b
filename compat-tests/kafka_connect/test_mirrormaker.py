"""MirrorMaker 2 between Apache Kafka and pybroker, in both directions, as ``docs/mirrormaker.md`` sets it up.

It is killed while records are written to both sides, which are to have each of them once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import apache_kafka
from harness.apache_kafka import ROOT, ApacheKafka
from harness.waiting import PATIENCE_S, wait_until

from kafka_connect.reader import Reader
from kafka_connect.topics import Record, records_of, topic_names
from pybroker.security.client_access import ClientAccess

pytestmark = [
    pytest.mark.jvm(needs="connect"),
    pytest.mark.timeout(400),
    pytest.mark.skipif(apache_kafka.missing_requirement() is not None, reason=str(apache_kafka.missing_requirement())),
]

PAGE = ROOT / "docs" / "mirrormaker.md"
KAFKA_PORT, BROKER_PORT = "9092", "9093"
KAFKA_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that a busy machine leaves without a turn is not to be fenced.
    "broker.session.timeout.ms": "120000",
}
HEAP_MB = 256
PAGE_RECORDS, RECORDS = 1_000, 5_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    directory = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(directory, KAFKA_SETTINGS, HEAP_MB) as running:
        yield running


@pytest.fixture
def reader(tmp_path_factory: pytest.TempPathFactory, kafka: ApacheKafka, commands: Path) -> Iterator[Reader]:
    made = Reader(PAGE, tmp_path_factory.mktemp("mirror"), {KAFKA_PORT: str(kafka.port)}, commands)
    try:
        yield made
    finally:
        made.kill()


def write(access: ClientAccess, topic: str) -> list[Record]:
    """Records with all that a record has; what was acknowledged, as it is to be read."""
    written = [
        Record(
            f"key-{number}".encode(), f"value-{number}".encode(), 1_700_000_000_000 + number, (("n", b"%d" % number),)
        )
        for number in range(RECORDS)
    ]
    with closing(Producer({**access.settings("confluent-kafka"), "enable.idempotence": True})) as producer:
        for number, record in enumerate(written):
            producer.produce(
                topic, record.value, record.key, timestamp=record.timestamp, headers=[("n", str(number).encode())]
            )
        assert producer.flush(PATIENCE_S) == 0
    return written


def test_page_of_mirrormaker_and_records_arrive_once_though_it_is_killed(reader: Reader, kafka: ApacheKafka) -> None:
    reader.read("Two clusters", "Configuration of MirrorMaker", "Records, offsets and ACLs", "Records the other way")
    theirs = ClientAccess(kafka.bootstrap)
    ours = ClientAccess(
        f"127.0.0.1:{reader.ports[BROKER_PORT]}",
        "SASL_SSL",
        ca=reader.directory / "certificates" / "ca.pem",
        mechanism="SCRAM-SHA-512",
        user="mirror",
        password="change-me",
    )
    _, mirrormaker = reader.processes
    flows = [(theirs, "orders", ours, "kafka.orders"), (ours, "payments", theirs, "pybroker.payments")]
    for source, topic, _, _ in flows:
        write(source, topic)
    mirrormaker.kill()
    for source, topic, _, _ in flows:
        write(source, topic)
    mirrormaker.start()
    for source, topic, target, mirrored in flows:
        wanted = records_of(source, topic)
        assert len(wanted) == PAGE_RECORDS + 2 * RECORDS
        assert read_until(len(wanted), target, mirrored) == wanted
    # Nothing goes in a circle.
    assert topics_of_flows(theirs) == {"orders", "pybroker.payments"}
    assert topics_of_flows(ours) == {"payments", "kafka.orders"}


def read_until(count: int, access: ClientAccess, topic: str) -> list[Record]:
    """All records of a topic, once there are as many."""
    wait_until(lambda: len(records_of(access, topic)) >= count, f"{count} records of {topic}")
    return records_of(access, topic)


def topics_of_flows(access: ClientAccess) -> set[str]:
    """Those of the page, whatever is put before their names."""
    return {name for name in topic_names(access) if name.endswith(("orders", "payments"))}
