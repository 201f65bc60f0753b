"""What is worked out in steps, for tests that want its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def end_of(steps: Generator[Any, None, T]) -> T:
    """Take all steps; what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
