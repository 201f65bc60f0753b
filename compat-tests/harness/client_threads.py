"""Which clients of librdkafka live in this process: the library has no list of them, but names its threads.

Owns: how they are found, and that what only the garbage collector would end is collected.
Does not own: when they have to be gone (``conftest.py``).
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")  # Linux's; elsewhere no client is found
_PREFIX = "rdk:"


def client_threads() -> dict[str, str]:
    """The name of each thread of a client, by the thread's number."""
    names = {}
    for task in _TASKS.iterdir() if _TASKS.exists() else ():
        with suppress(OSError):  # it has ended meanwhile
            names[task.name] = (task / "comm").read_text().strip()
    return {number: name for number, name in names.items() if name.startswith(_PREFIX)}


def left_behind(before: dict[str, str]) -> list[str]:
    """The names of threads of clients that were not there ``before``, once garbage is collected.

    What ``pytest.raises`` keeps of an error refers to the frame that keeps it, and so to the frame's clients; and in a
    process of tests, which has a million objects, the collector comes to old ones almost never.
    """
    if client_threads().keys() <= before.keys():
        return []
    gc.collect()
    return sorted(name for number, name in client_threads().items() if number not in before)
