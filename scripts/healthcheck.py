"""The container's health check: does the broker answer ApiVersions within two seconds?

    python healthcheck.py HOST PORT

Exits with 0 for a healthy broker and 1 otherwise.  Uses the standard library alone, so that a check every few
seconds costs as little as a Python start does.
"""

from __future__ import annotations

import socket
import struct
import sys

TIMEOUT_S = 2.0
API_VERSIONS = 18
NULL_CLIENT_ID = -1


def is_healthy(host: str, port: int) -> bool:
    """Whether ApiVersions version 0 is answered with error code 0."""
    request = struct.pack(">hhih", API_VERSIONS, 0, 1, NULL_CLIENT_ID)
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as replies:
                # The frame's length, the correlation id, the error code.
                head = replies.read(10)
    except OSError:
        return False
    return len(head) == 10 and head[4:] == struct.pack(">ih", 1, 0)


if __name__ == "__main__":
    sys.exit(0 if is_healthy(sys.argv[1], int(sys.argv[2])) else 1)
