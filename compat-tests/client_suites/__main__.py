"""``scripts/client-suites``: run clients' own test suites against a broker and hold them to their allow-lists.

Owns: the command's options and what it tells: on the terminal, and for the report in ``.cache/results``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.client_folder import ToolchainMissing
from harness import results
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import ApacheKafka, missing_requirement
from harness.broker_probe import bootstrap_argument, exit_unless_broker
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess
from harness.termination import exit_on_sigterm

from client_suites.all_suites import SUITES
from client_suites.suite import Outcome, Suite, Verdict, judge


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@contextmanager
def broker(arguments: argparse.Namespace, suite: Suite, directory: Path) -> Iterator[str]:
    """The address of the broker under test, started as the suite wants it unless it runs already."""
    if arguments.bootstrap:
        yield arguments.bootstrap
        return
    if arguments.apache and (reason := missing_requirement()) is not None:
        sys.exit(reason)
    if suite.starts_its_broker:
        yield ""
        return
    place, properties = directory / suite.name, dict(suite.properties)
    if arguments.apache:
        properties["group.initial.rebalance.delay.ms"] = "0"
    if arguments.brokers > 1:
        properties["default.replication.factor"] = str(arguments.brokers)
        make = ApacheCluster if arguments.apache else PybrokerCluster
        with make(place, properties, arguments.brokers) as cluster:
            yield ",".join(cluster.bootstraps)
    else:
        with (ApacheKafka if arguments.apache else PybrokerProcess)(place, properties) as alone:
            yield alone.bootstrap


def run(suite: Suite, arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run one suite, tell what came of it, and return that for the report; ``missing``: why it cannot be run."""
    log = directory / f"{suite.name}.log"
    outcomes: Mapping[str, Outcome] = {}
    try:
        suite.prepare()
        with broker(arguments, suite, directory) as bootstrap:
            outcomes = suite.run(bootstrap, log, arguments.test, replicas=arguments.brokers, apache=arguments.apache)
    except ToolchainMissing as missing:
        say(f"{suite.name} is skipped: {missing}")
        return entry_of(suite, {}, Verdict((), ()), missing=str(missing))
    # Nothing that had to pass has; the other suites are still run, and what they found is kept.
    except subprocess.TimeoutExpired as hung:
        say(f"{suite.name} HANGS: it was ended after {hung.timeout:.0f} s")
    except (RuntimeError, TimeoutError) as failure:
        say(f"{suite.name} CANNOT BE RUN: {failure}")
    allowed = suite.allowed()
    verdict = judge(outcomes, arguments.test or allowed, allowed)
    counted = Counter(outcomes.values())
    say(f"{suite.name} {suite.version}: " + ", ".join(f"{counted[outcome]} {outcome}" for outcome in Outcome))
    for test, outcome in sorted(outcomes.items()):
        if outcome is Outcome.FAILED:
            say(f"  fails: {test}")
    for test in verdict.broken:
        say(f"  MUST PASS: {test}")
    for test in verdict.unlisted:
        say(f"  passes and is not listed: {test}")
    if arguments.log and log.exists():
        sys.stdout.write(log.read_text(errors="replace"))
    return entry_of(suite, outcomes, verdict)


def entry_of(
    suite: Suite, outcomes: Mapping[str, Outcome], verdict: Verdict, missing: str | None = None
) -> dict[str, Any]:
    """A suite for the report."""
    entry = {"name": suite.name, "version": suite.version, "outcomes": outcomes, "missing": missing}
    return {**entry, **verdict._asdict()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/client-suites", description="Clients' own tests, aimed at a broker.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap",
        type=bootstrap_argument,
        metavar="HOST:PORT",
        help="a running broker of any make; default: pybroker",
    )
    where.add_argument("--apache", action="store_true", help="Apache Kafka, started for each suite")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="one alone, or a cluster (%(default)s)")
    parser.add_argument("--test", action="append", default=[], help="only this one, which must pass; may be repeated")
    parser.add_argument("--log", action="store_true", help="print what the suite printed")
    parser.add_argument("name", nargs="*", choices=[*SUITES, []], help="only this suite")
    arguments = parser.parse_args()
    if arguments.test and len(arguments.name) != 1:
        parser.error("--test needs the NAME of its suite")
    if arguments.bootstrap and arguments.brokers > 1:
        parser.error("--brokers are started for the run")
    elsewhere = arguments.bootstrap or arguments.brokers > 1
    runnable = [name for name, suite in SUITES.items() if not (elsewhere and suite.starts_its_broker)]
    if strangers := set(arguments.name).difference(runnable):
        parser.error(f"these start what they need themselves: {', '.join(sorted(strangers))}")
    exit_unless_broker(parser, arguments.bootstrap)
    with tempfile.TemporaryDirectory(prefix="client-suites-") as directory:
        found = [run(SUITES[name], arguments, Path(directory)) for name in arguments.name or runnable]
    results.write("client-suites", found)
    if any(suite["broken"] for suite in found):
        return 1
    if all(suite["missing"] for suite in found):
        say("no suite ran")
        return results.NOTHING_RAN
    return 0


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
