"""Transactions of one record, one after another, through confluent-kafka, and how long each takes.

``python -m bench.transaction_load``; takes its job as JSON on stdin and prints its outcome as JSON.

A transaction is timed from its beginning to the end of its commit.  In the end the broker is asked for the last stable
offset.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import uuid
from dataclasses import asdict, dataclass

from confluent_kafka import Producer

from bench.wire import READ_COMMITTED, Client

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """Transactions for ``seconds`` behind a warm-up."""

    bootstrap: str
    topic: str
    seconds: float = 3.0
    warmup_seconds: float = 1.0
    record_bytes: int = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """``transactions`` and their latencies are those after the warm-up; ``committed`` counts all."""

    transactions: int
    committed: int
    seconds: float
    p50_us: float
    p99_us: float


def run(job: Job) -> Outcome:
    """Do the job in this process."""
    config = {"bootstrap.servers": job.bootstrap, "transactional.id": f"bench-{uuid.uuid4().hex[:8]}", "linger.ms": 0}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    value = bytes(job.record_bytes)
    latencies: list[float] = []
    committed = 0
    now = time.perf_counter()
    measured_from = now + job.warmup_seconds
    ends = measured_from + job.seconds
    while now < ends:
        started = now
        producer.begin_transaction()
        producer.produce(job.topic, value, partition=0)
        producer.commit_transaction(TIMEOUT_S)
        now = time.perf_counter()
        committed += 1
        if started >= measured_from:
            latencies.append(now - started)
    check_topic(job, committed)
    latencies.sort()
    return Outcome(
        transactions=len(latencies),
        committed=committed,
        seconds=now - measured_from,
        p50_us=percentile(latencies, 0.5) * 1e6,
        p99_us=percentile(latencies, 0.99) * 1e6,
    )


def percentile(ordered: list[float], share: float) -> float:
    """The value below which ``share`` of an ordered list lies; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def check_topic(job: Job, committed: int) -> None:
    """Raise ``RuntimeError`` unless read_committed consumers may read all: every record, and the marker behind it.

    Kafka writes the last marker after it has answered (KIP-890), so that it may have to be waited for.
    """
    deadline = time.perf_counter() + TIMEOUT_S
    with Client(job.bootstrap) as client:
        while (end := client.end_offsets(job.topic, [0], isolation_level=READ_COMMITTED)[0]) != 2 * committed:
            if end > 2 * committed or time.perf_counter() > deadline:
                raise RuntimeError(f"{committed} transactions were committed, the last stable offset is {end}")
            time.sleep(0.01)


if __name__ == "__main__":
    gc.disable()
    json.dump(asdict(run(Job(**json.load(sys.stdin)))), sys.stdout)
