"""What an append and a read at the tail cost, without a network: ``python bench/log_append.py [--directory DIR]``.

Prints microseconds per operation on a warm log, validation and checksum apart, the rate of large appends through the
writer thread, and the time to recover what was written.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.log_config import LogConfig
from pybroker.env import Env
from pybroker.net.loop_env import LoopClock, ThreadExecutor
from pybroker.storage.log.log import Log
from pybroker.storage.manager.log_manager import LogManager
from pybroker.storage.rules.validator import AppendRules, validate
from pybroker_protocol.record_codec import build_batch

SEQUENCE_AT = 53  # in a batch
PRODUCE_VERSION = 13
TOPIC_ID = b"0123456789abcdef"


class NoTimers:
    """Timers that never fire: housekeeping is no part of the measurement."""

    def call_later(self, _delay_ms: float, _callback: Callable[..., Any], *_args: Any) -> NoTimers:
        return self

    def call_soon(self, _callback: Callable[..., Any], *_args: Any) -> NoTimers:
        return self

    def cancel(self) -> None:
        pass


def environment() -> tuple[Env, queue.SimpleQueue[Any]]:
    """Real threads and clock; completions arrive in a queue, which stands for the loop."""
    completions: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def call_threadsafe(function: Callable[..., Any], *args: Any) -> None:
        completions.put((function, args))

    timers = NoTimers()
    clock = LoopClock()
    executor = lambda name, niceness: ThreadExecutor(name, niceness, call_threadsafe, clock)  # noqa: E731
    return Env(clock, timers, executor, call_threadsafe, Random()), completions


def timed(label: str, count: int, action: Callable[[], object]) -> float:
    """Best of five runs, in microseconds per operation."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    cost = best / count * 1e6
    print(f"{label:56} {cost:8.2f} us")
    return cost


def bench_small(log: Log, records: int, value_bytes: int, producer: bool) -> None:
    """Appends of one small batch, and reads of it at the tail."""
    now = time.time_ns() // 1_000_000
    pristine = build_batch(
        [(None, bytes(value_bytes))] * records,
        timestamp_ms=now,
        producer_id=7 if producer else -1,
        producer_epoch=0 if producer else -1,
        base_sequence=0 if producer else -1,
    )
    batch = memoryview(bytearray(pristine))
    rules = AppendRules(log.config)
    count = 20_000
    kind = "idempotent " if producer else ""

    def validate_only() -> None:
        for _ in range(count):
            validate(batch, rules, now, PRODUCE_VERSION)

    def append() -> None:
        for _ in range(count):
            batch[:8] = bytes(8)
            log.append_as_leader(batch, 0, PRODUCE_VERSION, print)

    def append_idempotent() -> None:
        sequence = log.producers.producers[7].batches[-1][1] + 1 if 7 in log.producers.producers else 0
        for i in range(count):
            struct.pack_into(">i", batch, SEQUENCE_AT, sequence + i * records)
            log.append_internal(batch, 0, print)

    timed(f"validate {records} x {value_bytes} B", count, validate_only)
    timed(f"append {kind}{records} x {value_bytes} B", count, append_idempotent if producer else append)

    def read() -> None:
        offset = log.log_end_offset - records
        upper = log.log_end_offset
        for _ in range(count):
            log.read(offset, 1 << 20, upper, True)

    timed("read of the last batch", count, read)


def bench_large(log: Log, completions: queue.SimpleQueue[Any], batch_bytes: int, total_bytes: int) -> None:
    """Large appends through the writer thread, eight in flight."""
    now = time.time_ns() // 1_000_000
    pristine = build_batch([(None, os.urandom(batch_bytes - 100))], timestamp_ms=now)
    buffers = [memoryview(bytearray(pristine)) for _ in range(8)]
    free = deque(buffers)
    in_flight: deque[memoryview] = deque()
    count = total_bytes // batch_bytes
    start = time.perf_counter()
    cpu = time.process_time()
    sent = done = 0

    def on_complete(_result: object) -> None:
        nonlocal done
        done += 1
        free.append(in_flight.popleft())

    while done < count:
        while free and sent < count:
            batch = free.popleft()
            in_flight.append(batch)
            batch[:8] = bytes(8)
            log.append_as_leader(batch, 0, PRODUCE_VERSION, on_complete)
            sent += 1
        function, args = completions.get()
        function(*args)
    elapsed = time.perf_counter() - start
    rate = count * batch_bytes / elapsed / 1e6
    per_gb = (time.process_time() - cpu) / (count * batch_bytes / 1e9)
    print(f"append {batch_bytes >> 10} KB through the writer thread {rate:27.0f} MB/s, {per_gb:.2f} CPU s/GB")


def bench_recovery(directory: Path) -> None:
    """A start after a crash, over everything that was written, nothing of it synced."""
    (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    total = sum(path.stat().st_size for path in directory.glob("*/*.log"))
    env, _ = environment()
    manager = LogManager(env, BrokerConfig.load(data_dir=str(directory)), lambda: None)
    start = time.perf_counter()
    manager.start()
    elapsed = time.perf_counter() - start
    print(f"recovery of {total / 1e9:.2f} GB {elapsed:40.2f} s, {total / elapsed / 1e9:.2f} GB/s")
    manager.close()


def main() -> None:
    """Run everything in a temporary directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's temporary directory)")
    parser.add_argument("--large-bytes", type=int, default=1 << 30, help="bytes to write in large appends")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="log-append-", dir=arguments.directory))
    try:
        env, completions = environment()
        config = BrokerConfig.load(data_dir=str(directory), settings=[("pybroker.fsync.enable", "false")])
        manager = LogManager(env, config, lambda: None)
        manager.start()
        for index, (records, value_bytes, producer) in enumerate([(1, 100, False), (1, 100, True), (10, 1000, False)]):
            log = manager.open("small", TOPIC_ID, index, LogConfig())
            assert log is not None
            bench_small(log.open(), records, value_bytes, producer)
        large = manager.open("large", TOPIC_ID, 0, LogConfig())
        assert large is not None
        bench_large(large.open(), completions, 1_000_000, arguments.large_bytes)
        for state in manager._states:
            state.directory.close_executors()
            state.directory.unlock()
        bench_recovery(directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
