"""The driver (PROTOCOL.md) of kafka-python 2.0.2, which much software still pins; it runs in an environment of its own.

Owns: a thread for each consumer, and the library's calls; requests are read by ``driver``.  The library is imported
untyped: a type checker would go by the newer kafka-python of the tests' environment.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from importlib import import_module
from typing import Any

from driver import Driver, Request, decoded, encoded

kafka: Any = import_module("kafka")
kafka_admin: Any = import_module("kafka.admin")
kafka_errors: Any = import_module("kafka.errors")
kafka_range: Any = import_module("kafka.coordinator.assignors.range")
kafka_roundrobin: Any = import_module("kafka.coordinator.assignors.roundrobin")

PATIENCE_S = 30
POLL_GRACE_S = 0.5
ASSIGNORS = {
    "range": kafka_range.RangePartitionAssignor,
    "roundrobin": kafka_roundrobin.RoundRobinPartitionAssignor,
}


LOGIN_SETTINGS = {
    "security_protocol": "protocol",
    "ssl_cafile": "ca",
    "ssl_certfile": "certificate",
    "ssl_keyfile": "certificate",
    "sasl_mechanism": "mechanism",
    "sasl_plain_username": "user",
    "sasl_plain_password": "password",
}


def partition_of(request: Request) -> Any:
    return kafka.TopicPartition(request["topic"], request["partition"])


def connection(request: Request) -> dict[str, Any]:
    """The settings of every client; what the library finds out of the broker in seconds is found out once."""
    told = request.get("security") or {}
    login = {name: told[field] for name, field in LOGIN_SETTINGS.items() if told.get(field) is not None}
    bootstrap = request["bootstrap"]
    return {"bootstrap_servers": bootstrap, "api_version": api_version(bootstrap, tuple(login.items())), **login}


@cache
def api_version(bootstrap: str, login: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
    client = kafka.KafkaClient(bootstrap_servers=bootstrap, **dict(login))
    client.close()
    found: tuple[int, ...] = client.config["api_version"]
    return found


def code_of(error: BaseException) -> int:
    return int(getattr(error, "errno", -1)) if isinstance(error, kafka_errors.KafkaError) else -1


def check(code: int) -> None:
    if code:
        raise kafka_errors.for_code(code)


class Producer:
    """KafkaProducer."""

    def __init__(self, request: Request) -> None:
        settings = {
            "acks": "all" if request["acks"] == -1 else request["acks"],
            "linger_ms": request["linger_ms"],
            "compression_type": request["codec"],
            "max_request_size": request["request_bytes_max"],
            "retries": PATIENCE_S * 10,
        }
        if request["patience_ms"] is not None:
            settings["max_block_ms"] = request["patience_ms"]
        self._producer = kafka.KafkaProducer(**connection(request), **settings)

    def produce(self, request: Request) -> list[Request]:
        sent = [self._sent(record) for record in request["records"]]
        self._producer.flush(PATIENCE_S)
        return [self._delivery(future) for future in sent]

    def _sent(self, record: Request) -> Any:
        headers = [(header["key"], decoded(header["value"])) for header in record["headers"]]
        key, value = decoded(record["key"]), decoded(record["value"])
        try:
            return self._producer.send(
                record["topic"], value, key, headers, record["partition"], record["timestamp_ms"]
            )
        except kafka_errors.KafkaError as error:
            return error

    @staticmethod
    def _delivery(future: Any) -> Request:
        try:
            if isinstance(future, kafka_errors.KafkaError):
                raise future
            metadata = future.get(PATIENCE_S)
        except kafka_errors.KafkaError as error:
            return {"error": code_of(error), "partition": -1, "offset": -1}
        return {"error": 0, "partition": metadata.partition, "offset": metadata.offset}

    def close(self, _: Request) -> None:
        self._producer.close(PATIENCE_S)


class Consumer(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """KafkaConsumer.

    Its ``poll`` joins the group whatever the timeout, until all members have joined: those of one scenario would wait
    for one another.  So it is polled on a thread of its own, and a poll that takes longer is answered without records;
    what it brings is the next poll's.
    """

    def __init__(self, request: Request) -> None:
        settings = {
            "auto_offset_reset": request["offset_reset"],
            "enable_auto_commit": False,
            "group_id": request["group"],
            "heartbeat_interval_ms": 100,
        }
        if request["assignor"] is not None:
            settings["partition_assignment_strategy"] = (ASSIGNORS[request["assignor"]],)
        if request["fetch_wait_ms"] is not None:
            settings["fetch_max_wait_ms"] = request["fetch_wait_ms"]
        if request["partition_fetch_bytes"] is not None:
            settings["max_partition_fetch_bytes"] = request["partition_fetch_bytes"]
        self._consumer = kafka.KafkaConsumer(**connection(request), **settings)
        self._revocations = 0
        self._thread = ThreadPoolExecutor(1)
        self._polling: Future[list[Any]] | None = None

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._revocations += 1

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Not counted."""

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call the library, after the poll that may still run."""
        return self._thread.submit(getattr(self._consumer, method), *arguments, **named).result()

    def subscribe(self, request: Request) -> None:
        self._call("subscribe", [request["topic"]], listener=self)

    def assign(self, request: Request) -> None:
        self._call("assign", [partition_of(each) for each in request["partitions"]])

    def assignment(self, _: Request) -> list[Request]:
        return [found._asdict() for found in self._consumer.assignment()]

    def poll(self, request: Request) -> Request:
        timeout_ms = request["timeout_ms"]
        if self._polling is None:
            self._polling = self._thread.submit(self._poll, timeout_ms)
        records = []
        if wait([self._polling], timeout_ms / 1000 + POLL_GRACE_S).done:
            records, self._polling = self._polling.result(), None
        return {"records": [self._record(record) for record in records], "revocations": self._revocations}

    def _poll(self, timeout_ms: int) -> list[Any]:
        polled = self._consumer.poll(timeout_ms=timeout_ms)
        return [record for records in polled.values() for record in records]

    def _forget(self, partition: Any) -> None:
        """Hand out nothing of this partition that a poll has brought already."""
        if self._polling is not None:
            left = [each for each in self._polling.result() if (each.topic, each.partition) != partition]
            self._polling = Future()
            self._polling.set_result(left)

    @staticmethod
    def _record(record: Any) -> Request:
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": encoded(record.key),
            "value": encoded(record.value),
            "headers": [{"key": key, "value": encoded(value)} for key, value in record.headers],
            "timestamp_ms": record.timestamp,
            "timestamp_type": record.timestamp_type,
        }

    def seek(self, request: Request) -> None:
        self._call("seek", partition_of(request), request["offset"])
        self._forget(partition_of(request))

    def seek_to_beginning(self, request: Request) -> None:
        self._call("seek_to_beginning", partition_of(request))
        self._forget(partition_of(request))

    def seek_to_end(self, request: Request) -> None:
        self._call("seek_to_end", partition_of(request))
        self._forget(partition_of(request))
        self.position(request)

    def position(self, request: Request) -> int:
        return int(self._call("position", partition_of(request)))

    def beginning_and_end(self, request: Request) -> list[int]:
        of = partition_of(request)
        return [self._call("beginning_offsets", [of])[of], self._call("end_offsets", [of])[of]]

    def offset_for_time(self, request: Request) -> int | None:
        found = self._call("offsets_for_times", {partition_of(request): request["timestamp_ms"]})
        offset = found[partition_of(request)]
        return None if offset is None else int(offset.offset)

    def pause(self, request: Request) -> None:
        self._call("pause", partition_of(request))

    def resume(self, request: Request) -> None:
        self._call("resume", partition_of(request))

    def commit(self, request: Request) -> None:
        self._call("commit", self._offsets(request))

    def commit_async(self, request: Request) -> None:
        offsets = self._offsets(request)
        # Which connects to the coordinator: what it commits before it is lost without an error.
        self._call("committed", next(iter(offsets)))
        self._call("commit_async", offsets)

    @staticmethod
    def _offsets(request: Request) -> Any:
        if request["offsets"] is None:
            return None
        committed = kafka.OffsetAndMetadata
        return {partition_of(each): committed(each["offset"], each["metadata"]) for each in request["offsets"]}

    def committed(self, request: Request) -> Request | None:
        found = self._call("committed", partition_of(request), metadata=True)
        return None if found is None else {"offset": found.offset, "metadata": found.metadata}

    def close(self, _: Request) -> None:
        self._call("close", autocommit=False)
        self._thread.shutdown()


class Admin:
    """KafkaAdminClient."""

    def __init__(self, request: Request) -> None:
        self._admin = kafka_admin.KafkaAdminClient(**connection(request))

    def create_topic(self, request: Request) -> None:
        topic = kafka_admin.NewTopic(request["topic"], request["count"], 1, topic_configs=request["configs"])
        self._admin.create_topics([topic], validate_only=request["validate_only"])

    def delete_topic(self, request: Request) -> None:
        self._admin.delete_topics([request["topic"]])

    def topics(self, _: Request) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def create_partitions(self, request: Request) -> None:
        self._admin.create_partitions({request["topic"]: kafka_admin.NewPartitions(request["count"])})

    @staticmethod
    def _resource(request: Request) -> Any:
        return kafka_admin.ConfigResource(
            kafka_admin.ConfigResourceType.TOPIC, request["topic"], request.get("configs")
        )

    def topic_configs(self, request: Request) -> dict[str, str | None]:
        (described,) = self._admin.describe_configs([self._resource(request)])
        return {entry[0]: entry[1] for entry in described.resources[0][4]}

    def alter_configs(self, request: Request) -> None:
        check(self._admin.alter_configs([self._resource(request)]).resources[0][0])

    def groups(self, _: Request) -> list[str]:
        return [group for group, _ in self._admin.list_consumer_groups()]

    def describe_group(self, request: Request) -> Request:
        (described,) = self._admin.describe_consumer_groups([request["group"]])
        return {"state": described.state, "members": len(described.members)}

    def delete_group(self, request: Request) -> None:
        ((_, error),) = self._admin.delete_consumer_groups([request["group"]])
        check(error.errno)

    def group_offsets(self, request: Request) -> list[Request]:
        offsets = self._admin.list_consumer_group_offsets(request["group"])
        return [{**of._asdict(), "offset": committed.offset} for of, committed in offsets.items()]

    def describe_cluster(self, _: Request) -> Request:
        described = self._admin.describe_cluster()
        brokers = [{"id": each["node_id"], "host": each["host"], "port": each["port"]} for each in described["brokers"]]
        return {
            "cluster_id": described["cluster_id"],
            "controller_id": described["controller_id"],
            "brokers": brokers,
        }

    def close(self, _: Request) -> None:
        self._admin.close()


if __name__ == "__main__":
    kinds = {"open_producer": Producer, "open_consumer": Consumer, "open_admin": Admin}
    Driver({"client": "kafka-python-2", "version": kafka.__version__}, kinds, code_of).run()
