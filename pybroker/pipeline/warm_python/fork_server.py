"""The process that has imported what Spark's Python processes need, and forks for each: ``python -m ...fork_server``.

Owns: what is imported beforehand, the loop, and what makes a fork into the process that was asked for.  It is given the
directory of the launcher and the socket that listens there; it ends, and removes the directory, when its standard input
does, which its parent holds.

Invariants: one thread of Python's.  A fork has the environment, the working directory and the streams of its launcher,
and none of the server's files.  A launcher that is gone ends its fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from typing import Any, NoReturn

from pybroker.pipeline.warm_python.launcher import LENGTH, STARTED, STREAMS

# What PySpark 4.2's processes import, and our data source with what it plans, reads and writes by.  What is imported
# here is in the memory once: a planner or a task that imports librdkafka by itself has it for itself.
MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pandas",
    "pyspark.sql.pandas.serializers",
    "pybroker.pipeline.topics.data_source",
    "pybroker.pipeline.topics.readers",
    "pybroker.pipeline.topics.writers",
    "pybroker.pipeline.topics.directory",
    "pybroker.pipeline.topics.range_reader",
    "pybroker.pipeline.topics.epoch_transactions",
)
# What an interpreter, or a library that is imported already, heeds at its start alone.
AT_START = ("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONUTF8", "PYTHONIOENCODING", "OMP_NUM_THREADS")
ORDER_S = 10.0
_STDIN = 0


class Order:
    """What a launcher asks for."""

    def __init__(self, connection: socket.socket) -> None:
        """Read it; raises ``OSError`` and ``ValueError`` where nothing whole comes."""
        connection.settimeout(ORDER_S)
        header, self.streams, _, _ = socket.recv_fds(connection, LENGTH.size, len(STREAMS))
        left = LENGTH.unpack(header.ljust(LENGTH.size, b"\0"))[0]
        data = bytearray()
        while len(data) < left and (part := connection.recv(left - len(data))):
            data += part
        self.arguments: list[str]
        self.environment: dict[str, str]
        self.arguments, self.environment, self.directory = json.loads(data)

    def can_be_forked(self) -> bool:
        """Whether it runs a module, in an interpreter like this one."""
        is_module = self.arguments[:1] == ["-m"] and len(self.arguments) > 1
        return is_module and all(
            os.environ.get(name) == self.environment[name] for name in AT_START if name in self.environment
        )

    def close(self) -> None:
        for stream in self.streams:
            os.close(stream)


class Server:
    """The loop: takes orders, forks, and tells how forks end."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._launchers: dict[int, socket.socket] = {}  # by the fork's pid
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (_STDIN, listener, self._woken):
            self._selector.register(source, selectors.EVENT_READ)

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == _STDIN:
                    if not os.read(_STDIN, 1):
                        return
                elif key.fileobj is self._listener:
                    self._take()
                elif key.fileobj is self._woken:
                    with suppress(BlockingIOError):
                        self._woken.recv(4096)
                    self._reap()
                else:
                    self._forget(key.data)

    def _take(self) -> None:
        connection, _ = self._listener.accept()
        try:
            order = Order(connection)
        except (OSError, ValueError):
            connection.close()
            return
        pid = fork() if order.can_be_forked() else None
        if pid == 0:
            self._become(order, connection)
        order.close()
        if pid is None:
            connection.close()
            return
        self._launchers[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ, pid)
        with suppress(OSError):
            connection.sendall(STARTED)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (connection := self._launchers.pop(pid, None)) is not None:
                with suppress(OSError):
                    connection.sendall(b"%d\n" % _told(os.waitstatus_to_exitcode(status)))
                self._close(connection)

    def _forget(self, pid: int) -> None:
        """A launcher is gone: so is what it stood for, unless that was first."""
        if (connection := self._launchers.pop(pid, None)) is not None:
            self._close(connection)
            os.kill(pid, signal.SIGTERM)

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _become(self, order: Order, connection: socket.socket) -> NoReturn:
        """In the fork: close what is the server's, and be what was ordered."""
        exit_code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for each in (self._listener, self._woken, self._wakes, connection, *self._launchers.values()):
                each.close()
            for number, stream in zip(STREAMS, order.streams, strict=True):
                os.dup2(stream, number)
            order.close()
            exit_code = run_module(order)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for writer in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    writer.flush()
            os._exit(exit_code)


def _told(exit_code: int) -> int:
    """An exit code as shells have it: what a signal has ended has 128 and the signal."""
    return exit_code if exit_code >= 0 else 128 - exit_code


def fork() -> int | None:
    """As ``os.fork``; ``None`` where the system has no memory for another process."""
    try:
        return os.fork()
    except OSError:
        return None


def run_module(order: Order) -> int:
    """Run the module as ``python -m`` would; its exit code."""
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    os.chdir(order.directory)
    sys.argv = order.arguments[1:]
    before = [path for path in order.environment.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    sys.path[:1] = [order.directory, *filter(None, before)]
    try:
        with warnings.catch_warnings():
            # It has been imported, which does no harm to any of them.
            warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
            runpy.run_module(order.arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    return 0


def import_modules() -> None:
    """Import what there is of `MODULES`."""
    for name in MODULES:
        # An older PySpark, or one without pandas: then its processes import for themselves.
        with suppress(ImportError):
            importlib.import_module(name)


def reseed() -> None:
    """Let a fork draw other random numbers than its siblings do; Python's own does by itself."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def main() -> None:
    """Import, and serve the launchers that have come by then, and those that come."""
    directory, listener = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    # Ctrl-C is the session's business, as it is with Spark's JVM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import_modules()
        os.register_at_fork(after_in_child=reseed)
        # Garbage collections of the forks leave alone what they share.
        gc.collect()
        gc.freeze()
        Server(listener).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
