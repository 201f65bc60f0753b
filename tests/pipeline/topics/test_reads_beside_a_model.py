"""A task gives the records of the topic that was planned, as they are when it reads, whatever happened before.

A model of a topic and its lives beside a real broker, and other brokers on its port.  What this process's idle
consumers have fetched ahead is the point: values are never used twice, so that what is given of a former topic, or of
deleted records, is no value of the model's.

Needs PySpark, whose classes the reader extends, and starts no JVM: marked like what starts one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pybroker.testing import Broker
from tests.pipeline.topics.tables import Tables
from tests.pipeline.topics.test_lost_topics import schema

pytestmark = pytest.mark.jvm(needs="spark")

# A client that waits for its broker to be back tries again soon.
IMPATIENT = {"kafka.reconnect.backoff.ms": "10", "kafka.reconnect.backoff.max.ms": "50"}


@dataclass
class Life:
    """A topic from its creation to its end; ``values`` from its first offset on, of which some may be deleted."""

    values: list[str] = field(default_factory=list)
    begin: int = 0


@dataclass
class Plan:
    """A range of a task, and the reader that it belongs to."""

    life: Life
    reader: Any
    task: Any
    is_strict: bool

    def read(self) -> list[str]:
        batches = self.reader.read(self.task)
        return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


@contextmanager
def only_what_one_broker_knows() -> Iterator[None]:
    """No consumer is kept from before, and a loss is reported at once, without patience for several brokers."""
    from pybroker.pipeline.topics import range_reader

    before, range_reader.SETTLES_WITHIN_S = range_reader.SETTLES_WITHIN_S, 0.0
    range_reader.close_idle()
    try:
        yield
    finally:
        range_reader.SETTLES_WITHIN_S = before
        range_reader.close_idle()


class World:
    """A topic's lives on brokers at one address, and the reads that were planned meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._homes = 0
        self._broker = Broker(data_dir=self._home()).start()
        self._listen = self._broker.bootstrap
        self._tables = Tables(None, self._listen, directory)
        self._life: Life | None = None
        self._written = 0
        self._plans: list[Plan] = []

    def close(self) -> None:
        self._broker.stop()

    def _home(self) -> Path:
        self._homes += 1
        return self._directory / str(self._homes)

    @property
    def _there(self) -> Life:
        """The topic, which is made where there is none."""
        if self._life is None:
            self._tables.create("t", 1)
            self._life = Life()
            self.write(9)
        return self._life

    def write(self, number: int) -> None:
        life = self._there
        values = [str(self._written + at) for at in range(number % 10 + 1)]
        self._written += len(values)
        self._tables.append("t", 0, [value.encode() for value in values])
        life.values += values

    def delete(self, _: int) -> None:
        if self._life is not None:
            self._tables.delete("t")
            self._life = None

    def make_anew(self, number: int) -> None:
        self.delete(number)
        self.write(number)

    def delete_records(self, number: int) -> None:
        life = self._there
        life.begin += number % (len(life.values) - life.begin + 1)
        self._tables.delete_before("t", 0, life.begin)

    def restart(self, _: int) -> None:
        """The same broker, on its data."""
        home = self._broker.data_dir
        self._broker.stop()
        self._broker = Broker(data_dir=home, listen=self._listen).start()

    def restart_elsewhere(self, _: int) -> None:
        """Another one, which has nothing."""
        self._broker.stop()
        self._broker = Broker(data_dir=self._home(), listen=self._listen).start()
        self._life = None

    def plan(self, number: int) -> None:
        from pybroker.pipeline.topics.data_source import TopicDataSource

        life, is_strict = self._there, bool(number % 2)
        options = {"minPartitions": str(number % 3 + 1), "failOnDataLoss": str(is_strict).lower()}
        given = {"kafka.bootstrap.servers": self._listen, "subscribe": "t", **IMPATIENT, **options}
        reader = TopicDataSource(given).reader(schema())
        tasks = [task for task in reader.partitions() if task.found.size]
        offsets = [offset for task in tasks for offset in range(task.found.start, task.found.end)]
        assert offsets == list(range(life.begin, len(life.values)))
        self._plans += [Plan(life, reader, task, is_strict) for task in tasks]

    def read(self, number: int) -> None:
        """A task: mostly of one of the last plans, but any may have waited for long."""
        from pybroker.pipeline.topics.range_reader import DataLoss

        if not self._plans:
            self.plan(number)
        plans = self._plans[-4:] if number % 4 else self._plans
        if not plans:
            return
        plan = plans[number // 4 % len(plans)]
        start, end = plan.task.found.start, plan.task.found.end
        is_there = self._life is plan.life
        if plan.is_strict and (not is_there or start < plan.life.begin):
            with pytest.raises(DataLoss):
                plan.read()
        else:
            assert plan.read() == (plan.life.values[max(start, plan.life.begin) : end] if is_there else [])


ACTIONS = {
    World.read: 10,
    World.plan: 4,
    World.write: 2,
    World.delete_records: 2,
    World.make_anew: 2,
    World.delete: 1,
    World.restart: 1,
    World.restart_elsewhere: 1,
}
actions = st.sampled_from([action for action, weight in ACTIONS.items() for _ in range(weight)])


# An example takes seconds: a failure is shown as it is.
@settings(max_examples=4, phases=[Phase.generate])
@given(st.lists(st.tuples(actions, st.integers(0, 1_000)), min_size=30, max_size=40))
def test_tasks_give_what_the_planned_topic_has_when_they_read(steps: list[tuple[Any, int]]) -> None:
    with TemporaryDirectory() as directory, only_what_one_broker_knows():
        world = World(Path(directory))
        try:
            for action, number in steps:
                action(world, number)
        finally:
            world.close()
