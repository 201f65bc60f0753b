"""Kafka's own test classes that can be aimed at a broker from outside, which come with its tools.

Its system tests start them; its unit tests start brokers of their own in the same JVM, so that they say nothing of
another broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from harness.apache_kafka import VERIFIABLE_CONSUMER

from check_it_yourself.check import Better, CheckFailed, Figure, Subject, found
from check_it_yourself.kafka_tools import (
    JVM_OPTIONS,
    VERIFIABLE_PRODUCER,
    KafkaCheck,
    check_all_values,
    events,
    tool_output,
)

PACKAGE = "org.apache.kafka.tools"
COMPATIBILITY_TEST = f"{PACKAGE}.ClientCompatibilityTest"
COMPACTION_TESTER = f"{PACKAGE}.LogCompactionTester"
MESSAGE_COPIER = f"{PACKAGE}.TransactionalMessageCopier"
# What a broker of today is expected to have.
FEATURES = (
    *("offsets-for-times-supported", "cluster-id-supported", "create-topics-supported"),
    *("describe-acls-supported", "describe-configs-supported", "idempotent-producer-supported"),
)
# What a broker before Kafka 0.10.1 has: a consumer is stuck at a record that is larger than it asks for.
LACKS = ("expect-record-too-large-exception",)
VALIDATED = re.compile(r"^Validated (?P<values>\d+) values, (?P<mismatches>\d+) mismatches\.$", re.MULTILINE)
REDUCED = re.compile(r"rows of data consumed \((?P<percent>-?[\d.]+)% reduction\)")
COPIED = re.compile(r'"stage":"ShutdownComplete".*?"totalProcessed":(?P<records>\d+).*?"remaining":(?P<left>\d+)')
TRANSACTIONS = 6
# Some MB, of which the cleaner has its share within seconds.
COMPACTED_RECORDS = 100_000
SLEEP_S = 15


class TestClass(KafkaCheck):
    """One of them; it fails by its exit code, or by what it found."""

    name: ClassVar[str] = "test-classes"
    __test__ = False  # no class of pytest's


class ClientCompatibility(TestClass):
    """Each call of producer, consumer and admin client, against what this version's broker is expected to have."""

    tool = "Kafka's ClientCompatibilityTest"

    def run(self, subject: Subject) -> list[Figure]:
        expected = [word for name in FEATURES for word in (f"--{name}", "true")]
        expected += [word for name in LACKS for word in (f"--{name}", "false")]
        topic = subject.new_topic()
        common = ("--bootstrap-server", subject.bootstrap, "--topic", topic, "--num-cluster-nodes", "1")
        tool_output(COMPATIBILITY_TEST, *common, *expected)
        return [Figure("every feature of this version", "", 1, Better.PASSED)]


class LogCompaction(TestClass):
    """Updates and deletions of keys, read back after the cleaner and compared with what was sent last."""

    tool = "Kafka's LogCompactionTester"
    # Segments that are sealed at once, and a cleaner that looks for them at once.
    properties: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "log.segment.bytes": str(1 << 20),
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.min.cleanable.ratio": "0.01",
        }
    )

    def run(self, subject: Subject) -> list[Figure]:
        output = tool_output(
            COMPACTION_TESTER,
            *("--bootstrap-server", subject.bootstrap, "--messages", str(COMPACTED_RECORDS)),
            *("--topics", "1", "--percent-deletes", "10", "--sleep", str(SLEEP_S)),
            # It leaves a list of what it sent, and one of what it got.
            jvm_options=(*JVM_OPTIONS, f"-Djava.io.tmpdir={subject.directory}"),
        )
        return [Figure("values after compaction", "", validated(output), Better.PASSED)]


class TransactionalCopy(TestClass):
    """A topic is copied in transactions, some of them aborted at random: committed records are all, and each once."""

    tool = "Kafka's TransactionalMessageCopier"

    def run(self, subject: Subject) -> list[Figure]:
        records = subject.size.verified_records
        source, target = subject.new_topics(2)
        server = ("--bootstrap-server", subject.bootstrap, "--max-messages", str(records))
        produced = events(
            tool_output(VERIFIABLE_PRODUCER, *server, "--topic", source, "--acks", "-1", "--throughput", "-1")
        )
        copied = tool_output(
            MESSAGE_COPIER,
            *("--broker-list", subject.bootstrap, "--input-topic", source, "--input-partition", "0"),
            *("--output-topic", target, "--max-messages", str(records), "--consumer-group", source),
            *("--transaction-size", str(records // TRANSACTIONS), "--transactional-id", target),
            "--enable-random-aborts",
        )
        check_copied(copied, records)
        committed = subject.directory / f"{target}.properties"
        committed.write_text("isolation.level=read_committed\n")
        reading = ("--group-id", target, "--reset-policy", "earliest", "--verbose", "--command-config", str(committed))
        consumed = events(tool_output(VERIFIABLE_CONSUMER, *server, "--topic", target, *reading))
        check_all_values(produced, consumed)
        return [Figure("copies in transactions, some aborted", "", records, Better.PASSED)]


def validated(output: str) -> int:
    """How many values LogCompactionTester compared; raises ``CheckFailed`` where one was another, or none was there."""
    reduction = float(found(REDUCED, output, "LogCompactionTester")["percent"])
    last = found(VALIDATED, output, "LogCompactionTester")
    if reduction <= 0:
        raise CheckFailed(f"LogCompactionTester: nothing was compacted within {SLEEP_S} s")
    if int(last["mismatches"]) or not int(last["values"]):
        raise CheckFailed(f"LogCompactionTester: {last[0]}")
    return int(last["values"])


def check_copied(output: str, records: int) -> None:
    """Raises ``CheckFailed`` where TransactionalMessageCopier left something, or copied another number."""
    last = found(COPIED, output, "TransactionalMessageCopier")
    if (int(last["records"]), int(last["left"])) != (records, 0):
        raise CheckFailed(f"TransactionalMessageCopier copied {last['records']} of {records} records")
