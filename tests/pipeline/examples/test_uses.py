"""The four uses on real data, each beside the same answer by plain Python, and what goes wrong under them.

Starts a JVM, Spark's.  Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S

from pybroker.testing import Broker
from tests.pipeline.examples.answers import (
    DIGEST_OF_LOG,
    LOG,
    Written,
    sessions_of,
    storms,
    told_digest,
    told_sessions,
    told_storms,
    written_by,
)

if TYPE_CHECKING:
    from examples.uses.running import Use
    from pybroker.pipeline.records import Record

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(300)]


@pytest.fixture
def run_use(spark: Any, tmp_path: Path) -> Callable[..., Written]:
    """Feeds a use, runs it and returns what it wrote, by topic."""

    def run(use: "Use", records: Iterable["Record"], end: "Record | None" = None) -> Written:
        return written_by(use, spark, tmp_path, records, end)

    return run


def test_storms_of_a_year_are_warned_of_once_each(run_use: Any) -> None:
    from examples.uses import sensors
    from examples.uses.running import end_after

    records = list(sensors.readings())
    told = told_storms(run_use(sensors.USE, records, end_after(records[-1], sensors.END_AFTER)))
    assert len(told) > 10, "2013 had storms"
    assert told == storms(records)


def test_metrics_of_this_machine_have_means_and_rates(run_use: Any) -> None:
    from examples.uses import metrics
    from examples.uses.running import end_after

    records = list(metrics.samples(1.5))
    written = run_use(metrics.USE, records, end_after(records[-1], metrics.END_AFTER))[metrics.BY_SECOND]
    seconds: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        second = datetime.fromtimestamp(record.timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds[f"{record.key.decode()}@{second}"].append(
            (record.timestamp_ms, json.loads(record.value or b"null")["value"])
        )
    assert {key for key, _ in written} == seconds.keys()
    for key, text in written:
        told, samples = json.loads(text), seconds[key]
        values = [value for _, value in samples]
        assert told["samples"] == len(samples)
        if key.startswith(("memory", "load")):
            assert told["mean"] == pytest.approx(sum(values) / len(values), abs=0.01)
            assert told["max"] == max(values)
        elif len(samples) > 1 and values[-1] >= values[0]:  # Linux lets the ticks of waiting for a disk fall.
            span_s = (samples[-1][0] - samples[0][0]) / 1000
            assert told["rate_per_s"] == pytest.approx((values[-1] - values[0]) / span_s, abs=0.01)


def test_a_rate_has_two_digits_and_a_counter_that_fell_has_none(run_use: Any) -> None:
    from examples.uses import metrics
    from examples.uses.running import end_after, json_record

    second = 1_795_456_035
    records = [
        json_record(name, {"metric": name, "kind": "counter", "value": value}, second + after_s)
        for after_s, values in ((0.137, {"grew": 10.0, "fell": 10.0}), (0.239, {"grew": 27.0, "fell": 9.0}))
        for name, value in values.items()
    ]
    written = run_use(metrics.USE, records, end_after(records[-1], metrics.END_AFTER))[metrics.BY_SECOND]
    rates = {key.split("@")[0]: json.loads(value).get("rate_per_s") for key, value in written}
    assert rates == {"grew": round(17.0 / 0.102, 2), "fell": None}


def test_a_use_whose_topics_are_there_already_ends_by_a_line(tmp_path: Path) -> None:
    from examples.uses import sensors
    from examples.uses.running import feed

    broker = PybrokerProcess(tmp_path / "broker").start()
    try:
        feed(sensors.USE, broker.bootstrap, [])
        command = [sys.executable, "-m", sensors.__name__, "--bootstrap", broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    finally:
        broker.kill()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"The job failed: topic {sensors.USE.input_topic}: ")


def test_a_log_becomes_counts_packages_and_dead_letters(run_use: Any) -> None:
    from examples.uses import logs
    from examples.uses.running import end_after

    records = list(logs.lines(LOG.splitlines(keepends=True)))
    assert told_digest(run_use(logs.USE, records, end_after(records[-1], logs.END_AFTER))) == DIGEST_OF_LOG


def test_a_log_that_was_written_just_now_ends_in_the_future(pybroker: Broker) -> None:
    """Its last day closes by an end marker that is days ahead, further than brokers allow by themselves."""
    from examples.uses import logs
    from examples.uses.running import end_after, feed

    now = datetime.now().strftime(logs.TIME_FORMAT)
    records = list(logs.lines([f"{now} status installed tea:all 1.0\n"]))
    fed = feed(logs.USE, pybroker.bootstrap, records, end_after(records[-1], logs.END_AFTER))
    assert fed == 1


def test_sessions_are_those_that_a_fold_over_the_clicks_finds_though_the_broker_is_killed(
    spark: Any, tmp_path: Path
) -> None:
    """The broker is killed between two micro-batches, and started again on its data while the job waits for it."""
    from examples.uses import clicks
    from examples.uses.running import end_after, feed, written
    from pybroker.pipeline.streams.jobs import BrokerTopics, start

    records = list(islice(clicks.clicks(clicks.data_file()), 20_000))
    broker = PybrokerProcess(tmp_path / "broker").start()
    try:
        bootstrap = broker.bootstrap
        feed(clicks.USE, bootstrap, records, end_after(records[-1], clicks.END_AFTER))
        topics = BrokerTopics(spark, bootstrap, {"maxOffsetsPerTrigger": "4000"})
        (query,) = start(clicks.sessions, topics, tmp_path / "checkpoints", until_done=True)
        while query.lastProgress is None:
            assert not query.awaitTermination(1)
        broker.kill()
        broker.start()
        assert query.awaitTermination(120)
        assert len({progress.batchId for progress in query.recentProgress}) > 3, "it went on after the kill"
        found = told_sessions(written(clicks.USE, spark, bootstrap))
    finally:
        broker.kill()
    assert sum(found.values()) > 500
    assert found == sessions_of(records)
