"""What a handler's answer is, for tests that call handlers themselves: steps are taken as a connection takes them."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from pybroker.handlers.context import Parked


def answer_of(handled: Any) -> Any:
    """The response, or a ``Parked`` where the handler waits for something; a generator is driven to its end."""
    if isinstance(handled, Parked):
        return handled.response if handled.completed else handled
    if not isinstance(handled, GeneratorType):
        return handled
    parked = Parked()

    def go_on(value: Any) -> None:
        while True:
            try:
                waits_for = handled.send(value)
            except StopIteration as end:
                if isinstance(end.value, Parked):
                    end.value.subscribe(parked.complete)
                else:
                    parked.complete(end.value)
                return
            value = None
            if waits_for is not None:
                if not waits_for.completed:
                    parked.on_abandon = waits_for.abandon
                    waits_for.subscribe(go_on)
                    return
                value = waits_for.response

    go_on(None)
    return parked.response if parked.completed else parked
