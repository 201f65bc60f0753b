"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

# How long a test waits for what is sure to come.  It costs nothing where it comes, and a busy machine needs it: who
# has not answered by then never will.  pytest's own limit for a test (pyproject.toml) is longer.
PATIENCE_S = 120
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1


def wait_until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Ask again and again until the condition holds; ``TimeoutError`` with ``what`` when it never does.

    Less and less often: what takes long, as a JVM's start does, needs the processors more than the question.
    """
    deadline, pause_s = time.monotonic() + patience_s, _FIRST_PAUSE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
