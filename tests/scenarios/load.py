"""Stock clients at work while something is done to their cluster, and whether they noticed.

Owns: producers of three libraries, idempotent and transactional, consumer groups of three libraries, and the check that
nothing failed, and that nothing was lost or doubled.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Set
from contextlib import suppress
from itertools import pairwise
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

TOPIC = "t"
PARTITIONS = 6
GAP_MAX_S = 30  # what no client is to wait for an acknowledgement, whatever is done to the cluster
_PAUSE_S = 0.01
_PER_TRANSACTION = 3


class Load:
    """``with Load(bootstrap) as load:`` runs the clients; the end of the block checks what they did and saw."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._all_written = threading.Event()
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self.written: dict[str, list[float]] = {}  # by client: when each of its records was acknowledged
        self._values: set[bytes] = set()
        self.read: dict[str, list[bytes]] = {}
        self._producers = [self._thread(each) for each in (self._librdkafka, self._kafka_python, self._transactions)]
        self._producers += [self._thread(self._aiokafka_transactions)]
        self._consumers = [self._thread(each) for each in (self._librdkafka_group, self._kafka_python_group)]
        self._consumers += [self._thread(self._aiokafka_group)]

    def __enter__(self) -> Load:
        for thread in (*self._consumers, *self._producers):
            thread.start()
        try:
            self.wait_for_progress()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait_for_progress()
        finally:
            self._end()
        assert not self._errors, self._errors
        if kind is None:
            check_log(self._bootstrap, self._values)
        _collect_sockets()

    def _end(self) -> None:
        self._stopping.set()
        for thread in self._producers:
            thread.join(PATIENCE_S)
        self._all_written.set()
        for thread in self._consumers:
            thread.join(2 * PATIENCE_S)  # longer than it waits for the rest
        clients = (*self._producers, *self._consumers)
        self._errors += [TimeoutError(f"{each.name} did not end") for each in clients if each.is_alive()]

    def wait_for_progress(self, patience_s: float = PATIENCE_S) -> None:
        """Until each client has done something that it had not done when this was called."""
        before = self._done()

        def progress() -> bool:
            assert not self._errors, self._errors
            now = self._done()
            return len(now) == 7 and all(now[name] > before.get(name, 0) for name in now)

        wait_until(progress, "every client to go on", patience_s)

    def longest_gap_s(self) -> dict[str, float]:
        """By producer, the longest time without an acknowledgement."""
        return {
            name: max((later - earlier for earlier, later in pairwise(times)), default=0.0)
            for name, times in self.written.items()
        }

    def _done(self) -> dict[str, int]:
        with self._lock:
            return {name: len(done) for found in (self.written, self.read) for name, done in found.items()}

    def _thread(self, work: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(error)

        return threading.Thread(target=run, name=work.__name__)

    # --- producers ---

    def _wrote(self, name: str, *values: bytes) -> None:
        with self._lock:
            self._values.update(values)
            self.written.setdefault(name, []).append(time.monotonic())

    def _librdkafka(self) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._errors.append(KafkaException(error))
            else:
                self._wrote("librdkafka", message.value() or b"")

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        number = 0
        while not self._stopping.is_set():
            producer.produce(TOPIC, b"librdkafka %d" % number, partition=number % PARTITIONS, on_delivery=delivered)
            producer.poll(_PAUSE_S)
            number += 1
        assert producer.flush(PATIENCE_S) == 0

    def _kafka_python(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True, linger_ms=0)
        sent: list[Any] = []
        while not self._stopping.wait(_PAUSE_S):
            value = b"kafka-python %d" % len(sent)
            future = producer.send(TOPIC, value, partition=len(sent) % PARTITIONS)
            sent.append(future.add_callback(lambda _, value=value: self._wrote("kafka-python", value)))
        for each in sent:
            each.get(PATIENCE_S)
        producer.close()

    def _transactions(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "librdkafka", "log_level": 0}
        producer = Producer(settings)
        _retried(lambda: producer.init_transactions(PATIENCE_S))
        number = 0
        while not self._stopping.wait(_PAUSE_S):
            values = [b"transaction %d" % each for each in range(number, number + _PER_TRANSACTION)]
            number += _PER_TRANSACTION
            producer.begin_transaction()
            for index, value in enumerate(values):
                producer.produce(TOPIC, value, partition=(number + index) % PARTITIONS)
            _retried(lambda: producer.commit_transaction(PATIENCE_S))
            self._wrote("librdkafka transactions", *values)

    def _aiokafka_transactions(self) -> None:
        async def run() -> None:
            number = 0
            async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id="aiokafka") as producer:
                while not self._stopping.is_set():
                    values = [b"aiokafka %d" % each for each in range(number, number + _PER_TRANSACTION)]
                    number += _PER_TRANSACTION
                    async with producer.transaction():
                        for index, value in enumerate(values):
                            await producer.send(TOPIC, value, partition=(number + index) % PARTITIONS)
                    self._wrote("aiokafka transactions", *values)
                    await asyncio.sleep(_PAUSE_S)

        asyncio.run(run())

    # --- consumers ---

    def _saw(self, name: str, value: bytes | None) -> None:
        with self._lock:
            self.read.setdefault(name, []).append(value or b"")

    def _is_missing(self, name: str) -> bool:
        """Whether a consumer has still something to read."""
        if not self._all_written.is_set():
            return True
        with self._lock:
            return not self._values <= set(self.read.get(name, ()))

    def _librdkafka_group(self) -> None:
        consumer = Consumer(_reading(self._bootstrap, "librdkafka group"))
        consumer.subscribe([TOPIC])
        deadline = _Deadline()
        while self._is_missing("librdkafka group"):
            deadline.check(self._all_written.is_set())
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._saw("librdkafka group", message.value())
        consumer.close()

    def _kafka_python_group(self) -> None:
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        consumer = KafkaConsumer(TOPIC, bootstrap_servers=self._bootstrap, group_id="kafka-python group", **settings)
        deadline = _Deadline()
        while self._is_missing("kafka-python group"):
            deadline.check(self._all_written.is_set())
            for records in consumer.poll(100).values():
                for record in records:
                    self._saw("kafka-python group", record.value)
        consumer.close()

    def _aiokafka_group(self) -> None:
        async def run() -> None:
            # Without commits of its own: aiokafka's last one, at the end, tries for ever where it knows no coordinator.
            settings = {
                "auto_offset_reset": "earliest",
                "isolation_level": "read_committed",
                "enable_auto_commit": False,
            }
            name = "aiokafka group"
            consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=self._bootstrap, group_id=name, **settings)
            await consumer.start()
            try:
                deadline = _Deadline()
                while self._is_missing(name):
                    deadline.check(self._all_written.is_set())
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        for record in records:
                            self._saw(name, record.value)
                    with suppress(CommitFailedError):  # its partitions may be another member's by now
                        await consumer.commit()
            finally:
                await asyncio.wait_for(consumer.stop(), PATIENCE_S)  # without brokers it would never end

        asyncio.run(run())


def _collect_sockets() -> None:
    """Collect the sockets that kafka-python could not connect and forgot: another test would be told of them."""
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def check_log(bootstrap: str, written: Set[bytes]) -> None:
    """Each record that was acknowledged lies there once, and nothing else does."""
    found = read_log(bootstrap)
    assert not written - set(found), "lost"
    assert not set(found) - written, "nobody wrote it"
    assert not [value for value, count in found.items() if count > 1], "doubled"


def read_log(bootstrap: str) -> Counter[bytes]:
    """Every committed value, and how often it is there; each partition is read to its end, which nobody moves."""
    partitions = [TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
    consumer = Consumer({**_reading(bootstrap, "check"), "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign(partitions)
    ends = _ends(bootstrap, partitions)
    found: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while ends:
        assert time.monotonic() < deadline, f"partitions could not be read to their ends: {ends}"
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found[message.value() or b""] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            offset, partition = message.offset(), message.partition()
            assert offset is not None
            assert partition is not None
            # Earlier than the end where a transaction is still open: its marker comes, and then the end anew.
            if partition in ends and offset >= ends[partition]:
                del ends[partition]
    consumer.close()
    return found


def _ends(bootstrap: str, partitions: list[TopicPartition]) -> dict[int, int]:
    """By partition, the offset behind its last record, committed or not."""
    consumer = Consumer({**_reading(bootstrap, "check"), "isolation.level": "read_uncommitted"})
    ends = {}
    for each in partitions:
        watermarks = consumer.get_watermark_offsets(each, PATIENCE_S)
        assert watermarks is not None
        ends[each.partition] = watermarks[1]
    consumer.close()
    return ends


class _Deadline:
    """Fails a consumer that does not come to the end."""

    def __init__(self) -> None:
        self._at: float | None = None

    def check(self, runs: bool) -> None:
        """Runs from the first time that ``runs``."""
        if runs and self._at is None:
            self._at = time.monotonic() + PATIENCE_S
        assert self._at is None or time.monotonic() < self._at, "a group did not get everything"


def _reading(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }


def _retried(call: Callable[[], object]) -> None:
    """As librdkafka wants it: an error that says it is retriable is no failure."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
