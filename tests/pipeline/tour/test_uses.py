"""The four uses on real data, each beside the same answer by plain Python, and what goes wrong under them.

Starts a JVM, Spark's.  Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.pybroker_process import PybrokerProcess

from pybroker.testing import Broker

if TYPE_CHECKING:
    from pybroker.pipeline.records import Record
    from pybroker.pipeline.uses.running import Use

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(300)]

HOUR_MS = 3_600_000
HALF_AN_HOUR_MS = 1_800_000

LOG = """\
2025-06-24 14:36:25 startup archives unpack
2025-06-24 14:36:25 install curl:amd64 <none> 7.88.1-10
2025-06-24 14:36:26 status half-installed curl:amd64 7.88.1-10
2025-06-24 14:36:27 status installed curl:amd64 7.88.1-10
this line was cut
2025-06-24 14:36:28 status installed tzdata:all 2025b-0
2025-06-25 09:00:00 upgrade curl:amd64 7.88.1-10 7.88.1-12
2025-06-25 09:00:01 status installed curl:amd64 7.88.1-12
2025-06-25 09:00:02 status not-installed tzdata:all <none>
"""


@pytest.fixture
def run_use(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """Feeds a use, runs it and returns what it wrote, by topic."""
    with Broker() as broker:  # of the test alone: a use has the same topics every time

        def run(
            use: "Use", records: Iterable["Record"], end: "Record | None" = None
        ) -> Mapping[str, list[tuple[str, str]]]:
            from pybroker.pipeline.uses.running import feed, process, written

            feed(use, broker.bootstrap, records, end)
            process(use, spark, broker.bootstrap, tmp_path)
            return written(use, spark, broker.bootstrap)

        yield run


def storms(records: Iterable["Record"]) -> set[tuple[str, str, float]]:
    """Station, end of window and fall, window by window."""
    from pybroker.pipeline.uses.sensors import FALL_HPA, READINGS_MIN

    pressures: dict[str, dict[int, float]] = defaultdict(dict)
    counts: Counter[tuple[str, int]] = Counter()
    for record in records:
        value = json.loads(record.value or b"null")
        if value["pressure_hpa"] is not None:
            pressures[value["station"]][record.timestamp_ms] = value["pressure_hpa"]
            counts[value["station"], record.timestamp_ms] += 1
    found = set()
    for station, readings in pressures.items():
        for begin in {at - back * HOUR_MS for at in readings for back in range(6)}:
            inside = [begin + i * HOUR_MS for i in range(6) if begin + i * HOUR_MS in readings]
            fall = readings[inside[0]] - readings[inside[-1]]
            if sum(counts[station, at] for at in inside) >= READINGS_MIN and fall >= FALL_HPA:
                end = datetime.fromtimestamp((begin + 6 * HOUR_MS) / 1000, UTC)
                found.add((station, end.strftime("%Y-%m-%dT%H:%M:%S.000Z"), round(fall, 1)))
    return found


def sessions_of(records: Iterable["Record"]) -> Counter[tuple[str, int, int, int]]:
    """Visitor, first and last click, and number of clicks."""
    clicks: dict[str, list[int]] = defaultdict(list)
    for record in records:
        clicks[record.key.decode()].append(record.timestamp_ms)
    found: Counter[tuple[str, int, int, int]] = Counter()
    for visitor, times in clicks.items():
        run: list[int] = []
        for at in [*sorted(times), float("inf")]:
            if run and at - run[-1] >= HALF_AN_HOUR_MS:
                found[visitor, run[0], run[-1], len(run)] += 1
                run = []
            run.append(int(at) if at != float("inf") else 0)
    return found


def told_sessions(records: Iterable[tuple[str, str]]) -> Counter[tuple[str, int, int, int]]:
    found: Counter[tuple[str, int, int, int]] = Counter()
    for visitor, text in records:
        value = json.loads(text)
        began, ended = (int(datetime.fromisoformat(value[name]).timestamp() * 1000) for name in ("began", "ended"))
        found[visitor, began, ended, value["clicks"]] += 1
    return found


def test_storms_of_a_year_are_warned_of_once_each(run_use: Any) -> None:
    from pybroker.pipeline.uses import sensors
    from pybroker.pipeline.uses.running import end_after

    records = list(sensors.readings())
    written = run_use(sensors.USE, records, end_after(records[-1], sensors.END_AFTER))[sensors.WARNINGS]
    told = [(station, json.loads(value)["until"], json.loads(value)["fall_hpa"]) for station, value in written]
    assert len(told) > 10, "2013 had storms"
    assert sorted(told) == sorted(storms(records))


def test_metrics_of_this_machine_have_means_and_rates(run_use: Any) -> None:
    from pybroker.pipeline.uses import metrics
    from pybroker.pipeline.uses.running import end_after

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
            assert told["mean"] == pytest.approx(sum(values) / len(values))
            assert told["max"] == max(values)
        elif len(samples) > 1 and values[-1] >= values[0]:  # Linux lets the ticks of waiting for a disk fall.
            span_s = (samples[-1][0] - samples[0][0]) / 1000
            assert told["rate_per_s"] == pytest.approx((values[-1] - values[0]) / span_s)


def test_a_rate_is_exact_and_a_counter_that_fell_has_none(run_use: Any) -> None:
    from pybroker.pipeline.uses import metrics
    from pybroker.pipeline.uses.running import end_after, json_record

    second = 1_795_456_035
    records = [
        json_record(name, {"metric": name, "kind": "counter", "value": value}, second + after_s)
        for after_s, values in ((0.137, {"grew": 10.0, "fell": 10.0}), (0.239, {"grew": 27.0, "fell": 9.0}))
        for name, value in values.items()
    ]
    written = run_use(metrics.USE, records, end_after(records[-1], metrics.END_AFTER))[metrics.BY_SECOND]
    rates = {key.split("@")[0]: json.loads(value).get("rate_per_s") for key, value in written}
    assert rates == {"grew": 17.0 / 0.102, "fell": None}


def test_a_log_becomes_counts_packages_and_dead_letters(run_use: Any) -> None:
    from pybroker.pipeline.uses import logs
    from pybroker.pipeline.uses.running import end_after

    records = list(logs.lines(LOG.splitlines(keepends=True)))
    written = run_use(logs.USE, records, end_after(records[-1], logs.END_AFTER))
    assert dict(written[logs.INSTALLED]) == {"curl:amd64": "7.88.1-12"}
    assert [value for _, value in written[logs.DEAD_LETTERS]] == ["this line was cut"]
    by_day = dict(written[logs.BY_DAY])
    assert len(by_day) == len(written[logs.BY_DAY]), "each day is told once"
    totals: Counter[str] = Counter()
    for key, count in by_day.items():
        totals[key.split()[1]] += int(count)
    assert totals == {"startup": 1, "install": 1, "status": 5, "upgrade": 1}


def test_sessions_are_those_that_a_fold_over_the_clicks_finds_though_the_broker_is_killed(
    spark: Any, tmp_path: Path
) -> None:
    """The broker is killed between two micro-batches, and started again on its data while the job waits for it."""
    from pybroker.pipeline.streams.jobs import BrokerTopics, start
    from pybroker.pipeline.uses import clicks
    from pybroker.pipeline.uses.running import end_after, feed, written

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
        found = told_sessions(written(clicks.USE, spark, bootstrap)[clicks.SESSIONS])
    finally:
        broker.kill()
    assert sum(found.values()) > 500
    assert found == sessions_of(records)
