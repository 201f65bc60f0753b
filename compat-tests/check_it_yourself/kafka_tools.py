"""Kafka's own performance tools, and its verifiable producer and consumer, of the version that is the reference.

Owns: their arguments and what they print.  Settings are the tools' own, but for ``acks=all``, which is named because
it is what the figures depend on most.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from conformance.client_folder import ToolchainMissing
from harness.apache_kafka import (
    CONSUMER_PERFORMANCE,
    PRODUCER_PERFORMANCE,
    VERIFIABLE_CONSUMER,
    missing_requirement,
    run_kafka_tool,
)

from check_it_yourself.check import RECORD_BYTES, TIMEOUT_S, Better, Check, CheckFailed, Figure, Subject, found

END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
# As Kafka's scripts start its tools: the same for both brokers.
JVM_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC")
LATENCY_RECORD_BYTES = 100

PRODUCED = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec.*? (?P<p99>[\d.]+) ms 99th", re.MULTILINE
)
AVERAGE = re.compile(r"^Avg latency: (?P<ms>[\d.]+) ms$", re.MULTILINE)
PERCENTILES = re.compile(r"^Percentiles: .*?99th = (?P<ms>\d+)", re.MULTILINE)


class Produced(NamedTuple):
    """What kafka-producer-perf-test found: records/s, and the 99th percentile of latencies in ms."""

    rate: float
    p99_ms: float


class KafkaCheck(Check):
    """A tool in Kafka's jars."""

    def prepare(self) -> None:
        if (reason := missing_requirement()) is not None:
            raise ToolchainMissing(reason)


class ProducerPerf(KafkaCheck):
    """As fast as it goes, with acks=all."""

    name: ClassVar[str] = "producer-perf"
    tool = "kafka-producer-perf-test"

    def run(self, subject: Subject) -> list[Figure]:
        produced = produce(subject, subject.new_topic())
        return [
            Figure("produce 1 kB, acks=all", "records/s", produced.rate, Better.HIGHER),
            Figure("latency of those, p99", "ms", produced.p99_ms, Better.LOWER),
        ]


class ConsumerPerf(KafkaCheck):
    """What a consumer fetches, without the time that joining its group takes."""

    name: ClassVar[str] = "consumer-perf"
    tool = "kafka-consumer-perf-test"

    def run(self, subject: Subject) -> list[Figure]:
        topic, records = subject.new_topic(), subject.size.records
        produce(subject, topic)
        output = tool_output(
            CONSUMER_PERFORMANCE,
            *("--bootstrap-server", subject.bootstrap, "--topic", topic, "--num-records", str(records)),
            *("--timeout", "60000"),
        )
        return [Figure("consume 1 kB", "records/s", consumed_rate(output, records), Better.HIGHER)]


class EndToEndLatency(KafkaCheck):
    """One record at a time, from the producer to the consumer, with acks=all."""

    name: ClassVar[str] = "e2e-latency"
    tool = "kafka-e2e-latency"

    def run(self, subject: Subject) -> list[Figure]:
        output = tool_output(
            END_TO_END_LATENCY,
            *("--bootstrap-server", subject.bootstrap, "--topic", subject.new_topic(), "--producer-acks", "all"),
            *("--num-records", str(subject.size.latency_records), "--record-size", str(LATENCY_RECORD_BYTES)),
        )
        return latencies(output)


class Verifiable(KafkaCheck):
    """Every record that the one tool was acknowledged, the other one takes: once, where the acknowledgement said."""

    name: ClassVar[str] = "verifiable"
    tool = "kafka-verifiable-producer, -consumer"

    def run(self, subject: Subject) -> list[Figure]:
        topic, records = subject.new_topic(), subject.size.verified_records
        common = ("--bootstrap-server", subject.bootstrap, "--topic", topic, "--max-messages", str(records))
        produced = events(tool_output(VERIFIABLE_PRODUCER, *common, "--acks", "-1", "--throughput", "-1"))
        consumed = events(
            tool_output(VERIFIABLE_CONSUMER, *common, "--group-id", topic, "--reset-policy", "earliest", "--verbose")
        )
        check_all_consumed(produced, consumed, records)
        (summary,) = (event for event in produced if event["name"] == "tool_data")
        return [
            Figure("acknowledged records consumed, each once", "", records, Better.PASSED),
            Figure("produce numbers, acks=all", "records/s", float(summary["avg_throughput"]), Better.HIGHER),
        ]


def produce(subject: Subject, topic: str) -> Produced:
    """Fill a topic with the size's records by kafka-producer-perf-test."""
    records = subject.size.records
    output = tool_output(
        PRODUCER_PERFORMANCE,
        *("--bootstrap-server", subject.bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1", "--command-property", "acks=all"),
    )
    return produced_of(output, records)


def tool_output(main_class: str, *arguments: str, jvm_options: Sequence[str] = JVM_OPTIONS) -> str:
    """What one of Kafka's tools printed; raises ``CheckFailed`` where it failed, and ``TimeoutExpired``."""
    done = run_kafka_tool(main_class, *arguments, timeout_s=TIMEOUT_S, check=False, jvm_options=jvm_options)
    if done.returncode:
        said = (done.stdout.strip() or done.stderr.strip())[-500:]
        raise CheckFailed(f"{main_class.rpartition('.')[2]} exited with {done.returncode}: {said}")
    return done.stdout


def produced_of(output: str, records: int) -> Produced:
    """The totals of kafka-producer-perf-test; raises ``CheckFailed`` where not all records were sent."""
    last = found(PRODUCED, output, "kafka-producer-perf-test")
    if int(last["records"]) != records:
        raise CheckFailed(f"kafka-producer-perf-test sent {last['records']} of {records} records")
    return Produced(float(last["rate"]), float(last["p99"]))


def consumed_rate(output: str, records: int) -> float:
    """Records/s while kafka-consumer-perf-test fetched; raises ``CheckFailed`` where it got fewer than ``records``."""
    lines = [line.split(", ") for line in output.splitlines() if ", " in line]
    if len(lines) < 2 or "fetch.nMsg.sec" not in lines[-2]:
        raise CheckFailed(f"kafka-consumer-perf-test printed no figures: {output.strip()[-500:] or 'nothing'}")
    row = dict(zip(lines[-2], lines[-1], strict=True))
    if int(row["data.consumed.in.nMsg"]) < records:
        raise CheckFailed(f"kafka-consumer-perf-test got {row['data.consumed.in.nMsg']} of {records} records")
    return float(row["fetch.nMsg.sec"])


def latencies(output: str) -> list[Figure]:
    """The average and, in whole ms as kafka-e2e-latency has it, the 99th percentile."""
    average = float(found(AVERAGE, output, "kafka-e2e-latency")["ms"])
    p99 = float(found(PERCENTILES, output, "kafka-e2e-latency")["ms"])
    return [
        Figure("one record at a time, average", "ms", average, Better.LOWER),
        Figure("one record at a time, p99 (whole)", "ms", p99, Better.LOWER),
    ]


def events(output: str) -> list[dict[str, Any]]:
    """The JSON lines of a verifiable tool."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def check_all_consumed(produced: list[dict[str, Any]], consumed: list[dict[str, Any]], records: int) -> None:
    """Raises ``CheckFailed`` unless all were acknowledged, and each came once, where it had been acknowledged."""
    acknowledged = places(produced, "producer_send_success")
    taken = places(consumed, "record_data")
    if acknowledged.total() != records:
        raise CheckFailed(f"{acknowledged.total()} of {records} records were acknowledged")
    if lost := acknowledged - taken:
        raise CheckFailed(f"{lost.total()} acknowledged records were not consumed, among them {next(iter(lost))}")
    if added := taken - acknowledged:
        raise CheckFailed(f"{added.total()} records were consumed twice or never acknowledged: {next(iter(added))}")


def check_all_values(produced: list[dict[str, Any]], copied: list[dict[str, Any]]) -> None:
    """Raises ``CheckFailed`` unless the values of a copy are those that were acknowledged, each as often."""
    wanted = Counter(each["value"] for each in produced if each["name"] == "producer_send_success")
    there = Counter(each["value"] for each in copied if each["name"] == "record_data")
    if wanted != there:
        missing, added = (wanted - there).total(), (there - wanted).total()
        raise CheckFailed(f"of {wanted.total()} records {missing} are missing in the copy, and {added} are too many")


def places(told: list[dict[str, Any]], name: str) -> Counter[tuple[int, int, str]]:
    """How often each partition, offset and value was told by events of this name."""
    return Counter((each["partition"], each["offset"], each["value"]) for each in told if each["name"] == name)
