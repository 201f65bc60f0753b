"""Operations on ZooKeeper when the connection breaks, by a strand whose answers are made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.virtual_world import VirtualWorld

from pybroker.cluster.store.metadata_store import StoreUnavailableError
from pybroker.cluster.store.zookeeper.zookeeper_operations import OperationQueue, Steps

TIMEOUT_MS = 1_000


class Answer:
    """What one of kazoo's ``..._async`` calls gives: it comes by ``come``."""

    def __init__(self) -> None:
        self.exception: Exception | None = None
        self.value: object = None
        self._is_there = False
        self._heard: list[Callable[[Any], None]] = []

    def rawlink(self, heard: Callable[[Any], None]) -> None:
        self._heard.append(heard)

    def ready(self) -> bool:
        return self._is_there

    def come(self, value: object) -> None:
        self.value, self._is_there = value, True
        for heard in self._heard:
            heard(self)


class Connection:
    """A strand whose operations ask for two things one after another, and what became of them."""

    def __init__(self) -> None:
        self.world = VirtualWorld()
        self.is_there = True
        self.operations = OperationQueue(self.world.env, lambda: self.is_there, TIMEOUT_MS)
        self.asked: list[Answer] = []
        self.done: list[tuple[str, object, type[Exception] | None]] = []

    def submit(self, name: str) -> None:
        def ask() -> Answer:
            self.asked.append(Answer())
            return self.asked[-1]

        def steps() -> Steps:
            first = yield ask()
            second = yield ask()
            return first, second

        def done(value: object, error: Exception | None) -> None:
            self.done.append((name, value, None if error is None else type(error)))

        self.operations.submit(steps, done)
        self.world.run()

    def answer(self, number: int, value: object) -> None:
        self.asked[number].come(value)
        self.world.run()


def test_step_that_is_asked_for_without_a_connection_is_waited_for_no_longer_than_any_other() -> None:
    connection = Connection()
    connection.submit("one")
    connection.submit("other")
    connection.is_there = False
    connection.answer(0, "first")
    assert (len(connection.asked), connection.done) == (2, [])
    connection.world.advance(TIMEOUT_MS - 1)
    assert connection.done == []
    connection.world.advance(1)
    assert connection.done == [("one", None, StoreUnavailableError), ("other", None, StoreUnavailableError)]


def test_operation_begins_anew_with_the_next_connection_and_what_comes_of_before_counts_for_nothing() -> None:
    connection = Connection()
    connection.submit("one")
    connection.is_there = False
    connection.answer(0, "first")
    connection.is_there = True
    connection.operations.go_on()
    connection.answer(1, "late")
    connection.answer(2, "first anew")
    connection.answer(3, "second anew")
    connection.world.advance(TIMEOUT_MS)
    assert connection.done == [("one", ("first anew", "second anew"), None)]
