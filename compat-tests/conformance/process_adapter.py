"""The scenarios' vocabulary over a driver: a small program in a client's own language (``PROTOCOL.md``).

Owns: one driver process per client and test session, its requests and replies, and the adapter classes over them.
Requests to different objects run side by side in the driver; replies are told apart by their id.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from typing import Any, ClassVar

import pytest
from harness.waiting import PATIENCE_S

from conformance.adapter import (
    CONSUMER_DEFAULTS,
    POLL_MS,
    PRODUCER_DEFAULTS,
    Admin,
    Client,
    Cluster,
    Committed,
    Consumer,
    ConsumerOptions,
    Delivery,
    Group,
    Headers,
    Partition,
    Producer,
    ProducerOptions,
    Record,
)
from conformance.client_folder import ClientFolder
from conformance.security import access_to, driver_fields

REPLY_TIMEOUT_S = 2 * PATIENCE_S
STOP_TIMEOUT_S = 10


class ClientError(Exception):
    """What a client raised: Kafka's error code, or ``CLIENT_ERROR``, and the client's own words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class Driver:
    """A running driver.  ``call`` is safe from several threads."""

    def __init__(self, folder: ClientFolder) -> None:
        self._name = folder.name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            folder.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=folder.environment(),
            cwd=folder.cache,
        )
        self._waiting: dict[int, Future[Any]] = {}
        self._ids = count(1)
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"driver-{folder.name}", daemon=True)
        self._reader.start()
        try:
            hello = self.call("hello")
            told = (hello["client"], hello["version"])
            assert told == (folder.name, folder.version), f"{folder.name} {folder.version} is pinned, {told} runs"
        except BaseException:
            self.stop()
            raise

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def call(self, op: str, **fields: Any) -> Any:
        """The result of an operation.  Raises ``ClientError``; a driver that does not answer is killed."""
        reply: Future[Any] = Future()
        with self._sending:
            number = next(self._ids)
            self._waiting[number] = reply
            line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            except BrokenPipeError:
                self._fail_all()
        try:
            return reply.result(REPLY_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"{self._name} did not answer {op} {fields}\n{self.stderr()}") from None

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()[-4_000:].decode(errors="replace")

    def stop(self) -> None:
        assert self._process.stdin is not None
        # A driver that has ended by itself may have left unread what was sent.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            waiting = self._waiting.pop(reply["id"])
            if (error := reply.get("error")) is None:
                waiting.set_result(reply.get("result"))
            else:
                waiting.set_exception(ClientError(error["code"], error["message"]))
        self._process.wait()
        self._fail_all()

    def _fail_all(self) -> None:
        while self._waiting:
            _, waiting = self._waiting.popitem()
            waiting.set_exception(AssertionError(f"{self._name}'s driver has ended\n{self.stderr()}"))


def encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def fields_of(partition: Partition) -> dict[str, Any]:
    return {"topic": partition[0], "partition": partition[1]}


class Remote:
    """An object that lives in the driver, by its handle."""

    def __init__(self, client: ProcessClient, kind: str, options: Mapping[str, Any]) -> None:
        self._client = client
        fields = driver_fields(access_to(client.bootstrap))
        if fields is not None:
            client.need("certificates" if fields["mechanism"] is None else "scram")
            options = {**options, "security": fields}
        self._handle = client.call(f"open_{kind}", bootstrap=client.bootstrap, **options)
        self._closed = False

    def call(self, op: str, **fields: Any) -> Any:
        return self._client.call(op, on=self._handle, **fields)

    def code_of(self, op: str, **fields: Any) -> int:
        """The error code that an operation ended with; 0 for success."""
        try:
            self.call(op, **fields)
        except ClientError as error:
            return error.code
        return 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.call("close")


class ProcessProducer(Remote, Producer):
    """Sent records are gathered here until they are waited for."""

    def __init__(self, client: ProcessClient, options: ProducerOptions) -> None:
        self._gathered: list[dict[str, Any]] = []
        self._deliveries: list[Delivery] = []
        Remote.__init__(self, client, "producer", asdict(options))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        for what, is_asked_for in (
            ("headers", bool(headers)),
            ("repeated_headers", len({name for name, _ in headers}) < len(headers)),
            ("binary_headers", any(0 in content for _, content in headers)),
            ("empty_values", b"" in (key, value)),
            ("partitions_by_hand", partition is not None),
            ("timestamps", timestamp_ms is not None),
        ):
            if is_asked_for:
                self._client.need(what)
        self._gathered.append(
            {
                "topic": topic,
                "value": encoded(value),
                "key": encoded(key),
                "headers": [{"key": name, "value": encoded(content)} for name, content in headers],
                "timestamp_ms": timestamp_ms,
                "partition": partition,
            }
        )

    def flush(self) -> list[Delivery]:
        self._produce()
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def begin(self) -> int:
        return self.code_of("begin")

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> int:
        assert isinstance(consumer, ProcessConsumer)
        sent = [{**fields_of(partition), "offset": offset} for partition, offset in offsets.items()]
        return self.code_of("send_offsets", consumer=consumer._handle, offsets=sent)

    def commit(self) -> int:
        self._produce()
        return self.code_of("commit_transaction")

    def abort(self) -> int:
        self._produce()
        return self.code_of("abort_transaction")

    def _produce(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            told = self.call("produce", records=gathered)
            self._deliveries += [Delivery(each["error"], each["partition"], each["offset"]) for each in told]


class ProcessConsumer(Remote, Consumer):
    """A consumer of the driver's."""

    def __init__(self, client: ProcessClient, options: ConsumerOptions) -> None:
        self.revocations = 0
        Remote.__init__(self, client, "consumer", asdict(options))

    def subscribe(self, topic: str) -> None:
        self.call("subscribe", topic=topic)

    def assign(self, partitions: Iterable[Partition]) -> None:
        self.call("assign", partitions=[fields_of(partition) for partition in partitions])

    def assignment(self) -> set[Partition]:
        return {(found["topic"], found["partition"]) for found in self.call("assignment")}

    def poll(self, timeout_ms: int = POLL_MS) -> list[Record]:
        polled = self.call("poll", timeout_ms=timeout_ms)
        self.revocations = polled["revocations"]
        return [self._record(record) for record in polled["records"]]

    @staticmethod
    def _record(record: Mapping[str, Any]) -> Record:
        return Record(
            record["topic"],
            record["partition"],
            record["offset"],
            decoded(record["key"]),
            decoded(record["value"]),
            tuple((header["key"], decoded(header["value"]) or b"") for header in record["headers"]),
            record["timestamp_ms"],
            record["timestamp_type"],
        )

    def seek(self, partition: Partition, offset: int) -> None:
        self.call("seek", **fields_of(partition), offset=offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self.call("seek_to_beginning", **fields_of(partition))

    def seek_to_end(self, partition: Partition) -> None:
        self.call("seek_to_end", **fields_of(partition))

    def position(self, partition: Partition) -> int:
        return int(self.call("position", **fields_of(partition)))

    def beginning_and_end(self, partition: Partition) -> tuple[int, int]:
        beginning, end = self.call("beginning_and_end", **fields_of(partition))
        return beginning, end

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        found = self.call("offset_for_time", **fields_of(partition), timestamp_ms=timestamp_ms)
        return None if found is None else int(found)

    def pause(self, partition: Partition) -> None:
        self.call("pause", **fields_of(partition))

    def resume(self, partition: Partition) -> None:
        self.call("resume", **fields_of(partition))

    def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        self.call("commit", offsets=self._offsets(offsets))

    def commit_async(self, offsets: Mapping[Partition, Committed]) -> None:
        self.call("commit_async", offsets=self._offsets(offsets))

    def _offsets(self, offsets: Mapping[Partition, Committed] | None) -> list[dict[str, Any]] | None:
        if offsets is None:
            return None
        if any(committed.metadata for committed in offsets.values()):
            self._client.need("commit_metadata")
        return [{**fields_of(partition), **committed._asdict()} for partition, committed in offsets.items()]

    def committed(self, partition: Partition) -> Committed | None:
        found = self.call("committed", **fields_of(partition))
        return None if found is None else Committed(found["offset"], found["metadata"])


class ProcessAdmin(Remote, Admin):
    """An admin client of the driver's."""

    def __init__(self, client: ProcessClient) -> None:
        Remote.__init__(self, client, "admin", {})

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> int:
        if validate_only:
            self._client.need("validate_only")
        if configs:
            self._client.need("configs_of_new_topics")
        wanted = {"count": partitions, "configs": dict(configs or {}), "validate_only": validate_only}
        return self.code_of("create_topic", topic=name, **wanted)

    def delete_topic(self, name: str) -> int:
        return self.code_of("delete_topic", topic=name)

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))

    def create_partitions(self, topic: str, total: int) -> int:
        return self.code_of("create_partitions", topic=topic, count=total)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("topic_configs", topic=topic))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> int:
        return self.code_of("alter_configs", topic=topic, configs=dict(configs))

    def incremental_alter_configs(self, topic: str, changes: Sequence[tuple[str, str, str | None]]) -> int:
        told = [{"operation": operation, "name": name, "value": value} for operation, name, value in changes]
        return self.code_of("incremental_alter_configs", topic=topic, changes=told)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        return int(self.call("delete_records", **fields_of(partition), offset=before_offset))

    def groups(self) -> set[str]:
        return set(self.call("groups"))

    def describe_group(self, group: str) -> Group:
        described = self.call("describe_group", group=group)
        return Group(described["state"], described["members"])

    def group_offsets(self, group: str) -> dict[Partition, int]:
        return {(each["topic"], each["partition"]): each["offset"] for each in self.call("group_offsets", group=group)}

    def alter_group_offset(self, group: str, partition: Partition, offset: int) -> int:
        return self.code_of("alter_group_offset", group=group, **fields_of(partition), offset=offset)

    def delete_group(self, group: str) -> int:
        return self.code_of("delete_group", group=group)

    def delete_group_offset(self, group: str, partition: Partition) -> int:
        return self.code_of("delete_group_offset", group=group, **fields_of(partition))

    def list_offset(self, partition: Partition, spec: str | int) -> int:
        self._client.need(str(spec))
        return int(self.call("list_offset", **fields_of(partition), **self._spec(spec)))

    @staticmethod
    def _spec(spec: str | int) -> dict[str, Any]:
        return {"spec": spec} if isinstance(spec, str) else {"spec": "timestamp", "timestamp_ms": spec}

    def log_dir_sizes(self) -> dict[Partition, int]:
        return {(each["topic"], each["partition"]): each["size"] for each in self.call("log_dir_sizes")}

    def describe_cluster(self) -> Cluster:
        described = self.call("describe_cluster")
        brokers = tuple((each["id"], each["host"], each["port"]) for each in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], brokers)


class ProcessClient(Client):
    """A client that runs in a driver; subclasses, one per folder, are made by ``client_class``."""

    folder: ClassVar[ClientFolder]
    _driver: ClassVar[Driver | None] = None

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        kind = type(self)
        if kind._driver is None or not kind._driver.runs:
            kind.end()
            kind._driver = Driver(self.folder)
        self._running = kind._driver

    @classmethod
    def missing_requirement(cls) -> str | None:
        return cls.folder.missing_requirement()

    @classmethod
    def end(cls) -> None:
        driver, cls._driver = cls._driver, None
        if driver is not None:
            driver.stop()

    def need(self, what: str) -> None:
        """Skip the test when the client does not have this."""
        if (reason := self.folder.lacks.get(what)) is not None:
            pytest.skip(f"{self.folder.name}: {reason}")

    def call(self, op: str, **fields: Any) -> Any:
        self.need(op)
        return self._running.call(op, **fields)

    def producer(self, options: ProducerOptions = PRODUCER_DEFAULTS) -> ProcessProducer:
        if options.transactional_id is not None:
            self.need("transactions")
        if options.idempotent:
            self.need("idempotence")
        if options.acks != -1:
            self.need("acks")
        return self.keep(ProcessProducer(self, options))

    def consumer(self, options: ConsumerOptions = CONSUMER_DEFAULTS) -> ProcessConsumer:
        if options.instance_id is not None:
            self.need("static_membership")
        if options.isolation == "read_committed":
            self.need("read_committed")
        return self.keep(ProcessConsumer(self, options))

    def admin(self) -> ProcessAdmin:
        return self.keep(ProcessAdmin(self))


def client_class(folder: ClientFolder) -> type[Client]:
    """The client of a folder, with what it offers as the scenarios' parameters."""
    offers = {name: getattr(folder, name) for name in ("codecs", "partitioners", "assignors", "murmur2_partitioner")}
    return type(f"{folder.name} client", (ProcessClient,), {"folder": folder, **offers})
