"""Which clients of librdkafka live in this process: the library has no list of them, but names its threads.

Owns: how they are found, that what only the garbage collector would end is collected, who refers to the others, and
whether the library itself does.
Does not own: when they have to be gone (``conftest.py``).

A client has one main thread, and more for each broker that it comes to know: one that another module keeps may begin
these at any time.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

_TASKS = Path("/proc/self/task")  # Linux's; elsewhere no client is found
_MAIN = "rdk:main"
_LIBRARY = {"cimpl", "confluent_kafka.admin"}
REFERRERS_SHOWN = 6
_OF_THE_SEARCH = {"frame", "list_iterator"}


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


def kept_by_the_library() -> int:
    """How many errors of the library's live though nothing in Python refers to them.

    On a busy machine confluent-kafka 2.16 never lets go of some errors of fenced producers.  Their tracebacks have
    frames, and these the clients: no test can end those.
    """
    from confluent_kafka import KafkaException

    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, KafkaException)]
    kept = 0
    while found:
        error = found.pop()
        referrers = (each for each in gc.get_referrers(error) if each is not found)
        kept += all(type(each).__name__ in _OF_THE_SEARCH for each in referrers)
    return kept


def referred_to_by() -> list[str]:
    """The clients of this process that Python knows, each with the kinds of objects that keep it alive."""
    clients = [each for each in gc.get_objects() if str(type(each).__module__) in _LIBRARY and hasattr(each, "poll")]
    return [_chain(each, {id(clients)}) for each in clients]


def _chain(client: Any, ignored: set[int]) -> str:
    """The names of what refers to a client, and to that, and so on; ``ignored`` are objects of the search itself."""
    names, target = [type(client).__name__], client
    for _ in range(REFERRERS_SHOWN):
        found = gc.get_referrers(target)
        referrers = [each for each in found if id(each) not in ignored and type(each).__name__ not in _OF_THE_SEARCH]
        ignored |= {id(found), id(referrers)}
        if not referrers:
            break
        target = referrers[0]
        names.append(getattr(target, "__qualname__", None) or type(target).__name__)
    return " <- ".join(names)
