"""librdkafka's consumers polled one after the other in one thread, for tests of groups against a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer

WAIT_S = 40.0


def poll_until(consumers: Sequence[Consumer], condition: Callable[[], bool]) -> list[bytes | None]:
    """Poll all consumers until the condition holds; returns what they read."""
    values: list[bytes | None] = []
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, [member.assignment() for member in consumers]
        for member in consumers:
            message = member.poll(0.02)
            if message is not None and message.error() is None:
                values.append(message.value())
    return values
