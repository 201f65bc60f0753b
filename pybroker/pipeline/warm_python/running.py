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

from pybroker.pipeline.warm_python import launcher

LAUNCHER = "python"
END_S = 5.0
# What a name of a socket may have at most, with its end.
_SOCKET_NAME_BYTES_MAX = 108
_SHEBANG_BYTES_MAX = 127
_WAITING_MAX = 64

_servers: list[tuple[subprocess.Popen[bytes], Path]] = []


def launcher_path() -> str | None:
    """The path of the launcher, whose server this process has now; ``None`` where there can't be one."""
    if platform.system() != "Linux":
        return None
    for server, directory in _servers:
        if server.poll() is None:
            return str(directory / LAUNCHER)
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
        command = [sys.executable, "-u", "-m", "pybroker.pipeline.warm_python.server"]
        server = subprocess.Popen(
            [*command, str(directory), str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            env={**at_start, **os.environ},
        )
    _servers.append((server, directory))
    return str(script)


def end() -> bool:
    """End the server; False where there was none.  What it has forked ends with Spark."""
    was_there = bool(_servers)
    while _servers:
        server, directory = _servers.pop()
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(directory, ignore_errors=True)
    return was_there
