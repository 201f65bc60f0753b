"""Kafka Streams with exactly-once processing: a word count in two instances, one of which is killed on the way.

The running count of each word tells everything: read committed, it is 1, 2, 3 … up to how often the word came, so a
record that is lost, counted twice or seen although its transaction was aborted shows.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.apache_kafka import STREAMS_RESETTER, run_kafka_tool
from harness.broker_probe import announced_keys
from harness.child_process import ChildProcess
from harness.waiting import wait_until

from conformance.adapter import Admin, Client, Consumer, ConsumerOptions, Record
from conformance.all_clients import IN_PROCESS
from conformance.broker_under_test import BrokerUnderTest
from conformance.client_folder import ClientFolder, all_applications
from conformance.conftest import MakeTopic

STREAMS_GROUP_HEARTBEAT = 88

INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 2
LINES_PER_PART, WORDS_PER_LINE = 800, 4
PARTS = 3
VOCABULARY = [f"word-{number}" for number in range(50)]
# A killed instance is missed after the shortest session that Kafka allows, or after a streams group's default.
SESSION_TIMEOUT_MS = 6_000
PATIENCE_S = 150

pytestmark = [pytest.mark.built, pytest.mark.timeout(400)]


@pytest.fixture
def word_count() -> ClientFolder:
    (folder,) = [folder for folder in all_applications() if folder.name == "kafka-streams"]
    if (reason := folder.missing_requirement()) is not None:
        pytest.skip(reason)
    return folder


@pytest.fixture
def python(broker: BrokerUnderTest) -> Iterator[Client]:
    """Writes the input and reads the output."""
    made = IN_PROCESS["librdkafka"](broker.bootstrap)
    yield made
    made.close()


class Instance:
    """One process of the application with a state directory of its own, which outlives a kill."""

    def __init__(self, folder: ClientFolder, directory: Path, arguments: list[str]) -> None:
        directory.mkdir()
        self._log_path = directory / "log"
        self._arguments = [*folder.command(), "WordCount", *arguments, f"state.dir={directory / 'state'}"]
        # Where RocksDB unpacks its library: a process that is killed leaves it behind.
        self._environment = {**folder.environment(), "ROCKSDB_SHAREDLIB_DIR": str(directory)}
        self._process: ChildProcess | None = None
        self._log_start = 0

    def start(self) -> None:
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        self._process = ChildProcess(self._arguments, self._log_path, self._environment)

    def has_tasks(self) -> bool:
        """Whether the instance runs, and has work."""
        self.check_alive()
        told = re.findall(rb"^RUNNING (\d+)$", self._log_path.read_bytes()[self._log_start :], re.MULTILINE)
        return bool(told) and int(told[-1]) > 0

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.exit_code is None, self._process.log_tail()

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """SIGTERM; it commits, and stays a member of the group until its session ends, as Streams wants it."""
        assert self._process is not None
        process, self._process = self._process, None
        assert process.terminate(PATIENCE_S) == 128 + 15, process.log_tail()


class Counts:
    """What the output topic has said so far, read committed: the running counts of each word, in their order."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._partitions = [(topic, partition) for partition in range(OUTPUT_PARTITIONS)]
        self._consumer = consumer
        self._consumer.assign(self._partitions)
        self.by_word: dict[str, list[int]] = {}
        self.total = 0

    def read_until(self, total: int) -> None:
        def enough() -> bool:
            self._add(self._consumer.poll())
            return self.total >= total

        wait_until(enough, f"{total} counts", PATIENCE_S)

    def read_to_the_end(self) -> None:
        def at_the_end() -> bool:
            self._add(self._consumer.poll())
            ends = [self._consumer.beginning_and_end(partition)[1] for partition in self._partitions]
            return ends == [self._consumer.position(partition) for partition in self._partitions]

        wait_until(at_the_end, "the end of the output", PATIENCE_S)

    def _add(self, records: list[Record]) -> None:
        for record in records:
            assert record.key is not None
            assert record.value is not None
            self.by_word.setdefault(record.key.decode(), []).append(int(record.value))
        self.total += len(records)


def lines() -> list[str]:
    chance = random.Random(43)
    return [" ".join(chance.choices(VOCABULARY, k=WORDS_PER_LINE)) for _ in range(PARTS * LINES_PER_PART)]


def send(client: Client, topic: str, some: list[str]) -> None:
    producer = client.producer()
    for number, line in enumerate(some):
        producer.send(topic, line.encode(), partition=number % INPUT_PARTITIONS)
    assert {delivery.error for delivery in producer.flush()} == {0}


def settings(broker: BrokerUnderTest, application: str, protocol: str) -> list[str]:
    own = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 500} if protocol == "classic" else {}
    values = {
        "application.id": application,
        "bootstrap.servers": broker.bootstrap,
        "group.protocol": protocol,
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": 1,
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,  # every count leaves, not only the last of an interval
        "repartition.purge.interval.ms": 500,
        **own,
    }
    return [f"{name}={value}" for name, value in values.items()]


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_each_word_is_counted_exactly_once_though_an_instance_is_killed(
    protocol: str,
    broker: BrokerUnderTest,
    word_count: ClientFolder,
    python: Client,
    topic_admin: Admin,
    make_topic: MakeTopic,
    name: str,
    tmp_path: Path,
) -> None:
    if protocol == "streams" and STREAMS_GROUP_HEARTBEAT not in announced_keys(broker.host, broker.port):
        pytest.skip("the broker serves no streams groups (KIP-1071)")
    source, output = make_topic(INPUT_PARTITIONS), make_topic(OUTPUT_PARTITIONS)
    arguments = [source, output, *settings(broker, name, protocol)]
    first, second = (Instance(word_count, tmp_path / which, arguments) for which in ("first", "second"))
    counts = Counts(python.consumer(ConsumerOptions(isolation="read_committed")), output)
    text = lines()
    parts = [text[start : start + LINES_PER_PART] for start in range(0, len(text), LINES_PER_PART)]
    with ExitStack() as cleanup:
        for instance in (first, second):
            cleanup.callback(instance.kill)
            instance.start()
        wait_until(lambda: first.has_tasks() and second.has_tasks(), "work for both instances", PATIENCE_S)
        send(python, source, parts[0])
        counts.read_until(LINES_PER_PART)
        send(python, source, parts[1])
        first.kill()
        send(python, source, parts[2])
        first.start()
        counts.read_until(len(text) * WORDS_PER_LINE)
        repartitioned = f"{name}-words-repartition"
        wait_until(lambda: purged(topic_admin, repartitioned), f"purged records of {repartitioned}", PATIENCE_S)
        first.stop()
        second.stop()
    counts.read_to_the_end()
    expected = Counter(word for line in text for word in line.split(" "))
    assert counts.by_word == {word: list(range(1, count + 1)) for word, count in expected.items()}
    assert_topics_of_the_application(topic_admin, name)
    if protocol == "classic":
        assert_reset_starts_anew(broker, topic_admin, name, source)


def purged(admin: Admin, topic: str) -> bool:
    """Streams deletes what it has read of a repartition topic, which keeps everything otherwise."""
    return any(admin.list_offset((topic, partition), "earliest") > 0 for partition in range(INPUT_PARTITIONS))


def assert_topics_of_the_application(admin: Admin, application: str) -> None:
    repartition, changelog = f"{application}-words-repartition", f"{application}-counts-changelog"
    own = {topic: count for topic, count in admin.topics().items() if topic.startswith(application)}
    assert own == {repartition: INPUT_PARTITIONS, changelog: INPUT_PARTITIONS}
    assert admin.topic_configs(changelog)["cleanup.policy"] == "compact"
    configs = admin.topic_configs(repartition)
    wanted = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(50 << 20)}
    assert {config: configs[config] for config in wanted} == wanted


def assert_reset_starts_anew(broker: BrokerUnderTest, admin: Admin, application: str, source: str) -> None:
    """Kafka's tool ends the memberships, deletes the topics, and takes the group to the beginning of the input."""
    partitions = [(source, partition) for partition in range(INPUT_PARTITIONS)]
    offsets = admin.group_offsets(application)
    assert {offsets[partition] for partition in partitions} == {PARTS * LINES_PER_PART // INPUT_PARTITIONS}
    arguments = ("--bootstrap-server", broker.bootstrap, "--application-id", application, "--input-topics", source)
    run_kafka_tool(STREAMS_RESETTER, *arguments, "--force", timeout_s=PATIENCE_S)
    offsets = admin.group_offsets(application)
    assert {offsets[partition] for partition in partitions} == {0}
    wait_until(lambda: not any(topic.startswith(application) for topic in admin.topics()), "the topics' deletion")
