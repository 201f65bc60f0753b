"""The end of a task's process, which waits for threads that have something to finish.

Spark lets all its idle Python processes go when none has become idle for a minute, which no setting changes
(``PythonWorkerFactory``), and such a process ends by ``os._exit``, with its threads.  That is put off here, and nothing
else: the process is killed as before, and ends at once where Spark has ended.
"""

import os
from threading import Thread
from typing import NoReturn

_LOOK_EVERY_S = 0.05

_unfinished: list[Thread] = []
_exit = os._exit


def put_off_for(thread: Thread) -> None:
    """Have this process end behind the thread, as long as its parent is there."""
    _unfinished[:] = [each for each in _unfinished if each.is_alive()]
    _unfinished.append(thread)
    parent = os.getppid()

    def exit_behind(status: int) -> NoReturn:
        for each in _unfinished:
            while each.is_alive() and os.getppid() == parent:
                each.join(_LOOK_EVERY_S)
        _exit(status)

    os._exit = exit_behind
