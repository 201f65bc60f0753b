"""A raw consumer that reads partitions from the beginning, as fast as it goes.

``python -m bench.cold_load``; takes its job as JSON on stdin and prints its outcome as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from bench.wire import FETCH, connect, decode_reply, exchange, fetch_frame
from pybroker_protocol.records import batches

FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Job:
    """Read partitions one after another, each up to ``end_offset`` or its end, for ``seconds`` at most."""

    bootstrap: str
    topic: str
    partitions: int
    end_offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was read."""

    bytes: int
    seconds: float


def run(job: Job) -> Outcome:
    """Fetch until everything is read or time is up."""
    connection = connect(job.bootstrap)
    received = 0
    started = time.perf_counter()
    for partition in range(job.partitions):
        offset = 0
        while offset < job.end_offset and time.perf_counter() - started < job.seconds:
            request = fetch_frame(job.topic, {partition: offset}, bytes_max=FETCH_BYTES)
            response = decode_reply(FETCH, memoryview(exchange(connection, request)))
            answer = response.responses[0].partitions[0]
            if answer.error_code:
                raise RuntimeError(f"fetch: error {answer.error_code}")
            if not answer.records:
                break
            received += len(answer.records)
            for _, header in batches(answer.records):
                offset = header.next_offset
    return Outcome(received, time.perf_counter() - started)


if __name__ == "__main__":
    json.dump(asdict(run(Job(**json.load(sys.stdin)))), sys.stdout)
