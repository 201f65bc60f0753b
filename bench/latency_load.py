"""End-to-end latency at a fixed rate: an open-loop producer and a tail consumer in one process, on one clock.

``python -m bench.latency_load``; takes its job as JSON on stdin and prints its outcome as JSON.

Requests of one small record leave by schedule, whatever the broker does: to every partition in turn, spread over
``connections`` connections.  Latency counts from the moment that the schedule names, so a stall of the broker is
counted for every request that it delays.  The consumers share the partitions and long-poll them, each on a connection
of its own; a record is known by its offset, since nobody else writes to the topic, so nothing is put into records and
none is decoded.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from socket import socket

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


@dataclass(frozen=True, slots=True)
class Job:
    """One run at ``rate`` requests per second in all; without ``partitions`` there are as many as connections."""

    bootstrap: str
    topic: str
    rate: float
    connections: int = 8
    partitions: int | None = None
    consumers: int = 1
    record_bytes: int = 200
    seconds: float = 3.0
    warmup_seconds: float = 1.0

    @property
    def partition_count(self) -> int:
        return self.partitions or self.connections


@dataclass(frozen=True, slots=True)
class Outcome:
    """Latencies in µs, of what was scheduled after the warm-up; ``lost`` were never consumed, or never answered.

    A ``client_cpu_share`` near 1 says that the generator was the limit and the figures mean nothing.
    """

    requests: int
    lost: int
    produce_p50_us: float
    produce_p99_us: float
    produce_p999_us: float
    end_to_end_p50_us: float
    end_to_end_p99_us: float
    end_to_end_p999_us: float
    client_cpu_share: float


class Producer(Connection):
    """One connection that sends a frame of its own to each of its partitions."""

    def __init__(self, bootstrap: str, frames: Mapping[int, bytes]) -> None:
        super().__init__(bootstrap, b"", in_flight=0)
        self._frames = {partition: memoryview(frame) for partition, frame in frames.items()}
        for frame in frames.values():
            # The first record of each partition has offset 0 and no place in the schedule.
            check_produce_reply(exchange(self.socket, frame))
        self.socket.setblocking(False)

    def send_to(self, partition: int, due: float) -> bool:
        """Send one request that was due at ``due``; returns whether bytes are left that the socket did not take."""
        self.sent.append(due)
        self._unsent.append(self._frames[partition])
        return self.flush()


class TailConsumer:
    """One connection that always has a Fetch for its partitions open."""

    def __init__(self, job: Job, partitions: Sequence[int]) -> None:
        self.socket = connect(job.bootstrap)
        self.socket.setblocking(False)
        self.offsets = dict.fromkeys(partitions, 1)
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
        partitions = range(job.partition_count)
        self.producers = [
            Producer(
                job.bootstrap,
                {index: produce_frame(job.topic, {index: batch}) for index in partitions[number :: job.connections]},
            )
            for number in range(job.connections)
        ]
        # Neighbouring partitions are of one consumer and of different producers.
        bounds = [number * len(partitions) // job.consumers for number in range(job.consumers + 1)]
        self.consumers = [TailConsumer(job, partitions[low:high]) for low, high in pairwise(bounds)]
        ends: list[Producer | TailConsumer] = [*self.producers, *self.consumers]
        self.by_socket = {end.socket: end for end in ends}
        self.readable = list(self.by_socket)
        # When each record was due, by partition; the record at index 0 has offset 1.
        self.due: list[list[float]] = [[] for _ in partitions]
        self.produce: list[float] = []
        self.end_to_end: list[float] = []
        self.answered = 0
        self.consumed = 0
        self.scheduled = 0

    def execute(self) -> Outcome:
        """Send by schedule, then wait for the rest."""
        job = self.job
        interval = 1 / job.rate
        total = int(job.rate * (job.warmup_seconds + job.seconds))
        for consumer in self.consumers:
            consumer.ask()
        cpu_started = time.process_time()
        started = time.perf_counter() + 0.05
        measured_from = started + job.warmup_seconds
        deadline = started + job.warmup_seconds + job.seconds + DRAIN_S
        blocked: set[socket] = set()
        while (now := time.perf_counter()) < deadline and min(self.answered, self.consumed) < total:
            while self.scheduled < total and started + self.scheduled * interval <= now:
                self.send(self.scheduled % job.partition_count, started + self.scheduled * interval, blocked)
                self.scheduled += 1
            next_due = started + self.scheduled * interval if self.scheduled < total else now + 0.1
            self.poll(max(0.0, next_due - time.perf_counter()), blocked, measured_from)
        return self.outcome(total, (time.process_time() - cpu_started) / (time.perf_counter() - started))

    def send(self, partition: int, due: float, blocked: set[socket]) -> None:
        """Send one request that was due at ``due``."""
        self.due[partition].append(due)
        producer = self.producers[partition % self.job.connections]
        if producer.send_to(partition, due):
            blocked.add(producer.socket)

    def poll(self, wait_s: float, blocked: set[socket], measured_from: float) -> None:
        """Handle what comes within ``wait_s``; select, because epoll's time-out knows whole milliseconds only."""
        readable, writable, _ = select.select(self.readable, list(blocked), [], wait_s)
        for ready in writable:
            producer = self.by_socket[ready]
            assert isinstance(producer, Producer)
            if not producer.flush():
                blocked.discard(ready)
        for ready in readable:
            end = self.by_socket[ready]
            if isinstance(end, Producer):
                self.acknowledge(end, measured_from)
            else:
                self.consume(end, measured_from)

    def acknowledge(self, producer: Producer, measured_from: float) -> None:
        """Take the replies of one connection."""
        replies = producer.count_replies()
        now = time.perf_counter()
        self.answered += replies
        for _ in range(replies):
            due = producer.sent.popleft()
            if due >= measured_from:
                self.produce.append(now - due)

    def consume(self, consumer: TailConsumer, measured_from: float) -> None:
        """Take what a consumer got."""
        arrived = consumer.read()
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
            lost=total - min(self.answered, self.consumed),
            produce_p50_us=percentile(produce, 0.5) * 1e6,
            produce_p99_us=percentile(produce, 0.99) * 1e6,
            produce_p999_us=percentile(produce, 0.999) * 1e6,
            end_to_end_p50_us=percentile(end_to_end, 0.5) * 1e6,
            end_to_end_p99_us=percentile(end_to_end, 0.99) * 1e6,
            end_to_end_p999_us=percentile(end_to_end, 0.999) * 1e6,
            client_cpu_share=client_cpu_share,
        )


if __name__ == "__main__":
    # A collection in the generator would show as a latency of the broker.
    gc.disable()
    json.dump(asdict(Run(Job(**json.load(sys.stdin))).execute()), sys.stdout)
