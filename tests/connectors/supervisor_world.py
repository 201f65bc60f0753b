"""A supervisor as a process, with Spark and a broker, and a PostgreSQL from the first test on that asks for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from examples.tour.postgres import SUPERUSER, Postgres, PostgresFailed, own_postgres
from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient
from pybroker.testing import Broker

PROVIDERS = "config.providers=file\nconfig.providers.file.class={}.FileConfigProvider\n".format(
    "org.apache.kafka.common.config.provider"
)
DELTA = (
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Each micro-batch reads the table's log in so many tasks, and fifty take minutes on a busy machine.
    "spark.databricks.delta.snapshotPartitions=2",
)
SCHEMA = "id bigint, name string, amount double"


class World:
    """The supervisor, and what it works with; ``with`` starts and ends it."""

    def __init__(self, broker: Broker, directory: Path, postgres_settings: Mapping[str, str] | None = None) -> None:
        self.broker, self.directory = broker, directory
        self._postgres: Postgres | None = None
        self._postgres_settings = postgres_settings
        self._ends = ExitStack()
        self.worker = directory / "worker.properties"
        self.worker.write_text(PROVIDERS)
        self.process: ChildProcess | None = None
        self.client: RestClient

    def __enter__(self) -> World:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        with self._ends:
            assert self.process.terminate(PATIENCE_S) == 0, self.process.log_tail()

    @property
    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = self._ends.enter_context(own_postgres(self._postgres_settings))
            (self.directory / "secret.properties").write_text(f"password={self._postgres.password}\n")
        return self._postgres

    def start(self) -> None:
        log = self.directory / "supervisor.log"
        begins_at = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "pybroker", "connect", "serve", "--worker", str(self.worker)]
        command += ["--bootstrap", self.broker.bootstrap, "--listen", "127.0.0.1:0"]
        command += ["--data", str(self.directory / "checkpoints"), "--master", "local[2,4]"]
        command += ["--package", "io.delta:delta-spark_4.2_2.13:4.4.0"]
        for setting in DELTA:
            command += ["--spark", setting]
        self.process = ChildProcess(command, log)
        self.client = RestClient(url_of(self.process, begins_at))
        wait_until(partial(works, self.client), "a supervisor that works")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def put(self, name: str, **config: str) -> None:
        self.client.ask("PUT", "connectors", name, "config", body=config)

    def sink(self, table: str, topics: str, **more: str) -> dict[str, str]:
        return {
            "connector.class": "JdbcSink",
            "topics": topics,
            "table.name.format": table,
            "value.converter.schema": SCHEMA,
            "connection.url": self.postgres.jdbc_url,
            "connection.user": SUPERUSER,
            "connection.password": f"${{file:{self.directory / 'secret.properties'}:password}}",
            "auto.create": "true",
            "poll.interval.ms": "100",
            **more,
        }

    def source(self, topic: str, **more: str) -> dict[str, str]:
        """A `JdbcSource`, whose table or query ``more`` has."""
        return {
            "connector.class": "JdbcSource",
            "topic": topic,
            "key.fields": "id",
            "connection.url": self.postgres.jdbc_url,
            "connection.user": SUPERUSER,
            "connection.password": f"${{file:{self.directory / 'secret.properties'}:password}}",
            "poll.interval.ms": "50",
            **more,
        }

    def delete_all(self) -> None:
        for name in self.client.ask("GET", "connectors"):
            self.client.ask("DELETE", "connectors", name)

    def send(self, topic: str, *values: str | bytes | None, **more: Any) -> None:
        """See `send`."""
        send(self.broker, topic, *values, **more)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("GET", "connectors", name, "status")
        return found

    def state(self, name: str) -> str:
        """Of the task, or of the connector where it has none."""
        status = self.status(name)
        return str((status["tasks"] or [status["connector"]])[0]["state"])

    def sql(self, query: str) -> list[str]:
        """What psql prints; nothing where a table is not there yet."""
        try:
            return self.postgres.sql(query)
        except PostgresFailed:
            return []


def url_of(process: ChildProcess, begins_at: int = 0) -> str:
    """Where a supervisor answers requests, once its line is in its log, behind so many bytes."""

    def told() -> str:
        assert process.exit_code is None, process.log_tail()
        _, ready, rest = process.log_path.read_text()[begins_at:].partition("pybroker connect ready on ")
        return rest.partition("\n")[0] if ready and "\n" in rest else ""

    wait_until(told, "the supervisor's line")
    return told()


def works(client: RestClient) -> bool:
    """Whether it is the turn of the supervisor that is asked."""
    try:
        client.ask("GET", "connectors")
    except ReplyRefused:
        return False
    return True


def send(broker: Broker, topic: str, *values: str | bytes | None, **more: Any) -> None:
    """Records of one key, partition or time, where ``more`` says so; they are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, **more)
    assert producer.flush(PATIENCE_S) == 0


def values(world: World, topic: str) -> list[Any]:
    """The committed records of a topic, by partition."""
    return topic_values(world.broker, topic)


def topic_values(broker: Broker, topic: str) -> list[Any]:
    """The committed records of a topic of a broker, by partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    try:
        there = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        found = []
        for number in there:
            at = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(at, PATIENCE_S)
            consumer.assign([at])
            while consumer.position([at])[0].offset < end:
                message = consumer.poll(1)
                if message is None:
                    break
                found.append(message)
        return found
    finally:
        consumer.close()
