"""The cleaner's process beside a real broker: it comes and goes with the work, is replaced when it dies, and never
outlives the broker; consumers read on while segments are swapped."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S, wait_until

from pybroker.storage.cleaner.__main__ import Share, starves
from pybroker.storage.files import os_process

SETTINGS = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "200"}
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "200",
}
KEYS = 200


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PybrokerProcess]:
    process = PybrokerProcess(tmp_path, SETTINGS)
    process.start()
    yield process
    process.kill()


def compacted_topic(broker: PybrokerProcess) -> str:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=CONFIGS)])[name].result(PATIENCE_S)
    return name


def produce(broker: PybrokerProcess, topic: str, first: int, count: int) -> None:
    """Records ``first`` and on; number i has key i modulo KEYS."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 50_000})
    failed: list[object] = []
    for i in range(first, first + count):
        value = b"%d." % i + bytes(200)
        producer.produce(
            topic,
            key=b"k%d" % (i % KEYS),
            value=value,
            on_delivery=lambda error, _: failed.extend([error] if error else []),
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def consume(broker: PybrokerProcess, topic: str, end_offset: int) -> dict[bytes, tuple[int, int]]:
    """(offset, number) of the last record of every key, read from the beginning; offsets have to rise."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    last: dict[bytes, tuple[int, int]] = {}
    position, deadline = -1, time.monotonic() + PATIENCE_S
    try:
        while position < end_offset - 1:
            assert time.monotonic() < deadline, f"stuck behind {position} of {end_offset}"
            message: Any = consumer.poll(0.2)
            if message is None:
                continue
            assert not message.error(), message.error()
            assert message.offset() > position
            position = message.offset()
            last[message.key()] = (position, int(message.value().split(b".")[0]))
    finally:
        consumer.close()
    return last


def log_bytes(broker: PybrokerProcess, topic: str) -> int:
    total = 0
    for path in (broker.data_directory / f"{topic}-0").glob("*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid) and (task / "children").exists()
        for child in (task / "children").read_text().split()
    ]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_last_values(found: dict[bytes, tuple[int, int]], count: int) -> None:
    assert found == {b"k%d" % (i % KEYS): (i, i) for i in range(count - KEYS, count)}


def test_process_comes_with_the_work_and_goes_after_it_while_consumers_read_on(broker: PybrokerProcess) -> None:
    topic = compacted_topic(broker)
    assert children(broker.pid) == []
    seen: list[int] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.extend(children(broker.pid))
            time.sleep(0.005)

    def read(count: int) -> None:
        try:
            assert_last_values(consume(broker, topic, count), count)
        except BaseException as error:
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    readers = [threading.Thread(target=read, args=(40_000,)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for part in range(4):
        produce(broker, topic, part * 10_000, 10_000)
    for reader in readers:
        reader.join()
    wait_until(lambda: log_bytes(broker, topic) < 1_500_000, "the log was not compacted")
    wait_until(lambda: not children(broker.pid), "the cleaner's process stayed")
    done.set()
    watcher.join()
    assert failures == []
    assert seen
    assert_last_values(consume(broker, topic, 40_000), 40_000)
    broker.stop()
    broker.start()
    assert_last_values(consume(broker, topic, 40_000), 40_000)


def test_process_gives_way_to_whoever_wants_a_processor(broker: PybrokerProcess) -> None:
    topic = compacted_topic(broker)
    policies: set[int] = set()
    parts = itertools.count()

    def seen_idle() -> bool:
        produce(broker, topic, next(parts) * 2_000, 2_000)
        with suppress(ProcessLookupError):
            policies.update(os.sched_getscheduler(child) for child in children(broker.pid))
        return os.SCHED_IDLE in policies

    wait_until(seen_idle, "the cleaner's process competes with the broker")


@pytest.mark.parametrize(
    ("ran_s", "waited_s", "verdict"),
    [(0.0, 4.0, False), (0.1, 6.0, True), (0.0, 6.0, True), (1.0, 6.0, False), (100.0, 1999.0, False)],
)
def test_process_that_hardly_ever_runs_asks_for_its_share(ran_s: float, waited_s: float, verdict: bool) -> None:
    assert starves(ran_s, waited_s) is verdict


def test_process_looks_for_its_share_once_in_a_while_and_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    asked: list[None] = []
    now_s = 0.0

    def processor_seconds() -> tuple[float, float]:
        looks.append(now_s)
        return 0.0, now_s

    monkeypatch.setattr(os_process, "processor_seconds", processor_seconds)
    monkeypatch.setattr(os_process, "run_among_others", lambda: asked.append(None))
    share = Share()
    for piece in range(20_000):
        now_s = piece / 1000
        share.look(now_s)
    assert len(asked) == 1
    assert len(looks) <= 7


def test_killed_process_is_replaced_and_nothing_is_lost(broker: PybrokerProcess) -> None:
    topic = compacted_topic(broker)
    killed = 0
    for part in range(6):
        produce(broker, topic, part * 5_000, 5_000)
        deadline = time.monotonic() + 0.4
        while killed < 2 and time.monotonic() < deadline:
            for child in children(broker.pid):
                os.kill(child, signal.SIGKILL)
                killed += 1
                deadline = 0
            time.sleep(0.001)
    assert killed
    wait_until(lambda: log_bytes(broker, topic) < 1_500_000, "the log was not compacted")
    assert_last_values(consume(broker, topic, 30_000), 30_000)
    partition = broker.data_directory / f"{topic}-0"
    wait_until(lambda: not list(partition.glob("*.cleaned")), "half-written files stayed")


@pytest.mark.slow
def test_process_ends_with_a_killed_broker_whose_log_is_whole_at_the_next_start(broker: PybrokerProcess) -> None:
    topic = compacted_topic(broker)
    count = 0
    for delay_s in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2):
        produce(broker, topic, count, 8_000)
        count += 8_000
        deadline = time.monotonic() + 2
        while not (cleaners := children(broker.pid)) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(delay_s)
        broker.kill()
        wait_until(lambda: not any(map(is_alive, cleaners)), "the cleaner outlived the broker")
        broker.start()
        assert_last_values(consume(broker, topic, count), count)
    wait_until(lambda: log_bytes(broker, topic) < 1_500_000, "the log was not compacted")
    assert_last_values(consume(broker, topic, count), count)
