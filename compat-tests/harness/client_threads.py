"""Which clients of librdkafka live in this process: the library has no list of them, but names its threads.

Owns: how they are found, and that what only the garbage collector would end is collected.
Does not own: when they have to be gone (``conftest.py``).

A client has one main thread, and more for each broker that it comes to know: one that another module keeps may begin
these at any time.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")  # Linux's; elsewhere no client is found
_MAIN = "rdk:main"


def client_threads() -> set[str]:
    """The numbers of the clients' main threads."""
    found = set()
    for task in _TASKS.iterdir() if _TASKS.exists() else ():
        with suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().strip() == _MAIN:
                found.add(task.name)
    return found


def left_behind(before: set[str]) -> set[str]:
    """The clients that were not there ``before``, by their threads, once garbage is collected.

    What ``pytest.raises`` keeps of an error refers to the frame that keeps it, and so to the frame's clients; and in a
    process of tests, which has a million objects, the collector comes to old ones almost never.
    """
    if client_threads() <= before:
        return set()
    gc.collect()
    return client_threads() - before
