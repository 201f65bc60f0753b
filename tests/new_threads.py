"""Which threads a test has begun: those of brokers that other tests keep running begin and end meanwhile."""

from __future__ import annotations

import threading

from pybroker.storage.dirs import log_dir


class NewThreads:
    """Calling it gives the threads that live and did not when it was made."""

    def __init__(self) -> None:
        self._former = set(threading.enumerate())
        # A log dir's threads are named by it, and begin with their first job, which may come now.  In-process brokers
        # have directories whose names are theirs alone.
        self._dirs_of_others = {path.name for path in log_dir._locked_here if path.name.startswith("pybroker-")}

    def __call__(self) -> set[threading.Thread]:
        new = set(threading.enumerate()) - self._former
        return {thread for thread in new if thread.is_alive() and not self._is_of_another(thread)}

    def _is_of_another(self, thread: threading.Thread) -> bool:
        return any(name in thread.name for name in self._dirs_of_others)
