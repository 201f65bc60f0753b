"""What Spark's JVM runs in place of ``python``: a place holder for a copy of the server, or ``python`` itself.

Runs as a script of its own, with nothing but the standard library (``-IS``), so that it begins in 30 ms.  It hands its
arguments, environment, working directory and standard streams over, and ends as the copy ends; where it is killed the
copy is ended.  The server answers in two steps (`STARTED`, then an exit code as a line): before the first of them
nothing has been done, and the ordinary ``python`` does it.  For the second one a shell waits in its place, because an
interpreter that waits takes 6 MB, and a supervisor of connectors has a dozen of them.

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
LENGTH = struct.Struct("!i")
# The server imports for some seconds when it is new.
ANSWER_S = 60.0
STREAMS = (0, 1, 2)

# Spark is started by shells, so that there is one.  No line comes where the server has ended.
SHELL = "/bin/sh"
_WAIT = "read -r code && exit $code; exit 1"


def is_taken(connection: socket.socket, arguments: list[str]) -> bool:
    """Have the server run a command; False where it has not been begun."""
    order = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [LENGTH.pack(len(order))], STREAMS)
    connection.sendall(order)
    return connection.recv(1) == STARTED


def wait(connection: socket.socket) -> None:
    """Become a shell that ends with the exit code which the server tells; does not return."""
    connection.settimeout(None)  # the shell's end of it must block, too
    os.dup2(connection.fileno(), 0)
    os.execv(SHELL, [SHELL, "-c", _WAIT])


def main() -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        begun = False
        try:
            connection.settimeout(ANSWER_S)
            connection.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), SOCKET))
            begun = is_taken(connection, sys.argv[1:])
        except OSError:
            pass
        if begun:
            wait(connection)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
