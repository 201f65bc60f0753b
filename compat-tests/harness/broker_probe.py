"""Is there a Kafka broker behind this port, and can it serve?

Owns: free ports, the HOST:PORT of a command line, the wait for the first sensible replies to ApiVersions and Metadata,
and what it announces.
The frames are built by hand, so that a wait for a broker depends on no client and on none of our codecs.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.sockets import receive_frame

METADATA, API_VERSIONS = 3, 18
CORRELATION_ID = 1


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def refusing_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port at which connections are refused until the end: it is taken by a socket that does not listen.

    A port that was merely free may be another test's a moment later.
    """
    with socket.socket() as bound:
        bound.bind((host, 0))
        yield bound.getsockname()[1]


def host_and_port(bootstrap: str) -> tuple[str, int]:
    """The two of HOST:PORT; raises ``ValueError``."""
    host, _, port = bootstrap.rpartition(":")
    if not host or "," in host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"not HOST:PORT: {bootstrap}")
    return host, int(port)


def bootstrap_argument(text: str) -> str:
    """The ``type`` of a command's ``--bootstrap``."""
    try:
        host_and_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def exit_unless_broker(parser: argparse.ArgumentParser, bootstrap: str | None) -> None:
    """End a command that was given the address of something else, before it builds and starts what would ask it."""
    # Long enough for a broker that has just been started.
    if bootstrap and not answers_as_broker(*host_and_port(bootstrap), timeout_s=10.0):
        parser.exit(2, f"{parser.prog}: no Kafka broker answers at {bootstrap}\n")


def answers_as_broker(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether ApiVersions v0 succeeds and Metadata v1 names at least one broker."""
    return brokers_known(host, port, timeout_s) > 0


def brokers_known(host: str, port: int, timeout_s: float = 2.0) -> int:
    """How many brokers Metadata v1 names; 0 where nothing answers that and ApiVersions v0."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            error_code = _int16(_call(connection, API_VERSIONS, 0, b""))
            # Metadata v1 with an empty array of topics asks for the brokers alone.
            broker_count = _int32(_call(connection, METADATA, 1, struct.pack(">i", 0)))
    except (OSError, EOFError, ValueError):
        return 0
    return 0 if error_code else broker_count


def announced_keys(host: str, port: int, timeout_s: float = 30.0) -> set[int]:
    """The API keys that the broker announces to ApiVersions v0."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        reply = _call(connection, API_VERSIONS, 0, b"")
    ranges = struct.iter_unpack(">hhh", reply[6 : 6 + 6 * _int32(reply[2:6])])
    return {key for key, _, _ in ranges}


def wait_until_ready(host: str, port: int, timeout_s: float, check_alive: Callable[[], None]) -> None:
    """Poll until the broker answers; ``check_alive`` raises when there is nothing to wait for any more."""
    deadline = time.monotonic() + timeout_s
    while not answers_as_broker(host, port):
        check_alive()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no broker answered on {host}:{port} within {timeout_s} s")
        time.sleep(0.02)


def _call(connection: socket.socket, api_key: int, api_version: int, body: bytes) -> bytes:
    """One request with a version 1 header and a null client id; returns the reply after its correlation id.

    Raises ``ValueError`` for what is no reply to it.
    """
    header = struct.pack(">hhih", api_key, api_version, CORRELATION_ID, -1)
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    reply = bytes(receive_frame(connection))
    if _int32(reply) != CORRELATION_ID:
        raise ValueError("what answers speaks another protocol")
    return reply[4:]


def _int16(reply: bytes) -> int:
    return int.from_bytes(reply[:2], "big", signed=True)


def _int32(reply: bytes) -> int:
    return int.from_bytes(reply[:4], "big", signed=True)
