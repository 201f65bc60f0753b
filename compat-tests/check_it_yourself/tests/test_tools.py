"""What the tools print is read as they printed it: ``outputs/`` has what they said of a broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.client_folder import ToolchainMissing
from harness.pybroker_process import PybrokerProcess

from check_it_yourself import c_tools, franz_go_bench, kafka_test_classes, kafka_tools
from check_it_yourself.check import QUICK, CheckFailed, Subject
from check_it_yourself.franz_go_bench import seconds_of
from check_it_yourself.shape_load import MOMENT, NOT_COUNTED, Job, Latencies, p99_ms, run
from check_it_yourself.workload_shapes import WorkloadShape

OUTPUTS = Path(__file__).resolve().parent / "outputs"


def output(name: str) -> str:
    return (OUTPUTS / f"{name}.txt").read_text()


def test_totals_of_the_producer_are_its_rate_and_its_p99() -> None:
    produced = kafka_tools.produced_of(output("producer-perf"), 20_000)
    assert (produced.rate, produced.p99_ms) == (5610.098177, 2278)


def test_rate_of_the_consumer_is_that_of_its_fetches() -> None:
    assert kafka_tools.consumed_rate(output("consumer-perf"), 20_000) == pytest.approx(71942.4, abs=0.1)


def test_latencies_are_the_average_and_the_99th_percentile() -> None:
    average, p99 = kafka_tools.latencies(output("e2e-latency"))
    assert (average.value, p99.value) == (36.692, 334)


def test_rdkafka_performance_is_read_in_both_directions() -> None:
    assert c_tools.produced_rate(output("rdkafka-produce"), 20_000) == 17258
    assert c_tools.consumed_rate(output("rdkafka-consume"), 20_000) == 631_811


def test_franz_gos_seconds_are_thousands_of_records() -> None:
    assert seconds_of(output("franz-go-produce")) == [7700, 15_410, 7700]
    assert seconds_of(output("franz-go-consume")) == [11_560, 58_170]


def test_seconds_without_records_are_left_out() -> None:
    assert seconds_of("0.00 MiB/s; 0.00k records/s\n" + output("franz-go-consume")) == [11_560, 58_170]


@pytest.mark.parametrize(
    "read",
    [
        lambda text: kafka_tools.produced_of(text, 20_000),
        lambda text: kafka_tools.consumed_rate(text, 20_000),
        kafka_tools.latencies,
        lambda text: c_tools.produced_rate(text, 20_000),
        lambda text: c_tools.consumed_rate(text, 20_000),
        seconds_of,
        kafka_test_classes.validated,
        lambda text: kafka_test_classes.check_copied(text, 300),
    ],
)
def test_a_tool_that_says_something_else_has_failed_and_is_quoted(read: Callable[[str], object]) -> None:
    with pytest.raises(CheckFailed, match="broker is gone"):
        read("the broker is gone\n")


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (kafka_tools.produced_of, "producer-perf"),
        (kafka_tools.consumed_rate, "consumer-perf"),
        (c_tools.produced_rate, "rdkafka-produce"),
        (c_tools.consumed_rate, "rdkafka-consume"),
    ],
)
def test_a_transfer_that_ended_early_has_failed(read: Callable[[str, int], object], name: str) -> None:
    with pytest.raises(CheckFailed, match="20000 of 30000 records"):
        read(output(name), 30_000)


def test_a_failed_delivery_is_a_failure() -> None:
    with pytest.raises(CheckFailed, match="1 failed"):
        c_tools.produced_rate(output("rdkafka-produce").replace(", 0 failed", ", 1 failed"), 20_000)


def test_records_that_were_acknowledged_and_consumed_once_pass() -> None:
    produced, consumed = (kafka_tools.events(output(f"verifiable-{which}")) for which in ("producer", "consumer"))
    kafka_tools.check_all_consumed(produced, consumed, 3)
    kafka_tools.check_all_values(produced, consumed)


def test_a_record_that_is_lost_repeated_or_elsewhere_is_noticed() -> None:
    produced, consumed = (kafka_tools.events(output(f"verifiable-{which}")) for which in ("producer", "consumer"))
    records = [event for event in consumed if event["name"] == "record_data"]
    elsewhere = {**records[0], "offset": 7}
    with pytest.raises(CheckFailed, match="1 acknowledged records were not consumed"):
        kafka_tools.check_all_consumed(produced, records[1:], 3)
    with pytest.raises(CheckFailed, match="consumed twice"):
        kafka_tools.check_all_consumed(produced, [*records, records[0]], 3)
    with pytest.raises(CheckFailed, match="not consumed"):
        kafka_tools.check_all_consumed(produced, [*records[1:], elsewhere], 3)
    with pytest.raises(CheckFailed, match="3 of 4 records were acknowledged"):
        kafka_tools.check_all_consumed(produced, records, 4)
    with pytest.raises(CheckFailed, match="1 are missing in the copy, and 0 are too many"):
        kafka_tools.check_all_values(produced, records[1:])


def test_compaction_has_to_have_compacted_and_to_have_kept_every_value() -> None:
    told = output("log-compaction")
    with pytest.raises(CheckFailed, match="nothing was compacted"):
        kafka_test_classes.validated(told)
    compacted = re.sub(r"\(0\.0% reduction\)", "(61.3% reduction)", told)
    assert kafka_test_classes.validated(compacted) == 994
    with pytest.raises(CheckFailed, match="994 values, 2 mismatches"):
        kafka_test_classes.validated(compacted.replace("0 mismatches", "2 mismatches"))


def test_a_copy_in_transactions_is_whole() -> None:
    kafka_test_classes.check_copied(output("transactional-copier"), 300)
    with pytest.raises(CheckFailed, match="copied 300 of 301"):
        kafka_test_classes.check_copied(output("transactional-copier"), 301)


def test_shape_is_named_by_its_topics_and_partitions() -> None:
    shape = WorkloadShape(100, 1)
    publish, end_to_end = shape.figures('{"publish_p99_ms": 2.5, "end_to_end_p99_ms": 3.5}')
    assert shape.tool == "OpenMessaging's shape 100 topics × 1"
    assert (publish.value, end_to_end.value) == (2.5, 3.5)


def test_p99_is_the_nearest_rank() -> None:
    assert p99_ms([number / 1000 for number in range(100)]) == 99
    assert p99_ms([0.004]) == 4


def test_the_first_record_of_a_topic_is_not_counted_and_every_other_one_is() -> None:
    latencies = Latencies()
    latencies.note(MOMENT.pack(NOT_COUNTED))
    latencies.note(MOMENT.pack(time.perf_counter()))
    assert len(latencies.seconds) == 1


def test_a_load_of_several_topics_counts_every_record(tmp_path: Path) -> None:
    with PybrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        topics = Subject(broker.bootstrap, QUICK, tmp_path).new_topics(3, partitions=2)
        outcome = run(Job(broker.bootstrap, topics, records=60, rate=600, record_bytes=100))
    assert outcome.publish_p99_ms > 0
    assert outcome.end_to_end_p99_ms > 0


def test_source_that_is_out_of_reach_is_told_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(franz_go_bench, "REPOSITORY", str(tmp_path / "nowhere"))
    with pytest.raises(ToolchainMissing, match="nowhere cannot be fetched"):
        franz_go_bench.clone(tmp_path / "sources")
