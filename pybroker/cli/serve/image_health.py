"""The container's check of health: does the broker answer ApiVersions within two seconds?

    python -m pybroker.cli.serve.image_health [HOST PORT]

Owns: which listener is asked, the first that the variables and the mounted file give, and the question.  Exits with 0
for a healthy broker and 1 otherwise.  Uses the standard library alone while no file is mounted, so that a check every
few seconds costs as little as a Python start does.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Final

from pybroker.cli.serve.image_settings import PROTOCOL_MAP, SETTINGS_FILE, from_variables, listener_settings

TIMEOUT_S: Final = 2.0
API_VERSIONS: Final = 18
NULL_CLIENT_ID: Final = -1
_LOOPBACK: Final = "127.0.0.1"
_LOOPBACKS: Final = {"": _LOOPBACK, "0.0.0.0": _LOOPBACK, "[::]": "::1"}


def is_healthy(host: str, port: int, *, has_tls: bool = False) -> bool:
    """Whether ApiVersions version 0 is answered with error code 0; of TLS, the handshake alone."""
    request = struct.pack(">hhih", API_VERSIONS, 0, 1, NULL_CLIENT_ID)
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            if has_tls:
                return _speaks_tls(connection)
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as replies:
                # The frame's length, the correlation id, the error code.
                head = replies.read(10)
    except OSError:
        return False
    return len(head) == 10 and head[4:] == struct.pack(">ih", 1, 0)


def _speaks_tls(connection: socket.socket) -> bool:
    """Whether there is a handshake; the certificate may be any; OSError for none."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with context.wrap_socket(connection) as secured:
        return secured.version() is not None


def listener_to_ask(environment: Mapping[str, str]) -> tuple[str, int, bool]:
    """Host, port, and whether it has TLS, of the first listener for clients, by variables and file."""
    given = from_variables(environment, lambda path, setting: "").settings
    if os.path.exists(SETTINGS_FILE):
        from pybroker.config.properties import parse_properties

        with open(SETTINGS_FILE, errors="replace") as file:
            given = {**parse_properties(file.read()), **given}
    listeners = (given | listener_settings(given, _LOOPBACK))["listeners"]
    controllers = given.get("controller.listener.names", "CONTROLLER").upper().split(",")
    for listener in (each.strip() for each in listeners.split(",")):
        name, _, address = listener.partition("://")
        host, _, port = address.rpartition(":")
        if name.upper() not in controllers:
            return _LOOPBACKS.get(host, host.strip("[]")), int(port), _has_tls(name, given)
    raise ValueError(f"{listeners} names no listener for clients")


def _has_tls(listener: str, given: Mapping[str, str]) -> bool:
    """Whether the listener has TLS."""
    pairs = (entry.strip().rpartition(":") for entry in given.get(PROTOCOL_MAP, "").split(","))
    protocols = {name.upper(): protocol.upper() for name, _, protocol in pairs}
    return protocols.get(listener.upper(), listener.upper()).endswith("SSL")


def main(arguments: list[str]) -> int:
    """The exit code of one check."""
    host, port, has_tls = (arguments[0], int(arguments[1]), False) if arguments else listener_to_ask(os.environ)
    return 0 if is_healthy(host, port, has_tls=has_tls) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
