"""The loads of the compiled generators: jobs as values, and what came of them.

    .venv/bin/python -m bench.loads produce HOST:PORT [--connections 8] [--in-flight 5] [--record-bytes 100] …

Owns: the frames that a load sends (prepared here with the project's own encoders, so that the programs in
``bench/native`` know replies only), the text of a job, and the outcome's form.  A load against a running broker makes
its own topic and deletes it; ``--help`` lists the kinds.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

from bench.compiled import program
from bench.group_member import join
from bench.subprocesses import Generator
from bench.wire import OFFSET_COMMIT, Client, fetch_frame, frame, produce_frame, record_batch
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

NO_LIMIT = 2**62
FETCH_BYTES = 8 * 1024 * 1024
# A number that no request holds by chance, to find out where its counter stands.
MARK = 0x51A7E5C0FFEE0000
_MARK_BYTES = struct.pack(">q", MARK)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Latencies in µs, each at most 1/128 too high."""

    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """``requests``, ``seconds`` and ``fetched_bytes`` are those after the warm-up; ``acknowledged`` counts all, and
    ``by_connection`` each connection's.  A ``client_cpu_share`` near 1 says that the generator was the limit."""

    requests: int
    acknowledged: int
    seconds: float
    fetched_bytes: int
    client_cpu_share: float
    by_connection: list[int]
    latency: Percentiles
    requests_per_second: float


@dataclass(frozen=True, slots=True)
class Extent:
    """How long a closed loop goes on: ``seconds`` after its warm-up, or until so many ``requests`` that were sent after
    it have been acknowledged, whichever comes first: two brokers are measured over as much."""

    seconds: float = 3.0
    warmup_seconds: float = 1.0
    requests: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class Produce:
    """Every connection produces to a partition of its own: at ``leaders``, its broker's ``HOST:PORT`` by partition, or
    all at ``bootstrap``."""

    bootstrap: str
    topic: str
    records: int = 1
    record_bytes: int = 100
    connections: int = 1
    in_flight: int = 1
    extent: Extent = Extent()
    leaders: Sequence[str] = ()
    is_tls: bool = False

    def batch(self) -> bytes:
        """What every request carries."""
        return record_batch(self.records, self.record_bytes)

    def frames(self) -> list[bytes]:
        """The request of each connection."""
        batch = self.batch()
        return [produce_frame(self.topic, {partition: batch}) for partition in range(self.connections)]

    def start(self) -> ClosedLoop:
        """Begin in the background."""
        lines = closed_loop_lines("produce", self.bootstrap, self.extent, self.in_flight, is_tls=self.is_tls)
        for partition, request in enumerate(self.frames()):
            if self.leaders:
                lines.extend(address_lines(self.leaders[partition]))
            lines.extend(connection_lines([request]))
        return ClosedLoop(lines)

    def run(self) -> Outcome:
        """Do it to its end."""
        return self.start().outcome()


@dataclass(frozen=True, slots=True)
class Fetch:
    """The connections share the partitions; each reads its own from the beginning, one after another.

    A connection goes on with the next partition at ``end_offset``, or where nothing is left, and behind its last one
    begins again if the load ``is_endless``.  ``leaders`` as for ``Produce``, where each connection has one partition.
    """

    bootstrap: str
    topic: str
    partitions: int
    connections: int = 1
    bytes_max: int = FETCH_BYTES
    end_offset: int = NO_LIMIT
    is_endless: bool = True
    extent: Extent = Extent()
    is_tls: bool = False
    leaders: Sequence[str] = ()

    def start(self) -> ClosedLoop:
        """Begin in the background."""
        lines = closed_loop_lines("fetch", self.bootstrap, self.extent, in_flight=1, is_tls=self.is_tls)
        lines.append(f"end_offset {self.end_offset}")
        lines.append(f"is_endless {self.is_endless:d}")
        requests = [self._frame(partition) for partition in range(self.partitions)]
        for number in range(self.connections):
            if self.leaders:
                lines.extend(address_lines(self.leaders[number]))
            lines.extend(connection_lines(requests[number :: self.connections]))
        return ClosedLoop(lines)

    def run(self) -> Outcome:
        """Do it to its end."""
        return self.start().outcome()

    def _frame(self, partition: int) -> bytes:
        return fetch_frame(self.topic, {partition: MARK}, bytes_max=self.bytes_max)


@dataclass(frozen=True, slots=True)
class Commit:
    """Every connection is the only member of a group of its own and commits the offset of one partition, one more each
    time; in the end the broker is asked what it has.  Each broker coordinates as many of the groups as the others."""

    bootstrap: str
    topic: str
    connections: int = 1
    in_flight: int = 1
    extent: Extent = Extent()

    def run(self) -> Outcome:
        """Do it to its end; raises ``RuntimeError`` when the broker has not what was committed."""
        lines = closed_loop_lines("commit", self.bootstrap, self.extent, self.in_flight)
        with ExitStack() as stack:
            groups: list[tuple[str, Client]] = []
            for address, group_ids in self._groups().items():
                client = stack.enter_context(Client(address))
                for group_id in group_ids:
                    client.await_coordinator(group_id)
                    member = join(client, group_id, self.topic)
                    lines.extend(address_lines(address))
                    lines.extend(connection_lines([commit_frame(group_id, member, self.topic, len(groups))]))
                    groups.append((group_id, client))
            outcome = ClosedLoop(lines).outcome()
            for partition, ((group_id, client), count) in enumerate(zip(groups, outcome.by_connection, strict=True)):
                committed = client.committed_offsets(group_id)
                if committed != {(self.topic, partition): count - 1}:
                    raise RuntimeError(f"{group_id} committed offset {count - 1}, the broker has {committed}")
        return outcome

    def _groups(self) -> dict[str, list[str]]:
        """Names of groups by the address of their coordinator."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        with Client(self.bootstrap) as client:
            share = -(-self.connections // client.broker_count())
            while sum(map(len, found.values())) < self.connections:
                group_id = f"bench-{uuid.uuid4().hex[:8]}"
                of_coordinator = found[client.find_coordinator(group_id)]
                if len(of_coordinator) < share:
                    of_coordinator.append(group_id)
        return found


@dataclass(frozen=True, slots=True)
class Latency:
    """Requests of one record at ``rate`` per second in all, to every partition in turn, and consumers that share the
    partitions; without ``partitions`` there are as many as connections.  ``leaders`` as for ``Produce``, where nobody
    consumes."""

    bootstrap: str
    topic: str
    rate: float
    connections: int = 8
    partitions: int | None = None
    consumers: int = 1
    record_bytes: int = 100
    seconds: float = 3.0
    warmup_seconds: float = 1.0
    leaders: Sequence[str] = ()

    @property
    def partition_count(self) -> int:
        return self.partitions or self.connections

    def run(self) -> LatencyOutcome:
        """Do it to its end; raises ``RuntimeError`` when a request was never answered or consumed: what is lost has no
        latency, so that the rest would look the better for it."""
        batch = record_batch(1, self.record_bytes)
        # The first record of each partition has offset 0 and no place in the schedule.
        for address in set(self.leaders) or {self.bootstrap}:
            led = [index for index in range(self.partition_count) if not self.leaders or self.leaders[index] == address]
            with Client(address) as client:
                client.produce(self.topic, dict.fromkeys(led, batch))
        lines = self._lines(batch)
        found = Generator([str(program("open_loop"))], "".join(f"{line}\n" for line in lines)).outcome()
        if found["lost"]:
            raise RuntimeError(f"{found['lost']} records did not come back at {self.rate:,.0f} requests/s")
        return LatencyOutcome(
            found["requests"],
            found["client_cpu_share"],
            Percentiles(**found["produce"]),
            Percentiles(**found["end_to_end"]),
        )

    def _lines(self, batch: bytes) -> Iterator[str]:
        yield from address_lines(self.bootstrap)
        yield f"rate {self.rate}"
        yield f"seconds {self.seconds}"
        yield f"warmup_seconds {self.warmup_seconds}"
        yield f"producers {self.connections}"
        for partition in range(self.partition_count):
            if self.leaders:
                yield from address_lines(self.leaders[partition])
            yield f"partition {produce_frame(self.topic, {partition: batch}).hex()}"
        for partitions in self.shares():
            marks = {partition: MARK + partition for partition in partitions}
            request = fetch_frame(self.topic, marks, bytes_max=FETCH_BYTES)
            yield f"consumer {request.hex()}"
            for partition, mark in marks.items():
                yield f"offset_at {partition} {request.index(struct.pack('>q', mark))}"

    def shares(self) -> Iterator[range]:
        """The partitions of each consumer: neighbouring ones are of one consumer and of different producers."""
        count = max(1, self.consumers)
        bounds = [number * self.partition_count // count for number in range(self.consumers + 1)]
        return (range(low, high) for low, high in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class LatencyOutcome:
    """Of the requests that were due after the warm-up, counted from when they were due."""

    requests: int
    client_cpu_share: float
    produce: Percentiles
    end_to_end: Percentiles


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Clients that connect, shake hands in full and close, again and again."""

    bootstrap: str
    clients: int = 4
    seconds: float = 3.0

    def per_second(self) -> float:
        """Do it to its end; the handshakes of all of them per second."""
        lines = [*address_lines(self.bootstrap), f"clients {self.clients}", f"seconds {self.seconds}"]
        found = Generator([str(program("handshakes"))], "".join(f"{line}\n" for line in lines)).outcome()
        return float(found["handshakes"]) / float(found["seconds"])


class ClosedLoop:
    """A closed loop that runs; ``outcome`` waits for its end."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._generator = Generator([str(program("closed_loop"))], "".join(f"{line}\n" for line in lines))

    def outcome(self) -> Outcome:
        """What came of it; raises ``RuntimeError`` at the first error that the broker answered."""
        found = self._generator.outcome()
        rate = found["requests"] / found["seconds"]
        return Outcome(**{**found, "latency": Percentiles(**found["latency"])}, requests_per_second=rate)


def closed_loop_lines(api: str, bootstrap: str, extent: Extent, in_flight: int, *, is_tls: bool = False) -> list[str]:
    """The head of a closed loop's job."""
    return [
        *address_lines(bootstrap),
        f"api {api}",
        f"in_flight {in_flight}",
        f"seconds {extent.seconds}",
        f"warmup_seconds {extent.warmup_seconds}",
        f"requests {extent.requests}",
        f"is_tls {is_tls:d}",
    ]


def address_lines(bootstrap: str) -> list[str]:
    """Where the broker is; the programs know addresses, no names."""
    host, _, port = bootstrap.rpartition(":")
    return [f"host {socket.gethostbyname(host)}", f"port {port}"]


def connection_lines(frames: Sequence[bytes]) -> Iterator[str]:
    """A connection with its frames, and where in each of them a counter stands."""
    yield f"connection {frames[0].find(_MARK_BYTES)}"
    for request in frames:
        yield f"frame {request.hex()}"


def commit_frame(group_id: str, member: tuple[str, int], topic: str, partition: int) -> bytes:
    """The commit of one partition by a member of a generation, with the mark for an offset."""
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=MARK, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
    )
    return frame(OFFSET_COMMIT, request)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a single load."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.loads", description="One load from a compiled generator against a running broker."
    )
    parser.add_argument("kind", choices=("produce", "fetch", "commit", "latency"))
    parser.add_argument("bootstrap", metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--in-flight", type=int, default=1, help="of each connection; a fetch has one")
    parser.add_argument("--records", type=int, default=1, help="of a request, or of each partition that is fetched")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1000.0, help="of requests per second, for latency")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warmup-seconds", type=float, default=1.0)
    return parser.parse_args(arguments)


def run_one(options: argparse.Namespace) -> Outcome | LatencyOutcome:
    """The load that a command line asks for, on a topic of its own."""
    name = f"load-{uuid.uuid4().hex[:8]}"
    extent = Extent(options.seconds, options.warmup_seconds)
    with Client(options.bootstrap) as client:
        client.create_topic(name, options.connections)
        try:
            if options.kind == "commit":
                return Commit(options.bootstrap, name, options.connections, options.in_flight, extent).run()
            if options.kind == "fetch":
                batch = record_batch(options.records, options.record_bytes)
                client.produce(name, dict.fromkeys(range(options.connections), batch))
                load = Fetch(options.bootstrap, name, options.connections, options.connections, extent=extent)
                return replace(load, end_offset=options.records).run()
            if options.kind == "latency":
                load_by_schedule = Latency(options.bootstrap, name, options.rate, options.connections)
                return replace(
                    load_by_schedule,
                    record_bytes=options.record_bytes,
                    seconds=options.seconds,
                    warmup_seconds=options.warmup_seconds,
                ).run()
            sizes = (options.records, options.record_bytes, options.connections, options.in_flight)
            return Produce(options.bootstrap, name, *sizes, extent).run()
        finally:
            client.delete_topic(name)


if __name__ == "__main__":
    print(json.dumps(asdict(run_one(parse_arguments())), indent=1))
