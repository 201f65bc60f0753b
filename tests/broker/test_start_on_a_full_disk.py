"""kill -9 on a disk that is really full: the broker starts, serves reads, refuses writes, and heals with room."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.batches import batch
from harness.pybroker_process import PybrokerProcess

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.wire_client import WireClient

TOPICS, PARTITIONS, KILLS = 10, 5, 3
LARGE = 300_000
DISK = b"size=24m"
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own; skips where none can be mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "umount2") or libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, DISK):
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield path
    finally:
        detach = 2
        libc.umount2(os.fsencode(path), detach)


def fill_up(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def connect(broker: PybrokerProcess) -> WireClient:
    return WireClient((broker.host, broker.port))


def create(client: WireClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    reply = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 7)
    return int(reply.topics[0].error_code)


def ends(client: WireClient) -> list[tuple[int, int]]:
    """(error, high watermark) of a read of each partition."""
    found = []
    for number in range(TOPICS):
        for index in range(PARTITIONS):
            answer = client.fetch(f"t{number}", 0, partition=index).responses[0].partitions[0]
            found.append((answer.error_code, answer.high_watermark))
    return found


def test_broker_that_was_killed_on_a_full_disk_serves_reads(disk: Path) -> None:
    broker = PybrokerProcess(disk / "broker")
    ballast = disk / "ballast"
    broker.start()
    try:
        with connect(broker) as client:
            for number in range(TOPICS):
                assert create(client, f"t{number}") == 0
                for index in range(PARTITIONS):
                    assert client.produce(f"t{number}", batch(b"v"), partition=index).error_code == 0
        fill_up(ballast)
        for _ in range(KILLS):
            broker.kill()
            broker.start()
            with connect(broker) as client:
                assert ends(client) == [(0, 1)] * (TOPICS * PARTITIONS)
                fill_up(ballast)  # what the start made free of its own
                assert client.produce("t0", batch(bytes(LARGE))).error_code == STORAGE_ERROR
                assert ends(client) == [(0, 1)] * (TOPICS * PARTITIONS)
        ballast.unlink()
        with connect(broker) as client:
            assert client.produce("t0", batch(bytes(LARGE))).error_code == 0
            assert create(client, "new") == 0
        broker.stop()
        broker.start()
        with connect(broker) as client:
            assert ends(client) == [(0, 2)] + [(0, 1)] * (TOPICS * PARTITIONS - 1)
        broker.stop()
    finally:
        broker.kill()
