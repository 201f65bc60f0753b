"""A parked reply that is over refers to nothing."""

from __future__ import annotations

import gc
import weakref

import pytest

from pybroker.handlers.context import Parked


class Operation:
    """What waits, as handlers build it: it knows the reply, and the reply knows it."""

    def __init__(self, parked: Parked) -> None:
        self.parked = parked
        parked.on_abandon = self.abandon
        parked.subscribe(self.deliver)

    def abandon(self) -> None: ...

    def deliver(self, response: object) -> None: ...


@pytest.mark.parametrize("ending", ["complete", "abandon"])
def test_a_reply_that_is_over_is_freed_without_a_garbage_collection(ending: str) -> None:
    gc.disable()
    try:
        parked = Parked()
        operation = weakref.ref(Operation(parked))
        parked.complete("response") if ending == "complete" else parked.abandon()
        assert operation() is None
    finally:
        gc.enable()
