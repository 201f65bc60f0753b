"""The end of Spark's Python processes: a task's waits for threads that have something to finish, and all are quiet.

Spark lets all its idle Python processes go when none has become idle for a minute, which no setting changes
(``PythonWorkerFactory``). Such a process ends by ``os._exit``, with its threads. That is put off here, and nothing
else: the process is killed as before, and ends at once where Spark has ended.

Spark ends a stream's source, and a task whose rows it has enough of, by closing the socket to its process.  That writes
its last words there and fails: the traceback of that `BrokenPipeError` would be all that a person sees of a query that
has ended well.
"""

import os
import sys
import traceback
from threading import Thread
from types import TracebackType
from typing import Any, NoReturn

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


def is_hung_up() -> bool:
    """Whether what is being handled is that Spark has closed the socket to this process."""
    return isinstance(sys.exc_info()[1], EOFError | ConnectionError)


def end_quietly() -> None:
    """Have neither Python nor ``pyspark.daemon`` show the traceback of a closed socket from now on."""
    if getattr(sys.excepthook, "__module__", None) == __name__:
        return
    shown, printed = sys.excepthook, traceback.print_exc

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, ConnectionError):
            shown(kind, error, trace)

    def print_exc(limit: int | None = None, file: Any = None, chain: bool = True) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            printed(limit, file, chain)

    sys.excepthook, traceback.print_exc = show, print_exc
