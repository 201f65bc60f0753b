"""The benchmark's generators do what they say: on a real broker, in small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pybroker_process import PybrokerProcess

from bench import context, group_load, transaction_load
from bench.bars import BARS, Bar, Judgement, judge, judge_bar
from bench.bars import Kind as BarKind
from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Measurements, ratio_text
from bench.parts import FULL_ONLY, PARTS
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
    assert {bar.part for bar in BARS} <= set(PARTS)
    assert set(FULL_ONLY) <= set(PARTS)
    assert len({(bar.part, bar.metric) for bar in BARS}) == len(BARS)


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


def test_bar_is_judged_as_it_was_set_first_and_as_it_was_raised() -> None:
    measurements = Measurements()
    for broker, rate in ((KAFKA, 100.0), (PYBROKER, 250.0)):
        measurements.add("tiny", "8×5 requests", "1/s", broker, rate)
    bar = Bar("tiny requests", "tiny", "8×5 requests", BarKind.RATIO_AT_LEAST, 2, 3)
    verdict = judge_bar(bar, measurements)
    assert verdict.figure == "2.50×"
    assert (verdict.first, verdict.raised) == (Judgement("≥ 2× Kafka", True), Judgement("≥ 3× Kafka", False))
    assert verdict.now is verdict.raised
    metric = measurements.get("tiny", "8×5 requests")
    assert metric is not None
    assert bar.place(metric) == 300


def test_bar_that_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {verdict.now.met for verdict in judge(Measurements())} == {None}


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
