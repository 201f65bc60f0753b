"""What a burst of large requests took of the memory goes back to the system when the burst is over."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from pybroker_process import PybrokerProcess

from pybroker import limits
from pybroker.cli import broker_process
from tests.broker.conftest import eventually

CONNECTIONS = 100
FRAME_BYTES = 1_000_000
SMALL_FRAME_BYTES = 20_000
FILLED_MB = 80
# What is meant to stay: the pool of free buffers, the small requests, and what the interpreter took meanwhile.
KEPT_MB = (limits.BUFFER_POOL_BYTES >> 20) + 15


def has_glibc() -> bool:
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


def anonymous_mb(pid: int) -> int:
    """The memory that a process has allocated and touched."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) >> 10


def unfinished_request(broker: PybrokerProcess, size: int) -> socket.socket:
    """A connection that has sent all of a request but its last byte, so that the broker keeps it."""
    connection = socket.create_connection((broker.host, broker.port))
    connection.sendall(struct.pack(">i", size) + bytes(size - 1))
    return connection


@pytest.mark.skipif(not has_glibc(), reason="only glibc is told when to give memory back")
def test_memory_of_a_burst_goes_back(tmp_path: Path) -> None:
    with PybrokerProcess(tmp_path / "process") as broker:
        base_mb = anonymous_mb(broker.pid)
        with ExitStack() as stay, ExitStack() as go:
            for _ in range(2):
                for _ in range(CONNECTIONS):
                    go.enter_context(unfinished_request(broker, FRAME_BYTES))
                    stay.enter_context(unfinished_request(broker, SMALL_FRAME_BYTES))
                eventually(lambda: anonymous_mb(broker.pid) > base_mb + FILLED_MB, "the requests lie in memory")
                go.close()
                eventually(lambda: anonymous_mb(broker.pid) < base_mb + KEPT_MB, "the memory has gone back")


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """musl and macOS have no mallopt."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    broker_process.tune_allocator()
