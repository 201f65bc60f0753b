"""Work that is given to a thread in portions: others have their turn between them, and it can be given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

from pybroker.env import WorkGivenUp
from pybroker.net.loop_env import LoopClock, ThreadExecutor, loop_env

ENOUGH_S = 30


@pytest.fixture(autouse=True)
def _shortest_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each yield ends a portion."""
    monkeypatch.setattr("pybroker.net.loop_env.WORK_PORTION_NS", -1)


class Worker:
    """A thread, what it has done in order, and what its jobs came to."""

    def __init__(self) -> None:
        self.executor = ThreadExecutor("worker", 0, self._call_threadsafe, LoopClock())
        self.steps: list[str] = []
        self.ends: dict[str, Any] = {}
        self.order: list[str] = []
        self.told = threading.Event()
        self._gate = threading.Event()

    def _call_threadsafe(self, callback: Callable[[], None]) -> None:
        self.told.set()  # the loop of these tests has no turn but ``deliver`` and ``close``

    def hold(self) -> None:
        """Keep the thread busy until ``go``: what is submitted meanwhile is there when it begins."""
        self.executor.submit(lambda: self._gate.wait(ENOUGH_S), lambda _result, _error: None)

    def go(self) -> None:
        self._gate.set()

    def submit(self, name: str, work: Callable[[], Any]) -> Any:
        return self.executor.submit(work, partial(self._on_end, name))

    def _on_end(self, name: str, result: Any, error: BaseException | None) -> None:
        assert name not in self.ends, "a job completes once"
        self.order.append(name)
        self.ends[name] = result if error is None else error

    def portions(self, name: str, count: int) -> Generator[None, None, str]:
        for number in range(count):
            self.steps.append(f"{name}{number}")
            yield
        return name.upper()

    def whole(self, name: str) -> str:
        self.steps.append(name)
        return name.upper()


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.go()
    worker.executor.close()


def wait_for_all(worker: Worker) -> None:
    """Wait until the thread has done what was submitted so far, portions and all."""
    for _ in range(1_000):
        done = threading.Event()
        before = len(worker.steps)
        worker.executor.submit(done.set, lambda _result, _error: None)
        worker.go()
        assert done.wait(ENOUGH_S)
        if len(worker.steps) == before:
            return
    raise AssertionError("the thread does not come to an end")


def test_long_work_takes_turns_with_others_and_what_is_short_waits_for_one_portion_of_each(worker: Worker) -> None:
    worker.hold()
    worker.submit("a", lambda: worker.portions("a", 3))
    worker.submit("b", lambda: worker.portions("b", 2))
    worker.submit("c", lambda: worker.whole("c"))
    wait_for_all(worker)
    assert worker.steps == ["a0", "b0", "c", "a1", "b1", "a2"]
    worker.executor.close()
    assert worker.ends == {"a": "A", "b": "B", "c": "C"}
    assert worker.order == ["c", "b", "a"]


def test_portion_goes_on_while_its_time_lasts(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.net.loop_env.WORK_PORTION_NS", 1 << 62)
    worker.hold()
    worker.submit("a", lambda: worker.portions("a", 3))
    worker.submit("c", lambda: worker.whole("c"))
    wait_for_all(worker)
    assert worker.steps == ["a0", "a1", "a2", "c"]


def test_failure_between_portions_is_the_submitters(worker: Worker) -> None:
    def fail() -> Generator[None, None, None]:
        yield
        raise OSError("no")

    worker.submit("failing", fail)
    wait_for_all(worker)
    worker.executor.close()
    assert isinstance(worker.ends["failing"], OSError)


def test_cancelled_work_is_not_begun_or_goes_no_further_and_lets_go_of_what_it_holds(worker: Worker) -> None:
    begun, cancelled, let_go = threading.Event(), threading.Event(), threading.Event()

    def endless() -> Generator[None, None, None]:
        try:
            begun.set()
            assert cancelled.wait(ENOUGH_S)
            yield
            raise AssertionError("it was given up")
        finally:
            let_go.set()

    job = worker.submit("endless", endless)
    never = [worker.submit(name, lambda: worker.whole("never")) for name in ("whole", "in portions")]
    assert begun.wait(ENOUGH_S)
    job.cancel()
    job.cancel()
    for other in never:
        other.cancel()
    cancelled.set()
    assert let_go.wait(ENOUGH_S)
    worker.executor.close()
    assert worker.steps == []
    assert {name: type(end) for name, end in worker.ends.items()} == dict.fromkeys(
        ("endless", "whole", "in portions"), WorkGivenUp
    )
    job.cancel()


def test_end_waits_for_one_portion_and_for_all_that_has_none(worker: Worker) -> None:
    def endless() -> Generator[None, None, None]:
        while True:
            worker.steps.append("endless")
            yield

    worker.hold()
    for name in ("first", "second"):
        worker.submit(name, endless)
    worker.submit("whole", lambda: worker.whole("whole"))
    closing = threading.Thread(target=worker.executor.close)
    closing.start()
    while not worker.executor._closed:
        pass
    worker.go()
    closing.join(ENOUGH_S)
    assert not closing.is_alive()
    assert worker.steps == ["whole"]
    assert worker.ends["whole"] == "WHOLE"
    assert all(isinstance(worker.ends[name], WorkGivenUp) for name in ("first", "second"))


def test_end_gives_up_what_has_begun(worker: Worker) -> None:
    begun = threading.Event()
    closed: list[str] = []

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                begun.set()
                yield
        finally:
            closed.append(threading.current_thread().name)

    for name in ("first", "second"):
        worker.submit(name, endless)
    assert begun.wait(ENOUGH_S)
    worker.executor.close()
    assert set(closed) <= {"worker"}
    assert all(isinstance(worker.ends[name], WorkGivenUp) for name in ("first", "second"))


def test_completions_come_on_the_loop() -> None:
    async def run() -> tuple[str, bool]:
        executor = loop_env().executor("worker", 0)
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        here = threading.current_thread()
        where: list[threading.Thread] = []

        def work() -> Generator[None, None, str]:
            yield
            return "found"

        def on_end(result: str | None, error: BaseException | None) -> None:
            where.append(threading.current_thread())
            done.set_result(str(result))

        executor.submit(work, on_end)
        found = await asyncio.wait_for(done, ENOUGH_S)
        executor.close()
        return found, where == [here]

    assert asyncio.run(run()) == ("found", True)
