"""The command behind ``scripts/check-it-yourself``: run the checks, one broker at a time, and print one table.

Owns: the command line, the order of brokers and rounds, and the exit code.  A tool that fails stops no other.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from conformance.client_folder import ToolchainMissing
from harness import results
from harness.apache_kafka import KAFKA_VERSION, missing_requirement
from harness.machine import machine, now_text
from harness.termination import exit_on_sigterm

from bench.contestants import KAFKA, PYBROKER, make, print_log_tail
from check_it_yourself.all_checks import CHECKS, NAMES
from check_it_yourself.check import FULL, QUICK, Check, Size, Subject
from check_it_yourself.table import Finding, remarks, table

BROKERS = {KAFKA: f"Apache Kafka {KAFKA_VERSION}", PYBROKER: "pybroker"}
PYBROKER_FAILED = 1
# A JVM on a machine that is busy with something else.
START_TIMEOUT_S = 240
COLD = "A quick run shows that everything works; its figures are of a cold start, and of too little to compare."


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/check-it-yourself",
        description="Run the tools that a sceptic runs, with Apache Kafka and pybroker in turn, and print one table.",
        epilog=f"names: {', '.join(NAMES)}. The exit code is 1 where pybroker failed at anything, 5 where nothing ran.",
    )
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help="this tool; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small and once: whether all of it works, no figures")
    parser.add_argument("--rounds", type=int, help="how often each broker is measured (default: 3, with --quick 1)")
    parser.add_argument(
        "--json", action="store_true", help="print every round's figures as JSON, in place of the table"
    )
    parser.add_argument(
        "--brokers", default=",".join(BROKERS), metavar="NAME,…", help="measure these only (default: %(default)s)"
    )
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data (default: a temporary one)")
    parsed = parser.parse_args(arguments)
    parsed.brokers = parsed.brokers.split(",")
    if unknown := set(parsed.brokers) - BROKERS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if parsed.directory is not None and not parsed.directory.is_dir():
        parser.error(f"--directory {parsed.directory} is no directory")
    return parsed


def order(brokers: Sequence[str], number: int) -> Sequence[str]:
    """Who comes first takes turns from round to round."""
    return brokers if number % 2 == 0 else brokers[::-1]


def prepared(check: Check, finding: Finding) -> bool:
    """Whether the tool is there; why not is noted."""
    try:
        check.prepare()
    except ToolchainMissing as missing:
        finding.missing = str(missing)
    # A build that fails is the machine's, and no fault of a broker.
    except Exception as error:
        finding.missing = f"it cannot be built here: {str(error)[-500:]}"
    if finding.missing is not None:
        say(f"{check.tool} is skipped: {finding.missing}")
    return finding.missing is None


@contextmanager
def started(broker: str, directory: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """The address of a broker on a fresh directory, which is killed at the end."""
    contestant = make(broker, directory / broker, properties)
    try:
        yield contestant.start(START_TIMEOUT_S).bootstrap
    except Exception:
        if contestant.log_path.exists():
            print_log_tail(contestant)
        raise
    finally:
        contestant.kill()


def measure(check: Check, broker: str, size: Size, directory: Path, finding: Finding) -> None:
    """Start a broker, run the tool, and stop the broker; what went wrong is noted, and nothing is raised."""
    try:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            place = Path(scratch)
            with started(broker, place, check.properties) as bootstrap:
                subject = Subject(bootstrap, size, place)
                if size.warm:
                    check.run(subject)
                finding.add(broker, check.run(subject))
    # Whatever it was, the other tools are still to be asked.
    except Exception as error:
        finding.failed.setdefault(broker, f"{type(error).__name__}: {error}")
        say(f"{check.tool} failed with {BROKERS[broker]}: {error}")


def run_check(check: Check, brokers: Sequence[str], size: Size, rounds: int, directory: Path) -> Finding:
    """One check, in all its rounds; a broker that it failed with is not asked again."""
    finding = Finding(check.name, check.tool)
    if not prepared(check, finding):
        return finding
    for number in range(rounds):
        for broker in order(brokers, number):
            if broker not in finding.failed:
                say(f"{check.tool}: {BROKERS[broker]}, round {number + 1} of {rounds}")
                measure(check, broker, size, directory, finding)
    return finding


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where pybroker failed, 5 where no check ran."""
    if any(PYBROKER in finding.failed for finding in findings):
        return PYBROKER_FAILED
    return 0 if any(finding.rows for finding in findings) else results.NOTHING_RAN


def main() -> int:
    """Run, print, and return the exit code."""
    arguments = parse_arguments()
    size = QUICK if arguments.quick else FULL
    brokers, absent = arguments.brokers, missing_requirement()
    if absent is not None and KAFKA in brokers:
        say(f"Apache Kafka is skipped: {absent}")
        brokers = [broker for broker in brokers if broker != KAFKA]
    chosen = [check for check in CHECKS if not arguments.only or check.name in arguments.only]
    begun = now_text()
    with tempfile.TemporaryDirectory(prefix="check-it-yourself-", dir=arguments.directory) as directory:
        findings = [
            run_check(check, brokers, size, arguments.rounds or size.rounds, Path(directory)) for check in chosen
        ]
    command = shlex.join(["scripts/check-it-yourself", *sys.argv[1:]])
    document = {
        "command": command,
        "begun": begun,
        "machine": machine(),
        "brokers": [BROKERS[broker] for broker in brokers],
        "findings": [finding.document() for finding in findings],
    }
    results.write("check-it-yourself", document)
    if arguments.json:
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        told = [table(findings), "", f"{command}, {begun}, {machine()}"]
        told += [COLD] if arguments.quick else []
        told += [f"- {remark}" for remark in remarks(findings, BROKERS)]
        sys.stdout.write("\n".join(told) + "\n")
    return exit_code(findings)


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
