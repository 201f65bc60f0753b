"""End-to-end latency at a fixed rate: an open-loop producer and a tail consumer in one process, on one clock.

``python -m bench.latency_load``; takes its job as JSON on stdin and prints its outcome as JSON.

Requests of one small record leave by schedule, whatever the broker does, spread over ``connections`` connections,
each with a partition of its own.  Latency counts from the moment that the schedule names, so a stall of the broker
is counted for every request that it delays.  The consumer long-polls all partitions on one connection; a record is
known by its offset, since nobody else writes to the topic, so nothing is put into records and none is decoded.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass

from bench.raw_load import LENGTH, Connection, percentile
from bench.wire import (
    FETCH,
    check_produce_reply,
    connect,
    decode_reply,
    exchange,
    fetch_frame,
    produce_frame,
    record_batch,
)
from pybroker_protocol.records import batches

FETCH_BYTES_MAX = 4 * 1024 * 1024
RECEIVE_BYTES = 1024 * 1024
DRAIN_S = 5.0
IN_FLIGHT_MAX = 64


@dataclass(frozen=True, slots=True)
class Job:
    """One run at ``rate`` requests per second in all."""

    bootstrap: str
    topic: str
    rate: float
    connections: int = 8
    record_bytes: int = 200
    seconds: float = 3.0
    warmup_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Latencies in µs, of what was scheduled after the warm-up; ``lost`` were never consumed.

    A ``client_cpu_share`` near 1 says that the generator was the limit and the figures mean nothing.
    """

    requests: int
    lost: int
    produce_p50_us: float
    produce_p99_us: float
    end_to_end_p50_us: float
    end_to_end_p99_us: float
    client_cpu_share: float


class TailConsumer:
    """One connection that always has a Fetch for every partition open."""

    def __init__(self, job: Job) -> None:
        self.socket = connect(job.bootstrap)
        self.socket.setblocking(False)
        self.offsets = dict.fromkeys(range(job.connections), 0)
        self._topic = job.topic
        self._received = bytearray()

    def ask(self) -> None:
        """Send the next Fetch; it is far smaller than the socket's buffer."""
        self.socket.send(fetch_frame(self._topic, self.offsets, bytes_max=FETCH_BYTES_MAX))

    def read(self) -> list[tuple[int, int, int]]:
        """What has come: (partition, first offset, next offset) of every batch, once the reply is whole."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise EOFError("the broker closed the connection")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + LENGTH.unpack_from(self._received)[0]:
            return []
        response = decode_reply(FETCH, memoryview(bytes(self._received))[4:])
        self._received.clear()
        arrived = []
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code:
                    raise RuntimeError(f"fetch: error {partition.error_code}")
                for _, header in batches(partition.records or b""):
                    arrived.append((partition.partition_index, header.base_offset, header.next_offset))
                    self.offsets[partition.partition_index] = header.next_offset
        self.ask()
        return arrived


class Run:
    """The schedule, what is under way, and what has arrived."""

    def __init__(self, job: Job) -> None:
        self.job = job
        batch = record_batch(1, job.record_bytes)
        frames = [produce_frame(job.topic, {index: batch}) for index in range(job.connections)]
        self.connections = [Connection(job.bootstrap, frame, IN_FLIGHT_MAX) for frame in frames]
        for connection in self.connections:
            # The first record of each partition has offset 0 and no place in the schedule.
            check_produce_reply(exchange(connection.socket, connection.frame))
            connection.socket.setblocking(False)
        self.by_socket = {connection.socket: index for index, connection in enumerate(self.connections)}
        self.consumer = TailConsumer(job)
        self.readable = [*self.by_socket, self.consumer.socket]
        self.consumer.offsets = dict.fromkeys(range(job.connections), 1)
        # When each record was due, by partition; the record at index 0 has offset 1.
        self.due: list[list[float]] = [[] for _ in self.connections]
        self.waiting: list[deque[float]] = [deque() for _ in self.connections]
        self.produce: list[float] = []
        self.end_to_end: list[float] = []
        self.consumed = 0
        self.scheduled = 0

    def execute(self) -> Outcome:
        """Send by schedule, then wait for the rest."""
        job = self.job
        interval = 1 / job.rate
        total = int(job.rate * (job.warmup_seconds + job.seconds))
        self.consumer.ask()
        cpu_started = time.process_time()
        started = time.perf_counter() + 0.05
        measured_from = started + job.warmup_seconds
        deadline = started + job.warmup_seconds + job.seconds + DRAIN_S
        blocked: set[int] = set()
        while (now := time.perf_counter()) < deadline and (self.scheduled < total or self.consumed < total):
            while self.scheduled < total and started + self.scheduled * interval <= now:
                index = self.scheduled % job.connections
                self.send(index, started + self.scheduled * interval, blocked)
                self.scheduled += 1
            next_due = started + self.scheduled * interval if self.scheduled < total else now + 0.1
            self.poll(max(0.0, next_due - time.perf_counter()), blocked, measured_from)
        return self.outcome(total, (time.process_time() - cpu_started) / (time.perf_counter() - started))

    def send(self, index: int, due: float, blocked: set[int]) -> None:
        """Send one request that was due at ``due``."""
        self.due[index].append(due)
        self.waiting[index].append(due)
        if self.connections[index].send(1, due):
            blocked.add(index)

    def poll(self, wait_s: float, blocked: set[int], measured_from: float) -> None:
        """Handle what comes within ``wait_s``; select, because epoll's time-out knows whole milliseconds only."""
        writable = [self.connections[index].socket for index in blocked]
        readable, writable, _ = select.select(self.readable, writable, [], wait_s)
        for ready in writable:
            if not self.connections[self.by_socket[ready]].flush():
                blocked.discard(self.by_socket[ready])
        for ready in readable:
            if ready is self.consumer.socket:
                self.consume(measured_from)
            else:
                self.acknowledge(self.by_socket[ready], measured_from)

    def acknowledge(self, index: int, measured_from: float) -> None:
        """Take the replies of one connection."""
        replies = self.connections[index].count_replies()
        now = time.perf_counter()
        for _ in range(replies):
            due = self.waiting[index].popleft()
            if due >= measured_from:
                self.produce.append(now - due)

    def consume(self, measured_from: float) -> None:
        """Take what the consumer got."""
        arrived = self.consumer.read()
        now = time.perf_counter()
        for partition, first, following in arrived:
            for offset in range(first, following):
                due = self.due[partition][offset - 1]
                self.consumed += 1
                if due >= measured_from:
                    self.end_to_end.append(now - due)

    def outcome(self, total: int, client_cpu_share: float) -> Outcome:
        """The percentiles."""
        produce, end_to_end = sorted(self.produce), sorted(self.end_to_end)
        return Outcome(
            requests=len(produce),
            lost=total - self.consumed,
            produce_p50_us=percentile(produce, 0.5) * 1e6,
            produce_p99_us=percentile(produce, 0.99) * 1e6,
            end_to_end_p50_us=percentile(end_to_end, 0.5) * 1e6,
            end_to_end_p99_us=percentile(end_to_end, 0.99) * 1e6,
            client_cpu_share=client_cpu_share,
        )


if __name__ == "__main__":
    # A collection in the generator would show as a latency of the broker.
    gc.disable()
    json.dump(asdict(Run(Job(**json.load(sys.stdin))).execute()), sys.stdout)
