"""The command: run scenarios against Apache Kafka and pybroker and print in what they differ.

    scripts/compare                     start both brokers, run everything
    scripts/compare produce fetch       scenarios whose name contains one of the words
    scripts/compare --kafka HOST:PORT --pybroker HOST:PORT

Exits with 1 when a difference is not meant, or when an entry of the list of meant ones is stale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from apache_kafka import SINGLE_BROKER_PROPERTIES, ApacheKafka
from pybroker_process import PybrokerProcess

from comparator.compare import Address, Result, compare, stale
from comparator.registry import Scenario, all_scenarios

# The same settings on both sides: few partitions and one replica for internal topics, no waiting for further members,
# and no retention, because the records of the scenarios carry a fixed time of the past.
PROPERTIES = {
    "node.id": "1",
    **SINGLE_BROKER_PROPERTIES,
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
}
VALUE_WIDTH = 60


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scenarios = [each for each in all_scenarios() if _wanted(each, options.words)]
    results = []
    with started_brokers(options.kafka, options.pybroker) as (kafka, ours):
        for scenario in scenarios:
            results.append(compare(scenario, kafka, ours))
            _print_result(results[-1])
    stale_entries = [] if options.words else stale(results)
    for entry in stale_entries:
        print(f"stale: {entry.scenario} {entry.step} {entry.path}: {entry.reason}")
    unmeant = sum(len(result.unmeant) for result in results)
    meant = sum(len(result.judged) for result in results) - unmeant
    steps = sum(result.steps for result in results)
    print(
        f"{len(results)} scenarios, {steps} replies: {unmeant} differences, {meant} meant, {len(stale_entries)} stale"
    )
    return 1 if unmeant or stale_entries else 0


@contextmanager
def started_brokers(kafka: Address | None = None, pybroker: Address | None = None) -> Iterator[tuple[Address, Address]]:
    """The two addresses; a broker that is not running yet is started, and stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="comparator-") as directory:
        started: list[ApacheKafka | PybrokerProcess] = []
        try:
            if kafka is None:
                started.append(ApacheKafka(Path(directory) / "kafka", PROPERTIES).start())
                kafka = (started[-1].host, started[-1].port)
            if pybroker is None:
                started.append(PybrokerProcess(Path(directory) / "pybroker", PROPERTIES).start())
                pybroker = (started[-1].host, started[-1].port)
            yield kafka, pybroker
        finally:
            for broker in started:
                broker.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/compare", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run scenarios whose name contains one of these")
    parser.add_argument("--kafka", type=_address, help="HOST:PORT of a running Apache Kafka")
    parser.add_argument("--pybroker", type=_address, help="HOST:PORT of a running pybroker")
    return parser


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _wanted(scenario: Scenario, words: Sequence[str]) -> bool:
    return not words or any(word in scenario.name for word in words)


def describe(result: Result) -> str:
    """The unmeant differences of a result as a table: a line per field, grouped by step."""
    lines = []
    for step, group in groupby(result.unmeant, key=lambda judged: judged.step):
        lines.append(f"  {step}")
        for judged in group:
            _, kafka, ours = judged.difference
            lines.append(f"    {judged.difference.path}: Kafka {_short(kafka)}, pybroker {_short(ours)}")
    return "\n".join(lines)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def _print_result(result: Result) -> None:
    meant = len(result.judged) - len(result.unmeant)
    verdict = f"{len(result.unmeant)} differences" if result.unmeant else "ok"
    print(f"{result.scenario}: {verdict} ({result.steps} replies, {meant} meant)")
    if result.unmeant:
        print(describe(result))
    sys.stdout.flush()
