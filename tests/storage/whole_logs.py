"""A log that has everything in it, what it answers, and every way in which one of its files may be damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybroker.storage.log.log import Log
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from tests.storage.logs import Client, Storage, read_all

TIME = 1_700_000_000_000
DELETED_BELOW = 3


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 | 1])  # never a number of whole entries


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half of it": halved,
    "garbage": lambda path: path.write_bytes(b"\x81\xfegarbage\n" * 9),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size or 64)),
    "missing": lambda path: path.unlink(),
    "a directory": a_directory,
}


def transaction(client: Client, producer_id: int, commit: bool, sequence: int = 0) -> None:
    client.send(
        attributes=0x10, producer_id=producer_id, producer_epoch=0, sequence=sequence, timestamp=TIME, values=[b"t"]
    )
    assert client.end(producer_id, 0, commit).error_code == 0


def fill(storage: Storage) -> Log:
    """Several segments with several epochs, times that go up and down, an idempotent producer and aborts."""
    log = storage.log()
    for epoch in range(3):
        client = Client(log, leader_epoch=2 * epoch)
        for i in range(12):
            values = [bytes(300)]
            sequence = 12 * epoch + i
            time = TIME + 1000 * sequence - 2500 * (i % 3)
            client.send(values=values, producer_id=1, producer_epoch=0, sequence=sequence, timestamp=time)
        transaction(client, 7 + epoch, commit=epoch == 1)
    log.update_high_watermark(log.log_end_offset)
    assert log.increment_log_start_offset(DELETED_BELOW) == 0
    assert len(log.segments) > 3
    return log


def answers(log: Log) -> dict[str, Any]:
    """Everything that clients and replicas could ask of a log."""
    log.update_high_watermark(log.log_end_offset)
    times: list[Any] = []
    for timestamp in range(TIME - 3000, TIME + 45_000, 1000):
        found = log.offset_for_timestamp(timestamp)
        assert not isinstance(found, TimestampLookup)
        times.append(None if found is None else (found.error_code, found.offset))
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert not isinstance(newest, TimestampLookup)
    return {
        "records": read_all(log),
        "offsets": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset),
        "epochs": [log.end_offset_for_epoch(epoch, 9) for epoch in range(8)],
        "times": [*times, newest.offset],
        "aborted": sorted(log.aborted_transactions(0, log.log_end_offset)),
        "producers": {key: (entry.producer_epoch, entry.batches[-1]) for key, entry in log.producers.producers.items()},
    }
