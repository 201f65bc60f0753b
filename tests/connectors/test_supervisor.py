"""What a supervisor starts, stops and restarts, by the topics and by failures; connectors are doubles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pybroker.connectors.state.state_records import (
    Known,
    Record,
    State,
    Target,
    config_record,
    run_record,
    target_record,
)
from pybroker.connectors.supervision.connector_checkpoints import Checkpoints
from pybroker.connectors.supervision.connector_supervisor import Supervisor
from pybroker.connectors.supervision.restarts import PAUSE_MAX_S, RAN_WELL_S, Restarts

CONFIG = {"name": "a", "connector.class": "FileSource", "path": "/in", "format": "text", "topic": "lines"}


class Topics:
    """The topics in memory."""

    def __init__(self) -> None:
        self.known = Known()

    def write_statuses(self, records: list[Record]) -> None:
        for record in records:
            self.known.take_status(*record)

    def take(self, *records: Record) -> None:
        for record in records:
            self.known.take_config(*record)

    @property
    def states(self) -> dict[str, State]:
        return {name: status.state for name, status in self.known.statuses.items()}


class Run:
    """A connector that runs until the test has it fail."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.remark: str | None = None
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class World:
    """A supervisor with a clock that is set by hand, and checkpoints that connectors make when they start."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 1_000.0
        self.topics = Topics()
        self.runs: list[tuple[str, Mapping[str, str], int, Run]] = []
        self.refuses: str | None = None
        self.directory = directory
        self.checkpoints = Checkpoints(str(directory))
        self.supervisor = Supervisor(
            self.topics,
            self._start,
            "w:1",
            lambda: self.now_s,
            checkpoints=self.checkpoints,
            told=lambda text: text.replace("hunter2", "${file:/s:k}"),
        )

    def _start(self, name: str, config: Mapping[str, str], number: int) -> Run:
        if self.refuses is not None:
            raise ValueError(self.refuses)
        self.runs.append((name, config, number, Run()))
        (self.directory / name / str(number) / "commits").mkdir(parents=True, exist_ok=True)
        return self.runs[-1][3]

    def commit(self, name: str, number: int) -> None:
        (self.directory / name / str(number) / "commits" / "0").touch()

    def numbers(self, name: str) -> list[str]:
        """Of the checkpoints that are there."""
        folder = self.directory / name
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    @property
    def live(self) -> list[str]:
        return [name for name, _, _, run in self.runs if not run.is_stopped]

    def step(self, *records: Record, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.topics.take(*records)
        self.supervisor.step()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_connector_that_is_declared_runs(world: World) -> None:
    world.step(config_record("a", CONFIG))
    assert (world.live, world.topics.states) == (["a"], {"a": State.RUNNING})
    assert world.topics.known.topics == {"a": {"lines"}}
    world.step()
    assert world.live == ["a"]


def test_a_paused_or_stopped_connector_writes_nothing_and_goes_on_when_it_is_resumed(world: World) -> None:
    world.step(config_record("a", CONFIG))
    for target, state in ((Target.PAUSED, State.PAUSED), (Target.STOPPED, State.STOPPED)):
        world.step(target_record("a", target))
        assert (world.live, world.topics.states) == ([], {"a": state})
        assert not world.supervisor.is_running("a")
        world.step(target_record("a", Target.STARTED))
        assert (world.live, world.topics.states) == (["a"], {"a": State.RUNNING})


def test_another_configuration_or_checkpoint_starts_it_anew(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.step(config_record("a", {**CONFIG, "path": "/other"}))
    world.step(run_record("a", 2))
    assert [(config["path"], number, run.is_stopped) for _, config, number, run in world.runs] == [
        ("/in", 1, True),
        ("/other", 1, True),
        ("/other", 2, False),
    ]


def test_a_connector_that_is_deleted_ends(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.step(config_record("a", None))
    assert world.live == []


def test_a_remark_of_a_run_is_in_its_status_and_written_once_in_five_seconds(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.step()
    run = world.runs[-1][3]
    told = []
    for second in range(11):
        run.remark = f"{second} records are left out"
        world.step(after_s=1.0)
        told.append(world.topics.known.statuses["a"].remark)
    assert [each and each[:2] for each in told] == [None, None, None, None, *["4 "] * 5, "9 ", "9 "]
    run.failure, run.remark = "gone", None
    world.step()
    assert world.topics.known.statuses["a"].remark is None


def test_a_failure_is_told_and_followed_by_restarts_with_growing_pauses(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.runs[-1][3].failure = "the disk is full"
    world.step()
    status = world.topics.known.statuses["a"]
    assert (status.state, status.trace) == (State.FAILED, "the disk is full")
    world.step(after_s=0.9)
    assert world.live == []
    world.step(after_s=0.2)
    assert (world.live, world.topics.states) == (["a"], {"a": State.RUNNING})
    world.runs[-1][3].failure = "again"
    world.step()
    world.step(after_s=1.5)
    assert world.live == []
    world.step(after_s=0.6)
    assert world.live == ["a"]


def test_a_connector_that_cannot_be_started_gives_up_after_its_restarts(world: World) -> None:
    world.refuses = "no such topic: lines"
    world.step(config_record("a", {**CONFIG, "errors.restarts.max": "2"}))
    for _ in range(5):
        world.step(after_s=PAUSE_MAX_S)
    assert world.topics.known.statuses["a"].trace == "ValueError: no such topic: lines"
    world.refuses = None
    world.step(after_s=PAUSE_MAX_S)
    assert world.live == []
    world.supervisor.restart("a")
    world.step()
    assert world.live == ["a"]


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"},
        {**CONFIG, "errors.restarts.max": "many"},
        {},
    ],
)
def test_what_connect_has_left_in_the_topic_fails_alone(world: World, config: dict[str, str]) -> None:
    world.refuses = "it cannot be meant"
    world.step(config_record("m", config))
    world.refuses = None
    world.step(config_record("a", CONFIG))
    assert world.topics.states == {"m": State.FAILED, "a": State.RUNNING}


def test_a_failure_of_one_connector_leaves_the_others_alone(world: World) -> None:
    world.step(config_record("a", CONFIG), config_record("b", {**CONFIG, "name": "b"}))
    world.runs[0][3].failure = "x"
    world.step()
    assert (world.live, world.topics.states) == (["b"], {"a": State.FAILED, "b": State.RUNNING})


def test_a_supervisor_that_ceases_to_work_stops_all_and_leaves_statuses_to_its_successor(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.supervisor.stop_all()
    assert (world.live, world.topics.states) == ([], {"a": State.RUNNING})


def test_a_secret_that_a_failure_or_a_remark_quotes_is_not_in_the_status(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.step(config_record("a", CONFIG))
    world.runs[-1][3].remark = "http://h/?token=hunter2 gives no rows"
    world.step(after_s=5.0)
    assert world.topics.known.statuses["a"].remark == "http://h/?token=${file:/s:k} gives no rows"
    world.runs[-1][3].failure = "http://h/?token=hunter2 answers 500"
    world.step()
    assert world.topics.known.statuses["a"].trace == "http://h/?token=${file:/s:k} answers 500"
    world.refuses = "hunter2 is no URL"
    world.step(after_s=PAUSE_MAX_S)
    assert world.topics.known.statuses["a"].trace == "ValueError: ${file:/s:k} is no URL"
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("config", "topics"),
    [
        ({"connector.class": "TopicSink", "topics": "a, b", "topic": "c"}, {"a", "b"}),
        ({"connector.class": "TopicSink", "topics.regex": "a.*", "topic": "c"}, set()),
        ({"connector.class": "TopicSource", "source.topics": "a", "topic": "c"}, {"c"}),
    ],
)
def test_a_connector_uses_the_topics_that_a_sink_reads_or_a_source_writes(
    world: World, config: dict[str, str], topics: set[str]
) -> None:
    world.step(config_record("a", config))
    assert world.topics.known.topics.get("a", set()) == topics


def test_topics_that_cannot_be_listed_do_not_end_a_connector(world: World) -> None:
    def refused(_: Mapping[str, str]) -> list[str]:
        raise RuntimeError("no broker answers")

    world.supervisor.topics = refused
    world.step(config_record("a", CONFIG))
    assert (world.live, world.topics.states) == (["a"], {"a": State.RUNNING})


def test_a_checkpoint_is_removed_when_the_next_run_has_a_batch(world: World) -> None:
    world.step(config_record("a", CONFIG))
    world.commit("a", 1)
    world.step(run_record("a", 2))
    for _ in range(3):
        world.step(after_s=5.0)
        assert world.numbers("a") == ["1", "2"]
    world.commit("a", 2)
    world.step(after_s=5.0)
    assert world.numbers("a") == ["2"]


def test_checkpoints_of_a_connector_that_is_deleted_are_removed(world: World) -> None:
    world.step(config_record("a", CONFIG), config_record("b", {**CONFIG, "name": "b"}))
    world.step(run_record("a", 2))
    world.step(config_record("a", None), run_record("a", 3))
    assert (world.numbers("a"), world.numbers("b")) == ([], ["1"])


def test_a_connector_that_is_declared_again_keeps_the_checkpoint_that_it_begins(world: World) -> None:
    """A request may come between the end of the connector and what the supervisor does about it."""
    world.step(config_record("a", CONFIG))
    world.step(config_record("a", None), run_record("a", 2), config_record("a", CONFIG))
    world.commit("a", 2)
    world.step(after_s=5.0)
    assert (world.live, world.numbers("a")) == (["a"], ["2"])


def test_a_run_that_does_not_end_keeps_its_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise TimeoutError("the query does not end")

    world.step(config_record("a", CONFIG))
    monkeypatch.setattr(world.runs[-1][3], "stop", refused)
    world.step(run_record("a", 2))
    world.commit("a", 2)
    world.step(after_s=5.0)
    world.step(config_record("a", None), run_record("a", 3))
    assert world.numbers("a") == ["1", "2"]


def test_pauses_double_up_to_five_minutes() -> None:
    restarts = Restarts(1.0, -1)
    pauses = []
    for _ in range(12):
        restarts.started(0)
        restarts.failed(0)
        pauses.append(restarts.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_what_ran_well_has_all_its_restarts_again() -> None:
    restarts = Restarts(1.0, 2)
    for _ in range(5):
        restarts.started(0)
        restarts.failed(RAN_WELL_S)
        assert restarts.pause_s == 1
        assert not restarts.has_given_up
