"""The command: run scenarios against Apache Kafka and pybroker and print in what they differ.

    scripts/compare                     start both brokers, run everything
    scripts/compare produce fetch       scenarios whose name contains one of the words
    scripts/compare --brokers 3         the scenarios of a cluster, against three brokers of each
    scripts/compare --kafka HOST:PORT --pybroker HOST:PORT
    scripts/compare --write             run everything and write .cache/results/wire.json for the report and, if no
                                        difference is found that is not meant, AGREEMENT.md

Exits with 1 when a difference is not meant, and after a run of everything when an entry of the list of meant ones is
stale or a served version has had no ordinary or no invalid request; with 2 when no scenario's name contains a word.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import SINGLE_BROKER_PROPERTIES, ApacheKafka
from harness.broker_cluster import BrokerCluster
from harness.broker_probe import host_and_port
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess

from comparator import agreement, cluster, permissions, users
from comparator.broker import UNREAD
from comparator.cluster_differences import CLUSTER_MEANT
from comparator.compare import Address, Exchange, Result, compare, compare_clusters, stale
from comparator.registry import Scenario, all_cluster_scenarios, all_scenarios

# The same settings on both sides: few partitions and one replica for internal topics, no waiting for further members,
# no retention, because the records of the scenarios carry a fixed time of the past, and an authorizer that allows
# everything where no ACL concerns a resource.
PROPERTIES = {
    "node.id": "1",
    **SINGLE_BROKER_PROPERTIES,
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # A second listener, by which users are known (``comparator.users``).
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    **users.PROPERTIES,
}
VALUE_WIDTH = 60


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.write and options.words:
        parser.error("--write needs a run of everything")
    of_cluster = options.brokers > 1
    if of_cluster and (options.kafka or options.pybroker):
        parser.error("--brokers are started for the run")
    everything = all_cluster_scenarios() if of_cluster else all_scenarios()
    scenarios = [each for each in everything if _wanted(each, options.words)]
    for word in options.words:
        if not any(_wanted(each, [word]) for each in scenarios):
            parser.error(f"no scenario's name contains {word!r}")
    results = list(_clusters_compared(scenarios) if of_cluster else _compared(scenarios, options))
    complaints = [] if options.words else list(_complaints(results, of_cluster))
    for complaint in complaints:
        print(complaint)
    unmeant = sum(len(result.unmeant) for result in results)
    meant = sum(len(result.judged) for result in results) - unmeant
    print(agreement.summary(agreement.table(results)))
    print(f"{counted(results)}: {unmeant} differences, {meant} meant, {len(complaints)} complaints")
    if options.write and not of_cluster:
        agreement.write_rows(results)
    if unmeant or complaints:
        return 1
    if options.write:
        agreement.write_page(results, of_cluster)
        if not of_cluster:
            permissions.write(results)
    return 0


def _compared(scenarios: Sequence[Scenario], options: argparse.Namespace) -> Iterator[Result]:
    with started_brokers(options.kafka, options.pybroker) as (kafka, ours):
        for scenario in scenarios:
            result = compare(scenario, kafka, ours)
            _print_result(result)
            yield result


def _clusters_compared(scenarios: Sequence[Scenario]) -> Iterator[Result]:
    with started_clusters() as (kafka, ours):
        for scenario in scenarios:
            result = compare_clusters(scenario, kafka, ours)
            _print_result(result)
            yield result


def counted(results: Sequence[Result]) -> str:
    """What was compared; what a scenario has seen by itself, and replies that nobody could read, are no replies."""
    kinds = Counter(_kind(exchange) for result in results for exchange in result.exchanges)
    return (
        f"{len(results)} scenarios, {kinds['replies']} replies compared, {kinds['unread']} answered or not, "
        f"{kinds['observations']} observations"
    )


def _kind(exchange: Exchange) -> str:
    if exchange.step.api == "observation":
        return "observations"
    return "unread" if exchange.step.reply == UNREAD else "replies"


def _complaints(results: Sequence[Result], of_cluster: bool) -> Iterator[str]:
    """What is wrong with a run of everything, beside differences."""
    for entry in stale(results, CLUSTER_MEANT, ()) if of_cluster else stale(results):
        yield f"stale: {entry}"
    if of_cluster:
        return
    for gap in agreement.gaps(agreement.table(results)):
        yield f"not covered: no {gap.kind} request of {gap.name} v{gap.version}"


@contextmanager
def started_brokers(kafka: Address | None = None, pybroker: Address | None = None) -> Iterator[tuple[Address, Address]]:
    """The two addresses; a broker that is not running yet is started, and stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="comparator-") as directory:
        started: list[ApacheKafka | PybrokerProcess] = []
        try:
            # Names of one length: requests with log dirs in them are compared down to their length.
            if kafka is None:
                place, listener = Path(directory) / "original", users.new_listener()
                started.append(ApacheKafka(place, PROPERTIES, more_listeners=[listener]).start())
                kafka = (started[-1].host, started[-1].port)
            if pybroker is None:
                place, listener = Path(directory) / "pybroker", users.new_listener()
                started.append(PybrokerProcess(place, PROPERTIES, ["--listen", listener]).start())
                pybroker = (started[-1].host, started[-1].port)
            yield kafka, pybroker
        finally:
            for broker in started:
                broker.stop()


@contextmanager
def started_clusters() -> Iterator[tuple[BrokerCluster[Any], BrokerCluster[Any]]]:
    """Three brokers of Kafka's and three of ours, stopped at the end; Kafka's first, which take the machine's time."""
    with tempfile.TemporaryDirectory(prefix="comparator-") as directory, ExitStack() as stack:
        here, there = Path(directory) / "kafka", Path(directory) / "pybroker"
        properties, own = cluster.PROPERTIES, cluster.properties_of
        kafka = ApacheCluster(here, properties, cluster.BROKERS, cluster.HEAP_MB, own=partial(own, here))
        ours = PybrokerCluster(there, properties, cluster.BROKERS, own=partial(own, there))
        yield stack.enter_context(kafka), stack.enter_context(ours)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/compare", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table of agreement; needs a run of everything")
    parser.add_argument(
        "--brokers", type=int, choices=(1, cluster.BROKERS), default=1, help="of each make: one alone, or a cluster"
    )
    parser.add_argument("words", nargs="*", help="run scenarios whose name contains one of these")
    parser.add_argument("--kafka", type=host_and_port, help="HOST:PORT of a running Apache Kafka")
    parser.add_argument("--pybroker", type=host_and_port, help="HOST:PORT of a running pybroker")
    return parser


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
    print(f"{result.scenario}: {verdict} ({len(result.exchanges)} exchanges, {meant} meant)")
    if result.unmeant:
        print(describe(result))
    sys.stdout.flush()
