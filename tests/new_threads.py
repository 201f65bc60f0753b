"""Which threads a test has begun: those of brokers that other tests keep running begin and end meanwhile."""

from __future__ import annotations

import threading


class NewThreads:
    """Calling it gives the threads that live and did not when it was made."""

    def __init__(self) -> None:
        self._former = set(threading.enumerate())

    def __call__(self) -> set[threading.Thread]:
        return {thread for thread in set(threading.enumerate()) - self._former if thread.is_alive()}
