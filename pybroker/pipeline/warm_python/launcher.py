"""What Spark's JVM runs in place of ``python``: a place holder for a copy of the server, or ``python`` itself.

Runs as a script of its own, with nothing but the standard library (``-IS``), so that it begins in 30 ms.  It hands its
arguments, environment, working directory and standard streams over, and ends as the copy ends; where it is killed the
copy is ended.  The server answers in two steps (`STARTED`, then an exit code): before the first of them nothing has
been done, and the ordinary ``python`` does it.

Invariant: a command runs once, here or there.
"""

import json
import os
import socket
import struct
import sys

# Where the server listens: beside this file.
SOCKET = "socket"
STARTED = b"+"
EXIT_CODE = struct.Struct("!i")
LENGTH = struct.Struct("!i")
# The server imports for some seconds when it is new.
ANSWER_S = 60.0
STREAMS = (0, 1, 2)


def launch(connection: socket.socket, arguments: list[str]) -> int | None:
    """Have the server run a command; its exit code, or ``None`` where it has not been begun."""
    order = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [LENGTH.pack(len(order))], STREAMS)
    connection.sendall(order)
    if connection.recv(1) != STARTED:
        return None
    connection.settimeout(None)
    answer = connection.recv(EXIT_CODE.size)
    return int(EXIT_CODE.unpack(answer)[0]) if len(answer) == EXIT_CODE.size else 1


def main() -> None:
    exit_code = None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.settimeout(ANSWER_S)
            connection.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), SOCKET))
            exit_code = launch(connection, sys.argv[1:])
        except OSError:
            pass
    if exit_code is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    os._exit(exit_code if exit_code >= 0 else 128 - exit_code)


if __name__ == "__main__":
    main()
