"""Topics of one test, written and read with and without Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from harness.waiting import wait_until


class Tables:
    """Topics of one test."""

    def __init__(self, spark: Any, bootstrap: str, work_dir: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._work_dir = work_dir

    def topic(self, partitions: int = 2) -> str:
        """A new topic."""
        name = f"t-{uuid4()}"
        self.create(name, partitions)
        return name

    def create(self, name: str, partitions: int = 2) -> None:
        """Make a topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions)])[name].result(30)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result(30)

    def fill(self, topic: str, values: Sequence[bytes | None], **given: Any) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        for i, value in enumerate(values):
            producer.produce(topic, value, key=f"k{i}", partition=i % 2, timestamp=1_000 * (i + 1), **given)
        assert producer.flush(30) == 0

    def append(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """To one partition."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def write_in_transactions(self, topic: str, *parts: tuple[str, list[bytes]]) -> None:
        """Each part's values in a transaction, which ends as it says: commit or abort."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        for end, values in parts:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            producer.flush(30)
            (producer.abort_transaction if end == "abort" else producer.commit_transaction)(30)

    def read(self, form: str, topic: str | None, **options: str) -> Any:
        """None where an option chooses the topics."""
        given = {} if topic is None else {"subscribe": topic}
        return self._options(self.spark.read.format(form), {**given, **options}).load()

    def read_stream(self, form: str, topic: str | None, **options: str) -> Any:
        """From the beginning, unless an option says otherwise."""
        subscribed = {} if topic is None else {"subscribe": topic}
        given = {**subscribed, "startingOffsets": "earliest", **options}
        return self._options(self.spark.readStream.format(form), given).load()

    def save(self, rows: Any, form: str = "pybroker", **options: str) -> None:
        self._options(rows.write.format(form).mode("append"), options).save()

    def start(self, rows: Any, name: str, **options: str) -> Any:
        writer = rows.writeStream.format("pybroker").option("checkpointLocation", str(self._work_dir / name))
        return self._options(writer, options).trigger(availableNow=True).start()

    def start_running(self, rows: Any, **options: str) -> Any:
        """A query that goes on."""
        path = str(self._work_dir / f"running-{uuid4()}")
        writer = rows.writeStream.format("pybroker").option("checkpointLocation", path)
        return self._options(writer, options).trigger(processingTime="0 seconds").start()

    def wait_for(self, topic: str, values: Sequence[bytes | None]) -> None:
        """Until a topic has just these values."""
        expected = sorted(value or b"" for value in values)
        wait_until(lambda: sorted(self.committed(topic)) == expected, f"{len(values)} records", 60)

    def committed(self, topic: str) -> list[bytes]:
        """What a committed reader finds of a topic; much quicker than by Spark."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "group.id": "readers", "enable.partition.eof": True}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
        left = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        found = []
        while left:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(message.value() or b"")
            else:
                left.discard(message.partition() or 0)
        consumer.close()
        return found

    def make_anew(self, topic: str, values: list[bytes | None]) -> None:
        """Delete a topic and make another one of its name, with other records."""
        self.delete(topic)
        self.create(topic)
        self.fill(topic, values)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Have a partition begin at ``offset``."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        deleted.result(30)

    def configure(self, topic: str, name: str, value: str) -> None:
        """Set one of a topic's settings."""
        from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)

    def checkpoint(self, name: str) -> Path:
        return self._work_dir / name

    def values(self, topic: str) -> list[str]:
        rows = self.read("pybroker", topic, **{"kafka.isolation.level": "read_committed"})
        return sorted(row.value.decode() for row in rows.collect())

    def _options(self, builder: Any, options: dict[str, str]) -> Any:
        return builder.options(**{"kafka.bootstrap.servers": self.bootstrap, **options})
