"""What a request of each of six kinds costs the broker, from the system call that brings it to the one that answers it.

    .venv/bin/python -m bench.request_price [KIND …] [--command PATH] [--seconds 2] [--rounds 3]

Owns: the table of microseconds of processor time per request.  The load is that of eight connections with one request
in flight each, from the generator in C.

- ``total`` and ``kernel``: processor time of a ``pybroker serve``, and its part in system mode, as Linux counts them,
  by the acknowledged requests; of several rounds the cheapest.
- The layers (``net`` to ``wire``): user time of the same request in this process, without sockets
  (``without_sockets``), shared out by the interpreter's operations in each layer's files.  Operations are counted, so
  that the shares are the same in each run; they are not equally long, so that a share is good to a fifth or so.
- ``loop``: what is left of the user time: uvloop, its calls into the interpreter, and what a cold cache costs.
- ``operations``: of the interpreter, in all layers; the figure to compare two commits by on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import struct
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import uvloop

import pybroker
from bench.contestants import PYBROKER, running
from bench.group_member import join
from bench.loads import FETCH_BYTES, MARK, ClosedLoop, Extent, closed_loop_lines, commit_frame, connection_lines
from bench.request_path import GROUP, Caller, request
from bench.request_path import join as join_in_process
from bench.wire import FETCH, HEARTBEAT, METADATA, Client, fetch_frame, produce_frame, record_batch
from bench.without_sockets import TOPIC, with_server
from pybroker.server import BrokerServer
from pybroker_protocol.messages.fetch import FetchPartition, FetchTopic
from pybroker_protocol.messages.metadata import MetadataRequestTopic

CONNECTIONS = 8
RECORD_BYTES = 100
WARM, COUNTED, TIMED, TIMES = 200, 20, 20_000, 5
KINDS = ("produce", "fetch", "session_fetch", "commit", "heartbeat", "metadata")
LAYERS = ("net", "handlers", "coordinators", "replication", "storage", "wire", "rest")
_MARK_BYTES = struct.pack(">q", MARK)
_PACKAGE = str(Path(pybroker.__file__).parent)
_HERE = str(Path(__file__).parent)
_TICKS_PER_SECOND = 100  # of /proc/PID/stat (USER_HZ)
Session = tuple[int, int]  # id and epoch, side by side in a request
Member = tuple[str, int]  # id and generation


class Cpu(NamedTuple):
    """Microseconds in user and in system mode."""

    user_us: float
    system_us: float


def session_fetch(session: Session) -> bytes:
    """A request that names one partition, from its beginning."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    return request(
        FETCH,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
    )


def heartbeat(group: str, member: Member) -> bytes:
    """The heartbeat of a classic group's member."""
    return request(HEARTBEAT, group_id=group, generation_id=member[1], member_id=member[0])


def metadata() -> bytes:
    """Of one topic."""
    return request(METADATA, topics=[MetadataRequestTopic(name=TOPIC)])


# --- over sockets ----------------------------------------------------------------------------------------------------


def job(kind: str, client: Client, lines: list[str]) -> list[str]:
    """The connections of a load, each with its request."""
    for partition in range(CONNECTIONS):
        group = f"group-{uuid.uuid4().hex[:8]}"
        if kind == "produce":
            lines += connection_lines([produce_frame(TOPIC, {partition: record_batch(1, RECORD_BYTES)})])
        elif kind == "fetch":
            lines += connection_lines([fetch_frame(TOPIC, {partition: MARK}, bytes_max=FETCH_BYTES)])
        elif kind == "session_fetch":
            begun = client.call(FETCH, **_begin_session())
            session = begun.session_id, 1
            frame = session_fetch(session)
            lines += [f"connection {frame.index(struct.pack('>ii', *session))}", f"frame {frame.hex()}"]
        elif kind == "metadata":
            lines += connection_lines([metadata()])
        else:
            client.await_coordinator(group)
            member = join(client, group, TOPIC)
            is_commit = kind == "commit"
            lines += connection_lines(
                [commit_frame(group, member, TOPIC, partition) if is_commit else heartbeat(group, member)]
            )
    return lines


def _begin_session() -> dict[str, Any]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": FETCH_BYTES,
        "session_id": 0,
        "session_epoch": 0,
        "topics": [FetchTopic(topic=TOPIC, partitions=[wanted])],
    }


def over_sockets(kind: str, bootstrap: str, pid: int, seconds: float) -> Cpu:
    """Processor time of the broker per request of one round."""
    with Client(bootstrap) as client:
        lines = closed_loop_lines(kind, bootstrap, Extent(seconds, warmup_seconds=0), in_flight=1)
        if kind == "fetch":
            lines += ["end_offset 1", "is_endless 1"]
        lines = job(kind, client, lines)
    before = process_cpu(pid)
    acknowledged = ClosedLoop(lines).outcome().acknowledged
    after = process_cpu(pid)
    return Cpu(*((late - early) / acknowledged for early, late in zip(before, after, strict=True)))


def process_cpu(pid: int) -> Cpu:
    """What a process and its threads have used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Cpu(*(int(ticks) / _TICKS_PER_SECOND * 1e6 for ticks in fields[11:13]))


# --- in this process -------------------------------------------------------------------------------------------------


async def frames(kind: str, caller: Caller) -> Callable[[int], Iterator[bytes]]:
    """So many requests that follow one another."""
    member = await join_in_process(caller) if kind in {"commit", "heartbeat"} else ("", -1)
    if kind == "session_fetch":
        begun = await caller.call(FETCH, **_begin_session())
        return _in_session(begun.session_id)
    repeated = {
        "produce": lambda: produce_frame(TOPIC, {0: record_batch(1, RECORD_BYTES)}),
        "fetch": lambda: fetch_frame(TOPIC, {0: 0}, bytes_max=FETCH_BYTES),
        "commit": lambda: commit_frame(GROUP, member, TOPIC, 0).replace(_MARK_BYTES, bytes(8)),
        "heartbeat": lambda: heartbeat(GROUP, member),
        "metadata": metadata,
    }[kind]()
    return lambda count: (repeated for _ in range(count))


def _in_session(session_id: int) -> Callable[[int], Iterator[bytes]]:
    frame = bytearray(session_fetch((session_id, 1)))
    at, epoch = frame.index(struct.pack(">ii", session_id, 1)) + 4, 0

    def following(count: int) -> Iterator[bytes]:
        nonlocal epoch
        for _ in range(count):
            epoch += 1
            struct.pack_into(">i", frame, at, epoch)
            yield frame

    return following


def layer_of(filename: str) -> str:
    """The layer that a file belongs to; "" for the benchmark's own."""
    if "pybroker_protocol" in filename:
        return "wire"
    if filename.startswith(_PACKAGE):
        folder = filename[len(_PACKAGE) + 1 :].partition("/")[0]
        return folder if folder in LAYERS else "rest"
    return "" if filename.startswith(_HERE) else "rest"


def operations(send: Callable[[int], None]) -> Counter[str]:
    """The interpreter's operations per request in each layer, of ``send(COUNTED)``."""
    counted: Counter[str] = Counter()
    layers: dict[str, str] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            filename = frame.f_code.co_filename
            layer = layers.get(filename)
            if layer is None:
                layer = layers[filename] = layer_of(filename)
            counted[layer] += 1
        return trace

    sys.settrace(trace)
    try:
        send(COUNTED)
    finally:
        sys.settrace(None)
    return Counter({layer: count // COUNTED for layer, count in counted.items()})


async def in_process(kind: str, server: BrokerServer) -> tuple[Counter[str], float]:
    """Operations by layer, and microseconds of user time, the benchmark's own among them; per request."""
    caller = Caller(server)
    await caller.exchange(produce_frame(TOPIC, {0: record_batch(1, RECORD_BYTES)}))
    following = await frames(kind, caller)

    def send(count: int) -> None:
        for frame in following(count):
            caller.send(frame)

    send(WARM)
    counted = operations(send)
    best = float("inf")
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_THREAD)
        send(TIMED)
        after = resource.getrusage(resource.RUSAGE_THREAD)
        best = min(best, (after.ru_utime - before.ru_utime) / TIMED * 1e6)
    return counted, best


# --- the table -------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Microseconds per request, and the interpreter's operations."""

    total_us: float
    kernel_us: float
    loop_us: float
    layers_us: Mapping[str, float]
    operations: int


def row(process: Cpu, counted: Counter[str], user_us: float) -> Row:
    """Put together what was measured over sockets and in this process."""
    us_per_operation = user_us / sum(counted.values())
    layers = {layer: counted[layer] * us_per_operation for layer in LAYERS}
    ours = sum(layers.values())
    operations_of_ours = sum(counted[layer] for layer in LAYERS)
    return Row(sum(process), process.system_us, process.user_us - ours, layers, operations_of_ours)


def print_table(rows: Mapping[str, Row]) -> None:
    print("| µs per request | total | kernel | loop |" + "".join(f" {layer} |" for layer in LAYERS) + " operations |")
    print("|---|" + "---|" * (len(LAYERS) + 4))
    for kind, found in rows.items():
        figures = [found.total_us, found.kernel_us, found.loop_us, *(found.layers_us[layer] for layer in LAYERS)]
        print(f"| {kind} |" + "".join(f" {figure:.1f} |" for figure in figures) + f" {found.operations:,} |")


def measured(kinds: list[str], command: str, seconds: float, rounds: int) -> dict[str, Row]:
    """Every kind, over sockets first."""
    processes: dict[str, Cpu] = {}
    with tempfile.TemporaryDirectory() as root, running([command], Path(root)) as brokers:
        broker = brokers[command]
        with Client(broker.bootstrap) as client:
            client.create_topic(TOPIC, CONNECTIONS)
            client.produce(TOPIC, dict.fromkeys(range(CONNECTIONS), record_batch(1, RECORD_BYTES)))
        for kind in sorted(kinds, key=lambda kind: kind == "produce"):  # last: fetches ask for the one record
            found = [over_sockets(kind, broker.bootstrap, broker.pid, seconds) for _ in range(rounds)]
            processes[kind] = min(found, key=sum)
    rows = {}
    for kind in kinds:
        counted: Counter[str] = Counter()
        user_us = 0.0

        async def measure(server: BrokerServer, kind: str = kind) -> None:
            nonlocal counted, user_us
            counted, user_us = await in_process(kind, server)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(with_server(measure))
        rows[kind] = row(processes[kind], counted, user_us)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all without one")
    parser.add_argument("--command", default=PYBROKER, help="the pybroker that is measured over sockets")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    print_table(measured(options.kinds or list(KINDS), options.command, options.seconds, options.rounds))


if __name__ == "__main__":
    main()
