"""``scripts/histories``: run the workload against a broker, or take a history that is there, and check it.

Exits with 1 when an anomaly was found.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import results
from apache_kafka import KAFKA_VERSION, ApacheKafka, missing_requirement
from pybroker_process import PybrokerProcess

from histories.anomalies import ANOMALIES, PHENOMENA, Report
from histories.checker import check
from histories.history import read_events
from histories.nemesis import Broker
from histories.workload import BROKER_PROPERTIES, Workload

PART = "histories"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/histories", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, which is not killed")
    where.add_argument("--apache", action="store_true", help="Apache Kafka, started for the run")
    where.add_argument("--check", type=Path, metavar="FILE", help="run nothing, check this history")
    parser.add_argument("--seconds", type=float, default=60, help="how long clients work (%(default)s)")
    parser.add_argument("--kills", type=int, default=3, help="how often the broker is killed (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults, and of what clients choose (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep history, logs and data there")
    return parser.parse_args()


@contextmanager
def started(arguments: argparse.Namespace, directory: Path) -> Iterator[tuple[str, Broker | None]]:
    """(Where the broker under test listens, the broker if it is ours)."""
    if arguments.bootstrap:
        yield arguments.bootstrap, None
        return
    broker: ApacheKafka | PybrokerProcess
    if arguments.apache:
        if (reason := missing_requirement()) is not None:
            sys.exit(reason)
        broker = ApacheKafka(directory / "broker", BROKER_PROPERTIES)
    else:
        broker = PybrokerProcess(directory / "broker", BROKER_PROPERTIES)
    broker.start()
    try:
        yield broker.bootstrap, broker
        broker.stop()
    finally:
        broker.kill()


def make_history(arguments: argparse.Namespace, directory: Path) -> Path:
    with started(arguments, directory) as (bootstrap, broker):
        kills = arguments.kills if broker is not None else 0
        return Workload(directory, bootstrap, broker, arguments.seconds, kills, arguments.seed, say).run()


def print_report(report: Report) -> None:
    for name, number in report.statistics.items():
        say(f"  {number:>10,}  {name}")
    say("")
    for kind, meaning in {**ANOMALIES, **PHENOMENA}.items():
        count = report.counts.get(kind, 0)
        mark = "no fault" if kind in PHENOMENA else "FOUND" if count else "none"
        say(f"  {kind:<18} {count:>8,}  {mark:<9} {meaning}")
        for example in report.examples.get(kind, ()) if kind in ANOMALIES else ():
            say(f"      {example}")


def write_result(arguments: argparse.Namespace, report: Report) -> None:
    broker = f"Apache Kafka {KAFKA_VERSION}" if arguments.apache else arguments.bootstrap or "pybroker"
    result: dict[str, Any] = {
        "broker": broker,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": arguments.seconds,
        "seed": arguments.seed,
        **report.as_json(),
    }
    results.write(PART, result)


def main() -> int:
    arguments = parse_arguments()
    with ExitStack() as stack:
        if arguments.check is not None:
            history = arguments.check
        else:
            directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="histories-")))
            directory.mkdir(parents=True, exist_ok=True)
            history = make_history(arguments, directory)
        began = time.monotonic()
        # Millions of objects that all stay: to look for garbage among them takes a third of the time.
        gc.disable()
        report = check(read_events(history))
    print_report(report)
    say(f"\nchecked in {time.monotonic() - began:.1f} s")
    if arguments.check is None:
        write_result(arguments, report)
    return int(bool(report.anomalies))


if __name__ == "__main__":
    sys.exit(main())
