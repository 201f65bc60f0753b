"""The ladder: what each change that was made for speed has gained, measured again from the commits themselves.

    scripts/bench ladder [--rounds N] [--write]

Every rung is a commit of this repository; the broker of its parent and its own run in alternation, each from a work
tree of its own, under the same load from today's generators.  ``--write`` puts the table into ``bench/LADDER.md``.
The last rows go from an early broker, the first that runs by itself, to the one of this checkout.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pybroker_process import PybrokerProcess

from bench.contestants import PROPERTIES, topic
from bench.context import CpuMeter
from bench.parts.commits import commit
from bench.process_stats import load_average, machine
from bench.raw_load import Job, Outcome
from bench.report import markdown_table
from bench.subprocesses import raw_load, start_raw_load
from bench.wire import METADATA, connect, exchange, frame
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "bench" / "LADDER.md"
ROUNDS, SECONDS, WARMUP_S = 5, 2.0, 1.0
SMALL_BYTES, LARGE_RECORDS, LARGE_RECORD_BYTES = 200, 1000, 1000
WIDE_TOPIC_PARTITIONS, METADATA_REQUESTS = 100, 3_000
FIRST_BROKER, THIS_BROKER = "abf3df9", "HEAD"


class Measured(NamedTuple):
    """Work per second, and what the broker's processor time for one piece of it was, in µs."""

    per_second: float
    cpu_us: float


Measure = Callable[[PybrokerProcess], Measured]


def produce(connections: int, in_flight: int, records: int, record_bytes: int, broker: PybrokerProcess) -> Measured:
    """Produce requests of one batch each, over connections with a partition of their own."""
    with topic(broker, connections) as name:
        cpu = CpuMeter(broker.pid)
        outcome = raw_load(_job(broker, name, connections, in_flight, records, record_bytes))
        return _measured(outcome, cpu)


def tiny_beside_large(broker: PybrokerProcess) -> Measured:
    """One client's small requests while eight connections of another pour in large batches."""
    with topic(broker, 8) as large_name, topic(broker, 1) as name:
        large_job = _job(broker, large_name, 8, 2, LARGE_RECORDS, LARGE_RECORD_BYTES)
        cpu = CpuMeter(broker.pid)
        large = start_raw_load(replace(large_job, seconds=SECONDS + 2 * WARMUP_S))
        tiny = raw_load(_job(broker, name, 1, 1, 1, SMALL_BYTES))
        acknowledged = tiny.acknowledged + Outcome(**large.outcome()).acknowledged
        return Measured(tiny.requests_per_second, cpu.seconds() / acknowledged * 1e6)


def commits(connections: int, in_flight: int, broker: PybrokerProcess) -> Measured:
    """Offset commits of one partition, each connection the only member of its group."""
    with topic(broker, connections) as name:
        cpu = CpuMeter(broker.pid)
        return _measured(commit(_job(broker, name, connections, in_flight)), cpu)


def metadata(broker: PybrokerProcess) -> Measured:
    """Metadata of one wide topic, one request at a time."""
    with topic(broker, WIDE_TOPIC_PARTITIONS) as name, connect(broker.bootstrap) as client:
        asked = frame(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        cpu, started = CpuMeter(broker.pid), time.perf_counter()
        for _ in range(METADATA_REQUESTS):
            exchange(client, asked)
        seconds = time.perf_counter() - started
        return Measured(METADATA_REQUESTS / seconds, cpu.seconds() / METADATA_REQUESTS * 1e6)


def _job(
    broker: PybrokerProcess, name: str, connections: int, in_flight: int, records: int = 1, record_bytes: int = 1
) -> Job:
    return Job(
        broker.bootstrap,
        name,
        records=records,
        record_bytes=record_bytes,
        connections=connections,
        in_flight=in_flight,
        seconds=SECONDS,
        warmup_seconds=WARMUP_S,
    )


def _measured(outcome: Outcome, cpu: CpuMeter) -> Measured:
    return Measured(outcome.requests_per_second, cpu.seconds() / outcome.acknowledged * 1e6)


LOADS: dict[str, Measure] = {
    "tiny produce 1×1": partial(produce, 1, 1, 1, SMALL_BYTES),
    "tiny produce 8×1": partial(produce, 8, 1, 1, SMALL_BYTES),
    "tiny produce 8×5": partial(produce, 8, 5, 1, SMALL_BYTES),
    "1 MB batches 8×2": partial(produce, 8, 2, LARGE_RECORDS, LARGE_RECORD_BYTES),
    "tiny produce 1×1 beside 1 MB batches 8×2": tiny_beside_large,
    "commits 8×5": partial(commits, 8, 5),
    "metadata 1×1": metadata,
}


class Rung(NamedTuple):
    """One change, and the load that it was made for; ``before`` is its parent unless it says otherwise."""

    commit: str
    load: str
    before: str = ""


RUNGS = (
    Rung("8697547", "metadata 1×1"),
    Rung("fe43c3f", "tiny produce 8×5"),
    Rung("2c909a4", "tiny produce 8×5"),
    Rung("15d8255", "1 MB batches 8×2"),
    Rung("cf57df8", "tiny produce 8×5"),
    Rung("d0eef75", "tiny produce 8×5"),
    Rung("721affc", "commits 8×5"),
    Rung("e69e630", "commits 8×5"),
    Rung("e15d000", "commits 8×5"),
    Rung("802416e", "tiny produce 1×1 beside 1 MB batches 8×2", "9cd930d"),
    Rung("5a19b82", "1 MB batches 8×2"),
    Rung("5a19b82", "tiny produce 1×1 beside 1 MB batches 8×2"),
    Rung("72d3e89", "tiny produce 1×1"),
    *(Rung(THIS_BROKER, load, FIRST_BROKER) for load in LOADS if "commits" not in load),
)


@contextmanager
def work_tree(commit: str) -> Iterator[Path]:
    """The repository as it was at a commit."""
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def measure(tree: Path, load: str) -> Measured:
    """One run of a load against a fresh broker of a work tree."""
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        environment = {"PYTHONPATH": f"{tree}:{tree / 'protocol'}"}
        with PybrokerProcess(Path(directory), PROPERTIES, environment=environment) as broker:
            return LOADS[load](broker)


def climb(rung: Rung, rounds: int) -> tuple[Measured, Measured]:
    """The medians before and after a change, run in alternation."""
    with ExitStack() as stack:
        trees = [stack.enter_context(work_tree(each)) for each in (rung.before or f"{rung.commit}~1", rung.commit)]
        runs = [[measure(tree, rung.load) for tree in trees] for _ in range(rounds)]
    before, after = (Measured(*map(statistics.median, zip(*side, strict=True))) for side in zip(*runs, strict=True))
    return before, after


def title(rung: Rung) -> str:
    """What the change's commit says of it."""
    if rung.commit == THIS_BROKER:
        return "**from an early broker to this one**"
    shown = subprocess.run(
        ["git", "show", "--no-patch", "--format=%s", rung.commit], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return shown.stdout.strip()


def row(rung: Rung, before: Measured, after: Measured) -> tuple[str, ...]:
    change = rung.commit if not rung.before else f"{rung.before}…"
    return (
        change,
        title(rung),
        rung.load,
        f"{before.per_second:,.0f} → {after.per_second:,.0f}",
        f"{after.per_second / before.per_second:.2f}×",
        f"{before.cpu_us:,.1f} → {after.cpu_us:,.1f}",
        f"{after.cpu_us / before.cpu_us:.2f}×",
    )


COLUMNS = ("commit", "change", "load", "requests/s", "rate", "broker's CPU, µs/request", "CPU")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure again what each change for speed has gained.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    load_before = load_average()
    rows = []
    for rung in RUNGS:
        rows.append(row(rung, *climb(rung, options.rounds)))
        print(*rows[-1], sep="  ", flush=True)
    if options.write:
        PAGE.write_text("\n".join([*_head(options.rounds, load_before), *markdown_table(COLUMNS, rows), ""]))
        print(f"written: {PAGE}", file=sys.stderr)
    return 0


def _head(rounds: int, load_before: float) -> list[str]:
    return [
        "# The ladder",
        "",
        "What each change that was made for speed has gained, measured again from the commits themselves: the broker",
        "of a commit's parent and the commit's own in alternation, under today's generators. *n×m* is connections",
        "times requests in flight. A rate is bounded by the generator, which has the other processor: where it does",
        "not move, the processor time may.",
        "",
        f"Made by `scripts/bench ladder --write`: medians of {rounds} rounds, {machine()}, load average",
        f"{load_before:.1f} before and {load_average():.1f} after.",
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
