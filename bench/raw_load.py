"""A raw pipelined producer: prepared frames over plain sockets, as cheap as Python allows.

A process of its own (``python -m bench.raw_load``), so that its CPU time is nobody else's and two of them can run at
once.  Takes its job as JSON on stdin and prints its outcome as JSON.

Every connection produces to a partition of its own and keeps ``in_flight`` requests open.  Replies are counted by
their lengths; the first of each connection is decoded and must be without error, and the caller compares the log's
growth with the number of acknowledged requests.  Latency is from the send of a request to the read of its reply.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bench.wire import check_produce_reply, connect, exchange, produce_frame, record_batch

# What all connections read into: a fresh buffer for each read costs as much as the read.
RECEIVED = memoryview(bytearray(64 * 1024))
LENGTH = struct.Struct(">i")
# The kernel's default for loopback is too small for a request of a megabyte to leave in few calls.
SEND_BUFFER_BYTES = 4 * 1024 * 1024
# Frames below this size that become due together leave in one call.
SMALL_FRAME_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Job:
    """One run; it ends ``seconds`` after its warm-up, or when so many ``requests`` that were sent after it have been
    acknowledged, whichever comes first: two brokers are measured over as much, whatever they did while they warmed up.
    """

    bootstrap: str
    topic: str
    records: int = 1
    record_bytes: int = 200
    connections: int = 1
    in_flight: int = 1
    seconds: float = 3.0
    warmup_seconds: float = 1.0
    requests: int = 2**62


@dataclass(frozen=True, slots=True)
class Outcome:
    """``requests`` and ``seconds`` are those after the warm-up; ``acknowledged`` counts all.  Latencies in µs."""

    requests: int
    acknowledged: int
    seconds: float
    batch_bytes: int
    p50_us: float
    p99_us: float

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_second(self) -> float:
        return self.requests * self.batch_bytes / self.seconds / 1e6


class Recorder:
    """Counts acknowledgements and, after the warm-up, their latencies."""

    def __init__(self, job: Job) -> None:
        self.acknowledged = 0
        self.latencies: list[float] = []
        self.measured_from = time.perf_counter() + job.warmup_seconds
        self._ends = self.measured_from + job.seconds
        self._requests = job.requests

    def add(self, sent: float, now: float) -> None:
        """One request that was sent at ``sent`` was acknowledged ``now``."""
        self.acknowledged += 1
        if sent >= self.measured_from:
            self.latencies.append(now - sent)

    def is_over(self, now: float) -> bool:
        """Whether no further request is to be sent."""
        return now >= self._ends or len(self.latencies) >= self._requests


class Connection:
    """One connection and the requests in flight on it."""

    def __init__(self, bootstrap: str, frame: bytes, in_flight: int) -> None:
        self.socket = connect(bootstrap)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.frame = frame
        small = len(self.frame) < SMALL_FRAME_BYTES
        self.bursts = [self.frame * count for count in range(in_flight + 1)] if small else []
        self.sent: deque[float] = deque()
        self._unsent: deque[memoryview] = deque()
        self._received = b""
        self._reply_bytes = 0  # of the last reply, length included: nearly all are alike

    def next_frame(self) -> bytes:
        """The request that is to be sent next; here always the same."""
        return self.frame

    def send(self, count: int, now: float) -> bool:
        """Send ``count`` requests; returns whether bytes are left that the socket did not take."""
        self.sent.extend([now] * count)
        if self.bursts:
            self._unsent.append(memoryview(self.bursts[count]))
        else:
            self._unsent.extend(memoryview(self.frame) for _ in range(count))
        return self.flush()

    def flush(self) -> bool:
        """Send what is left; returns whether something still is."""
        while self._unsent:
            view = self._unsent[0]
            try:
                taken = self.socket.send(view)
            except BlockingIOError:
                return True
            if taken < len(view):
                self._unsent[0] = view[taken:]
                return True
            self._unsent.popleft()
        return False

    def count_replies(self) -> int:
        """Read what is there and return how many replies it completes."""
        received = self.socket.recv_into(RECEIVED)
        if not received:
            raise EOFError("the broker closed the connection")
        if not self._received and received == self._reply_bytes:
            return 1
        data = self._received + RECEIVED[:received]
        position = replies = 0
        available = len(data)
        while available - position >= 4:
            end = position + 4 + LENGTH.unpack_from(data, position)[0]
            if end > available:
                break
            self._reply_bytes = end - position
            position = end
            replies += 1
        self._received = data[position:]
        return replies


def run_one_at_a_time(connection: Connection, recorder: Recorder) -> None:
    """One connection, one request in flight: blocking calls, the least that a client can do."""
    send, receive, next_frame = connection.socket.send, connection.socket.recv_into, connection.next_frame
    reply_bytes = 4 + len(exchange(connection.socket, next_frame()))
    recorder.acknowledged += 1
    now = time.perf_counter()
    while not recorder.is_over(now):
        send(next_frame())
        if receive(RECEIVED) != reply_bytes:
            raise ValueError("a reply came in pieces, or is not like the first one")
        sent, now = now, time.perf_counter()
        recorder.add(sent, now)


def run_one_each(connections: Sequence[Connection], recorder: Recorder) -> None:
    """Several connections with one request in flight each, behind one epoll.

    The generator has one core and the broker the other: what is done here between a reply and the next request lowers
    the rate of the faster broker, so that everything is at hand as a local and nothing is called that need not be.
    """
    clock, latencies, measured_from = time.perf_counter, recorder.latencies, recorder.measured_from
    received, sent = RECEIVED, dict[int, float]()
    calls: dict[int, tuple[Callable[[memoryview], int], int, Callable[[bytes], int], Callable[[], bytes]]] = {}
    with select.epoll() as poll:
        for connection in connections:
            reply_bytes = 4 + len(exchange(connection.socket, connection.next_frame()))
            recorder.acknowledged += 1
            fd = connection.socket.fileno()
            calls[fd] = (connection.socket.recv_into, reply_bytes, connection.socket.send, connection.next_frame)
            poll.register(fd, select.EPOLLIN)
        for fd, (_, _, send, next_frame) in calls.items():
            sent[fd] = clock()
            send(next_frame())
        waiting = len(calls)
        while waiting:
            for fd, _ in poll.poll():
                receive, reply_bytes, send, next_frame = calls[fd]
                if receive(received) != reply_bytes:
                    raise ValueError("a reply came in pieces, or is not like the first one")
                now = clock()
                recorder.acknowledged += 1
                if sent[fd] >= measured_from:
                    latencies.append(now - sent[fd])
                if recorder.is_over(now):
                    waiting -= 1
                else:
                    sent[fd] = now
                    send(next_frame())


def run_pipelined(connections: Sequence[Connection], in_flight: int, recorder: Recorder) -> None:
    """Several connections behind one epoll, each refilled as soon as replies come in."""
    both = select.EPOLLIN | select.EPOLLOUT
    by_fd = {connection.socket.fileno(): connection for connection in connections}
    with select.epoll() as poll:
        for fd, connection in by_fd.items():
            connection.socket.setblocking(False)
            blocked = connection.send(in_flight, time.perf_counter())
            poll.register(fd, both if blocked else select.EPOLLIN)
        while any(connection.sent for connection in connections):
            for fd, event in poll.poll():
                connection = by_fd[fd]
                if event & select.EPOLLOUT and not connection.flush():
                    poll.modify(fd, select.EPOLLIN)
                if event & ~select.EPOLLOUT and take_replies(connection, recorder):
                    poll.modify(fd, both)


def take_replies(connection: Connection, recorder: Recorder) -> bool:
    """Record the replies that are there and send as many requests again; returns whether the socket is full."""
    replies = connection.count_replies()
    now = time.perf_counter()
    for _ in range(replies):
        recorder.add(connection.sent.popleft(), now)
    return bool(replies) and not recorder.is_over(now) and connection.send(replies, now)


def percentile(ordered: list[float], share: float) -> float:
    """The value below which ``share`` of an ordered list lies; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def run(job: Job) -> Outcome:
    """Do the job in this process."""
    batch = record_batch(job.records, job.record_bytes)
    frames = [produce_frame(job.topic, {partition: batch}) for partition in range(job.connections)]
    connections = [Connection(job.bootstrap, frame, job.in_flight) for frame in frames]
    for connection in connections:
        check_produce_reply(exchange(connection.socket, connection.frame))
    return drive(job, connections, len(batch))


def drive(job: Job, connections: Sequence[Connection], batch_bytes: int) -> Outcome:
    """Send and receive on connections that have had one reply each."""
    recorder = Recorder(job)
    if job.connections == 1 and job.in_flight == 1:
        run_one_at_a_time(connections[0], recorder)
    elif job.in_flight == 1 and connections[0].bursts:
        run_one_each(connections, recorder)
    else:
        run_pipelined(connections, job.in_flight, recorder)
    seconds = time.perf_counter() - recorder.measured_from
    for connection in connections:
        connection.socket.close()
    if not recorder.latencies:
        raise RuntimeError("no request that was sent after the warm-up was acknowledged")
    ordered = sorted(recorder.latencies)
    return Outcome(
        requests=len(ordered),
        acknowledged=recorder.acknowledged + len(connections),
        seconds=seconds,
        batch_bytes=batch_bytes,
        p50_us=percentile(ordered, 0.5) * 1e6,
        p99_us=percentile(ordered, 0.99) * 1e6,
    )


if __name__ == "__main__":
    # A collection in the generator would show as a latency of the broker.
    gc.disable()
    json.dump(asdict(run(Job(**json.load(sys.stdin)))), sys.stdout)
