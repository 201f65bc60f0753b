"""Starts the server of a session and makes the launcher's file; ends it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from pybroker.pipeline.warm_python import launcher

LAUNCHER = "python"
END_S = 5.0
# What a name of a socket may have at most, with its end.
_SOCKET_NAME_BYTES_MAX = 108
_SHEBANG_BYTES_MAX = 127
_WAITING_MAX = 64


class Server(NamedTuple):
    """The process whose forks Spark gets; the directory has the launcher and the socket where it asks for them."""

    process: subprocess.Popen[bytes]
    directory: Path


class _Running:
    server: Server | None = None


_running = _Running()


def launcher_path() -> str | None:
    """The path of the launcher, whose server this process has now; ``None`` where there can't be one."""
    if platform.system() != "Linux":
        return None
    server = _running.server
    if server is not None and server.process.poll() is None:
        return str(server.directory / LAUNCHER)
    end()
    shebang = f"#!{sys.executable} -IS\n".encode()
    if len(shebang) > _SHEBANG_BYTES_MAX or " " in sys.executable:
        return None
    directory = Path(tempfile.mkdtemp(prefix="pybroker-python-"))
    if len(os.fsencode(directory / launcher.SOCKET)) >= _SOCKET_NAME_BYTES_MAX:
        directory.rmdir()
        return None
    script = directory / LAUNCHER
    script.write_bytes(shebang + Path(launcher.__file__).read_bytes())
    script.chmod(0o700)
    if not os.access(script, os.X_OK):  # a file system on which nothing runs
        shutil.rmtree(directory)
        return None
    # As Spark's Python processes have them: hashes are alike in all of them, and a task has one processor.
    at_start = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    # It listens from now on: who comes before the server has imported everything waits.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / launcher.SOCKET))
        listener.listen(_WAITING_MAX)
        # What forks print is not buffered, which Spark asks for: they end without a flush.
        command = [sys.executable, "-u", "-m", "pybroker.pipeline.warm_python.fork_server"]
        process = subprocess.Popen(
            [*command, str(directory), str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            env={**at_start, **os.environ},
        )
    _running.server = Server(process, directory)
    return str(script)


def end() -> bool:
    """End the server; False where there was none.  What it has forked ends with Spark."""
    if _running.server is None:
        return False
    (process, directory), _running.server = _running.server, None
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)
    return True
