"""The worker threads of a loop: one per executor, nicer than the loop."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Any

import pytest

from pybroker.limits import WORKER_NICENESS
from pybroker.net.loop_env import loop_env

LOWEST_PRIORITY = 19


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


async def outcome_of(work: Any, more_niceness: int = 0) -> Any:
    """What ``work`` comes to in a worker thread."""
    executor = loop_env().executor("worker", more_niceness)
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    executor.submit(work, lambda result, error: done.set_exception(error) if error else done.set_result(result))
    try:
        return await done
    finally:
        executor.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
@pytest.mark.parametrize("more", [0, WORKER_NICENESS])
def test_worker_gives_way_to_the_loop_as_far_as_asked_and_the_loop_to_nobody(more: int) -> None:
    before = niceness()
    assert asyncio.run(outcome_of(niceness, more)) == min(before + more, LOWEST_PRIORITY)
    assert niceness() == before


def test_failure_in_a_worker_is_its_submitters() -> None:
    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(outcome_of(fail))


def test_completion_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Completions are delivered many at a time: those behind it would lie there until the next job ends."""
    delivered: list[int] = []

    def deliver(result: int | None, error: BaseException | None) -> None:
        assert result is not None
        delivered.append(result)
        if result == 0:
            raise RuntimeError("one completion among many")

    async def deliver_three() -> None:
        executor = loop_env().executor("worker", 0)
        for result in range(3):
            executor.submit(partial(int, result), deliver)
        executor.close()  # the loop had no turn: all are delivered here

    asyncio.run(deliver_three())
    assert delivered == [0, 1, 2]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
