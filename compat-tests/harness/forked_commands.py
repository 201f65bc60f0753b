"""Client commands, forked where all of it is imported: a tenth of a second each in place of a whole one.

`ForkedCommands` is the asker's side; ``python -m harness.forked_commands FD FD`` is the process that forks.  A
command has a process, streams, an environment, a working directory and an exit code of its own, and ends as an
interpreter does.  What the start itself is about (streams that are closed, imports, ``python -m``) starts the console
script.

A shell has the same by ``ForkedCommands.bin``: its ``pybroker`` hands streams, environment and arguments over a socket
of that folder, several at a time, as the parts of a pipeline are.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Thread
from typing import Final

from harness.apache_kafka import ROOT

ORDER_MAX: Final = 1 << 20
STREAMS: Final = 3  # standard input, output and error
BY_SIGNAL: Final = 128  # a shell's exit code of a command that a signal ended is this and the signal's number
SHELL_COMMAND: Final = """#!{python} -ISE
import json, os, socket, sys
forker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
forker.connect({address!r})
order = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}}
socket.send_fds(forker, [json.dumps(order).encode()], [0, 1, 2])
sys.exit(int(forker.recv(64)))
"""


class ForkedCommands:
    """The process that forks, and the socket to it; one command at a time, but for those of shells."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="commands-")
        self.bin = Path(self._folder.name)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            address = str(self.bin / "socket")
            listener.bind(address)
            listener.listen()
            command = self.bin / "pybroker"
            command.write_text(SHELL_COMMAND.format(python=sys.executable, address=address))
            command.chmod(0o700)
            fds = (theirs.fileno(), listener.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's other threads would not be in a fork
            )

    def close(self) -> None:
        """End the process, which ends with its socket."""
        self._socket.close()
        self._process.wait()
        self._folder.cleanup()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """``pybroker`` with these arguments, run to its end.  Raises ``TimeoutError``; the command is killed then."""
        with TemporaryFile() as stdout, TemporaryFile() as stderr:
            writer = self._start(arguments, environment, stdin, stdout.fileno(), stderr.fileno())
            pid = int(self._socket.recv(ORDER_MAX))
            self._socket.settimeout(timeout_s)
            try:
                exit_code = int(self._socket.recv(ORDER_MAX))
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(None)
                self._socket.recv(ORDER_MAX)
                raise
            finally:
                self._socket.settimeout(None)
                writer.join()
            written = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (stdout, stderr)]
        return subprocess.CompletedProcess(arguments, exit_code, *written)

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, stdout: int, stderr: int
    ) -> Thread:
        """Have the command forked; the thread that writes its standard input."""
        order = json.dumps({"arguments": list(arguments), "environment": dict(environment), "cwd": os.getcwd()})
        read, write = os.pipe()
        try:
            socket.send_fds(self._socket, [order.encode()], [read, stdout, stderr])
        finally:
            os.close(read)
        writer = Thread(target=_write, args=(write, stdin))
        writer.start()
        return writer


def _write(fd: int, data: bytes) -> None:
    try:
        with open(fd, "wb") as pipe:
            pipe.write(data)
    except BrokenPipeError:
        pass  # The command ended without reading it all.


def import_all() -> None:
    """Import what commands import, some of it when they run only."""
    from encodings import idna  # of the first name that is looked up

    import confluent_kafka

    from pybroker.cli.commands.app import run_client
    from pybroker.cli.connection import data_clients
    from pybroker.sql.unwanted_imports import without_pandas

    assert all((confluent_kafka, data_clients, idna))
    with suppress(ImportError), without_pandas():
        import_for_questions()
    # Typer imports pydantic, where it is, with the first parameter that it looks at: 0.3 s of processor time.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for arguments in (["--help"], ["topics", "create"]):
            run_client(arguments)
    gc.collect()
    gc.freeze()  # a collection in a command would have it copy every page of this process


def import_for_questions() -> None:
    """What ``pybroker sql`` imports, but for PyArrow, which starts a thread: half a second of processor time."""
    import duckdb

    from pybroker.sql.parsing import pushdown, statements

    assert all((duckdb, pushdown, statements))
    assert "pyarrow" not in sys.modules, "a thread would not be in a fork"


def serve(asker: socket.socket, shells: socket.socket) -> None:
    """Fork for each order, and tell the command's pid and then its exit code; returns in the command itself."""
    while True:
        ready, _, _ = select.select([asker, shells], [], [])
        if shells in ready:
            if serve_shell(shells):
                asker.close()
                return
            continue
        order, streams, _, _ = socket.recv_fds(asker, ORDER_MAX, STREAMS)
        if not order:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            become(json.loads(order), streams)
            asker.close()
            shells.close()
            return
        for fd in streams:
            os.close(fd)
        asker.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        asker.send(str(os.waitstatus_to_exitcode(status)).encode())


def serve_shell(shells: socket.socket) -> bool:
    """Fork for a shell's order, and for who waits for its end and tells the exit code; whether this is the command."""
    shell, _ = shells.accept()
    with shell:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # one that has told its shell
        if os.fork():
            return False
        shells.close()
        order, streams, _, _ = socket.recv_fds(shell, ORDER_MAX, STREAMS)
        if not order:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            become(json.loads(order), streams)
            return True
        for fd in streams:
            os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):
            shell.send(str(code if code >= 0 else BY_SIGNAL - code).encode())
        os._exit(0)


def become(order: dict[str, object], streams: Sequence[int]) -> None:
    """Take the streams, the environment and the arguments of the command that was ordered."""
    for standard, fd in enumerate(streams):
        os.dup2(fd, standard)
        os.close(fd)
    environment, arguments = order["environment"], order["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(order["cwd"]))
    sys.argv = ["pybroker", *arguments]


if __name__ == "__main__":
    import_all()
    serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:]))
    from pybroker.cli.main import main

    main()
