"""What the recorded commands ask: brokers with something of each kind, in a process of their own.

``python -m tests.cli.recorded_world`` prints one line of JSON, and ends with its standard input.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.pybroker_process import COMMAND
from harness.waiting import PATIENCE_S

from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Cluster, Security
from tests.cli.test_transactions_command import write_hanging

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:admin",
    "transaction.partition.verification.enable": "false",
    "delegation.token.secret.key": "a-secret-of-the-recording",
}
TOPIC = "orders"
LONG = "com.example.warehouse.shipments.international.returned-by-customer"


def fill(bootstrap: str) -> list[object]:
    """Topics, records, groups with and without members, transactions that are open and hang; what keeps them alive."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(TOPIC, 3, 3, config={"retention.ms": "86400000"}), NewTopic(LONG, 2, 2), NewTopic("hung", 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200):
        for topic in (TOPIC, LONG):
            producer.produce(topic, key=f"key-{number}", value="x" * 500)
    producer.flush()
    for group in ("billing", "com.example.warehouse.shipments-reader"):
        done = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        done.subscribe([TOPIC, LONG])
        while (record := done.poll(1)) is None or record.error():
            pass
        done.commit(asynchronous=False)
        done.close()
    member = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "live", "group.protocol": "consumer", "client.id": "reader-of-all"}
    )
    member.subscribe([TOPIC])
    while not member.assignment():
        member.poll(0.2)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments-of-the-day"})
    transactional.init_transactions()
    transactional.begin_transaction()
    transactional.produce(TOPIC, value="open")
    transactional.flush()
    metadata = admin.list_topics("hung", timeout=PATIENCE_S)
    leader = metadata.brokers[metadata.topics["hung"].partitions[0].leader]
    write_hanging(f"{leader.host}:{leader.port}", "hung")
    return [member, transactional]


def fill_source(bootstrap: str) -> None:
    """What a link mirrors."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in ("invoices", "parcels"):
        for number in range(20):
            producer.produce(topic, value=f"{number}")
    producer.flush()


@contextmanager
def cluster_up(folder: Path) -> Iterator[str]:
    """Two brokers of ``pybroker cluster up`` in this directory; where they serve."""
    asked = [str(COMMAND), "cluster", "up", "--brokers", "2", "--port", "0", "--data-dir", str(folder)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(line.split()[-1] for line in process.stdout if line.startswith("pybroker ready on "))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def main() -> None:
    """Serve until the standard input ends."""
    cluster = Cluster(3, {**SETTINGS, "broker.rack": "r1"})
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with (
        TemporaryDirectory(prefix="running-") as folder,
        cluster_up(Path(folder)) as served,
        cluster,
        Broker(SETTINGS, security=Security("SASL_PLAINTEXT", users)) as secured,
        Broker() as source,
    ):
        alive = fill(cluster.bootstrap)
        fill_source(source.bootstrap)
        places = {
            "cluster": cluster.bootstrap,
            "secured": secured.bootstrap,
            "source": source.bootstrap,
            "running": folder,
            "served": served,
        }
        sys.stdout.write(json.dumps(places) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        del alive


if __name__ == "__main__":
    main()
