"""The benchmark's generators do what they say: on a real broker, in small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess

from bench import context, group_load, transaction_load
from bench.bars import BARS, Bar, drawn, headlines, judge, judge_bar
from bench.bars import Kind as BarKind
from bench.contestants import KAFKA, PYBROKER
from bench.loads import LatencyOutcome, Percentiles
from bench.measurements import Measurements, ratio_text
from bench.parts import FULL_ONLY, PARTS, latency, startup
from bench.parts.warmup import RUNS_IN_VAIN, RUNS_MAX, highest_rate
from bench.wire import OFFSET_COMMIT, Client
from pybroker.testing import Broker

MEMBERS, PARTITIONS = 5, 12
SESSION_MS = 300
SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "20",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(SHORT_SESSIONS) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        yield f"{broker.host}:{broker.port}"


def test_every_bar_is_on_a_part_that_there_is() -> None:
    assert {bar.part for bar in BARS} == set(PARTS), "every part has a row"
    assert set(FULL_ONLY) <= set(PARTS)
    assert len({(bar.part, bar.metric, bar.kind) for bar in BARS}) == len(BARS)
    assert len({bar.what for bar in BARS}) == len(BARS)


def job_of(bootstrap: str, protocol: str) -> group_load.Job:
    return group_load.Job(
        bootstrap, "t", protocol, members=MEMBERS, partitions=PARTITIONS, session_ms=SESSION_MS, heartbeat_ms=20
    )


@pytest.mark.parametrize("protocol", group_load.MEMBERS)
def test_group_settles_only_after_the_dead_member_s_session(bootstrap: str, protocol: str) -> None:
    outcome = group_load.run(job_of(bootstrap, protocol))
    assert 0 < outcome.join_s < 30
    assert SESSION_MS / 1000 <= outcome.settle_s < 30


def test_group_is_settled_when_everybody_has_its_share_of_one_generation(bootstrap: str) -> None:
    group = group_load.Group(job_of(bootstrap, group_load.CLASSIC))
    assert not group.is_settled()
    for number, member in enumerate(group.members):
        member.partitions = frozenset(range(number, PARTITIONS, MEMBERS))
    assert group.is_settled()
    group.members[0].epoch = 1
    assert not group.is_settled(), "in two generations"
    group.members[0].epoch = 0
    group.members[1].partitions = group.members[0].partitions
    assert not group.is_settled(), "a partition has two owners"
    group.members[1].partitions = frozenset()
    group.members[0].partitions = frozenset(range(PARTITIONS)) - group.members[2].partitions
    assert not group.is_settled(), "a member has nothing"
    group.close()


def test_small_ratio_is_told_in_digits_that_say_something() -> None:
    assert [ratio_text(ratio) for ratio in (17.717, 1.0, 0.104, 0.0381, 0.003776)] == [
        "17.72",
        "1.00",
        "0.10",
        "0.038",
        "0.0038",
    ]


def test_next_measurement_begins_when_the_files_of_deleted_topics_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = PybrokerProcess(tmp_path, {})
    deleted = [broker.data_directory / f"t-{n}.{n:032x}-delete" for n in range(3)]
    for directory in deleted:
        directory.mkdir(parents=True)
    synced_beside: list[int] = []

    def remove_one(_seconds: float) -> None:
        if deleted:
            deleted.pop().rmdir()

    monkeypatch.setattr("os.sync", lambda: synced_beside.append(len(deleted)))
    monkeypatch.setattr("time.sleep", remove_one)
    context.settle([broker])
    assert (deleted, synced_beside) == ([], [3, 0])


def rounds(**samples: list[float]) -> Measurements:
    """A part with one metric."""
    measurements = Measurements()
    for broker, values in samples.items():
        for value in values:
            measurements.add("tiny", "8×5 requests", "1/s", broker, value)
    return measurements


def bar_of(kind: BarKind, limit: float | None) -> Bar:
    return Bar("tiny requests", "tiny", "8×5 requests", kind, limit)


def test_bar_is_judged_by_the_median_of_the_rounds_and_shows_their_spread() -> None:
    # What slows both brokers down in one round is none of its ratio.
    measurements = rounds(kafka=[100.0, 10.0, 100.0], pybroker=[250.0, 30.0, 200.0], floor=[500.0, 50.0, 500.0])
    verdict = judge_bar(bar_of(BarKind.RATIO_AT_LEAST, 2.5), measurements)
    assert (verdict.figure, verdict.spread, verdict.wanted) == ("2.50×", "2.00–3.00", "≥ 2.5× Kafka")
    assert (verdict.met, verdict.ahead) == (True, PYBROKER)
    assert judge_bar(bar_of(BarKind.RATIO_AT_LEAST, 2.6), measurements).met is False
    least = judge_bar(bar_of(BarKind.RATIO_AT_MOST, 0.3), measurements)
    assert (least.met, least.ahead) == (False, KAFKA)
    floor = judge_bar(bar_of(BarKind.FLOOR_AT_LEAST, 0.45), measurements)
    assert (floor.figure, floor.spread, floor.met, floor.ahead) == ("0.50", "0.40–0.60", True, None)
    assert floor.wanted == "≥ 0.45 of the floor"
    alone = judge_bar(bar_of(BarKind.AT_MOST, 199), measurements)
    assert (alone.figure, alone.met, alone.wanted) == ("200 1/s", False, "≤ 199 1/s")


def test_bar_lies_at_its_share_of_what_it_is_held_against() -> None:
    metric = rounds(kafka=[100.0], pybroker=[250.0], floor=[500.0]).get("tiny", "8×5 requests")
    assert metric is not None
    places = {kind: bar_of(kind, 3).place(metric) for kind in BarKind}
    assert places == {
        BarKind.RATIO_AT_LEAST: 300,
        BarKind.RATIO_AT_MOST: 300,
        BarKind.FLOOR_AT_LEAST: 1500,
        BarKind.AT_MOST: 3,
        BarKind.AT_LEAST: 3,
    }
    assert bar_of(BarKind.RATIO_AT_LEAST, None).place(metric) is None


def test_load_without_a_bar_is_told_and_not_judged() -> None:
    verdict = judge_bar(bar_of(BarKind.RATIO_AT_LEAST, None), rounds(kafka=[100.0], pybroker=[90.0]))
    assert (verdict.figure, verdict.wanted, verdict.met, verdict.ahead) == ("0.90×", "", None, KAFKA)


def test_headlines_are_six_to_eight_loads_that_are_compared_with_kafka() -> None:
    chosen = [bar for bar in BARS if bar.is_headline]
    assert 6 <= len(chosen) <= 8
    assert all(bar.kind in (BarKind.RATIO_AT_LEAST, BarKind.RATIO_AT_MOST) for bar in chosen)


def test_picture_has_the_headlines_and_every_other_load_that_kafka_wins() -> None:
    measurements = rounds(kafka=[100.0], pybroker=[250.0])
    measurements.add("tiny", "8×5 p99", "µs", KAFKA, 10.0)
    measurements.add("tiny", "8×5 p99", "µs", PYBROKER, 9.0)
    measurements.add("tiny", "8×1 p99", "µs", KAFKA, 10.0)
    measurements.add("tiny", "8×1 p99", "µs", PYBROKER, 11.0)
    assert [verdict.bar.what for verdict in headlines(measurements)] == ["tiny requests, 8×5"]
    assert [verdict.bar.what for verdict in drawn(measurements)] == ["tiny requests, 8×1, p99", "tiny requests, 8×5"]


def test_bar_that_was_not_measured_is_neither_met_nor_missed() -> None:
    verdicts = judge(Measurements())
    assert {(verdict.met, verdict.ahead, verdict.figure) for verdict in verdicts} == {(None, None, "not measured")}
    assert not headlines(Measurements())
    assert not drawn(Measurements())


def test_client_tells_what_is_served_and_what_was_committed(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        assert client.serves(OFFSET_COMMIT)
        assert not client.serves(32_000)
        client.await_coordinator("nobody")
        assert client.committed_offsets("nobody") == {}


def test_member_whose_broker_goes_says_so() -> None:
    with Broker() as broker:
        group = group_load.Group(job_of(f"{broker.host}:{broker.port}", group_load.CLASSIC))
    first, *_ = group.members
    first.socket.setblocking(True)
    with pytest.raises((EOFError, OSError)):
        first.read()
    group.close()


def warm(rates: Iterator[float]) -> tuple[float, int]:
    """The highest rate, and how many runs it took to find it."""
    runs = 0

    def rate_of_a_run() -> float:
        nonlocal runs
        runs += 1
        return next(rates)

    quiet = context.Context([], context.QUICK, Path())
    return highest_rate(quiet, PYBROKER, rate_of_a_run), runs


def test_a_broker_is_warm_once_it_has_not_become_faster_for_a_while() -> None:
    growing = [100.0, 200.0, 150.0, 190.0, 400.0]
    last = [410.0, 300.0, 405.0]
    assert len(last) == RUNS_IN_VAIN
    assert warm(iter([*growing, *last, 9_999.0])) == (410.0, len(growing) + len(last))


def test_a_broker_that_becomes_faster_for_ever_is_warm_some_day() -> None:
    assert warm(2.0**run for run in range(100)) == (2.0 ** (RUNS_MAX - 1), RUNS_MAX)


class SlowMarkers:
    """A broker whose last stable offset takes these values, one a question."""

    def __init__(self, *ends: int) -> None:
        self._ends = list(ends)

    def __call__(self, _bootstrap: str) -> SlowMarkers:
        return self

    def __enter__(self) -> SlowMarkers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end_offsets(self, *_: object, **__: object) -> dict[int, int]:
        return {0: self._ends.pop(0)}


def test_marker_that_is_written_behind_the_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_load, "Client", SlowMarkers(218, 219, 220))
    transaction_load.check_topic(transaction_load.Job("nobody:9092", "t"), committed=110)


@pytest.mark.parametrize(("timeout_s", "end"), [(60, 221), (0, 219)])
def test_topic_with_more_or_less_than_was_committed_is_told(
    monkeypatch: pytest.MonkeyPatch, timeout_s: int, end: int
) -> None:
    monkeypatch.setattr(transaction_load, "Client", SlowMarkers(end, end))
    monkeypatch.setattr(transaction_load, "TIMEOUT_S", timeout_s)
    with pytest.raises(RuntimeError, match=f"110 transactions were committed, the last stable offset is {end}"):
        transaction_load.check_topic(transaction_load.Job("nobody:9092", "t"), committed=110)


def sustained(monkeypatch: pytest.MonkeyPatch, limit: float) -> tuple[float, list[float]]:
    """The rate that is found of a broker that keeps up below a limit, and what was asked of it."""
    asked: list[float] = []

    def at_rate(_context: context.Context, rate: float, _broker: object) -> LatencyOutcome:
        asked.append(rate)
        told = Percentiles(*[1e6 if rate > limit else 100.0] * 5)
        return LatencyOutcome(1, 0.1, told, told)

    monkeypatch.setattr(latency, "at_rate", at_rate)
    quiet = context.Context([], context.QUICK, Path())
    return latency.sustained_rate(quiet, 1000.0, PybrokerProcess(Path())), asked


def test_latency_is_measured_at_shares_of_a_rate_that_kafka_keeps_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sustained(monkeypatch, limit=500) == (1000, [500])
    rate, asked = sustained(monkeypatch, limit=350)
    assert rate == pytest.approx(640)
    assert asked == pytest.approx([500, 400, 320])
    with pytest.raises(RuntimeError, match="low enough"):
        sustained(monkeypatch, limit=1)


def test_every_start_that_has_a_bar_of_its_own_is_measured(tmp_path: Path) -> None:
    run = context.Context([PYBROKER], replace(context.QUICK, rounds=1), tmp_path, part="startup")
    startup.run(run)
    bars = [bar for bar in BARS if bar.part == "startup" and bar.kind is BarKind.AT_MOST]
    assert [bar.what for bar in bars if judge_bar(bar, run.measurements).value is None] == []
