"""A completion that fails is its own loss: what waits behind it in the log has its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.log.append_queue import OnComplete
from pybroker.storage.log.log import Log
from pybroker.storage.results import AppendResult
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Storage

MakeStorage = Callable[..., Storage]
LARGE = 200_000  # goes to the writer thread, and two of them do not fit into a segment
SEGMENT_BYTES = 300_000


def fail(_: AppendResult) -> None:
    raise ZeroDivisionError


def append(log: Log, size: int, on_complete: OnComplete) -> AppendResult | None:
    return log.append_as_leader(memoryview(batch(values=[bytes(size)])), 0, LATEST_PRODUCE, on_complete)


def run(world: VirtualWorld) -> None:
    """Deliver all that is due; where the executor's port logs what a completion raises, this world raises it."""
    while True:
        try:
            world.run()
        except ZeroDivisionError:
            continue
        return


@pytest.mark.parametrize("settings", [{}, {"compression_type": "gzip"}])
def test_append_behind_one_whose_completion_fails_is_done(
    make_storage: MakeStorage, world: VirtualWorld, settings: dict[str, Any]
) -> None:
    log = make_storage().log(internal_segment_bytes=SEGMENT_BYTES, **settings)
    results: list[AppendResult] = []
    assert append(log, LARGE, fail) is None
    assert append(log, LARGE, fail) is None
    assert append(log, LARGE, results.append) is None
    run(world)
    assert [result.base_offset for result in results] == [2]
    assert not log.queue.busy


def test_acknowledgement_behind_one_that_fails_is_delivered(
    make_storage: MakeStorage, world: VirtualWorld, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_storage().log(flush_messages=1)
    results: list[AppendResult] = []
    for on_complete in (fail, results.append, fail, results.append):
        assert append(log, 10, on_complete) is None
    run(world)
    assert [result.base_offset for result in results] == [1, 3]
    assert "ZeroDivisionError" in caplog.text


def test_action_behind_one_that_fails_when_a_sync_is_over_is_run(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    log = make_storage().log()
    append(log, 10, fail)
    over: list[str] = []

    def failing() -> None:
        raise ZeroDivisionError

    log.flushes.flush(failing)
    log.flushes.flush(lambda: over.append("over"))
    run(world)
    assert over == ["over"]
