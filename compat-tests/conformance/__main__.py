"""``scripts/conformance``: build the clients, start the broker if it is to be Apache Kafka, and run the scenarios.

Owns: the command's options.  Everything after them goes to pytest.  With ``--report`` this very command is one part
among others, run by ``report.parts``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import process_tree, results
from harness.apache_kafka import ApacheKafka, missing_requirement
from harness.broker_probe import bootstrap_argument, exit_unless_broker
from harness.ci_share import share
from harness.machine import now_text
from harness.termination import exit_on_sigterm
from report.parts import PARTS, RAN, Options, Run, Target, run_parts

from conformance.all_clients import BUILT, CHOSEN, CLIENTS
from conformance.broker_under_test import (
    APACHE_KAFKA_PROPERTIES,
    BOOTSTRAP,
    BROKERS,
    DATA_DIRECTORY,
    MAKE,
    make_cluster,
)
from conformance.client_folder import ToolchainMissing, all_applications, all_folders
from conformance.containers import PYBROKER, broker_in_container, missing_engine
from conformance.outcomes import BUILDS_FAILED, REASON_CHARACTERS_MAX
from conformance.security import SECURITIES, secured_broker

SUITE = Path(__file__).resolve().parent
ROOT = SUITE.parents[1]
REPORT = ROOT / ".cache" / "report"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build(names: Sequence[str]) -> dict[str, str]:
    """Build what is named, and return the reasons of failures by name.

    What cannot be built for want of a toolchain is told, and skipped by the tests.
    """
    failures: dict[str, str] = {}
    for folder in (*all_folders(), *all_applications()):
        if folder.name not in names:
            continue
        try:
            if folder.missing_requirement() is not None:
                say(f"building {folder.name} {folder.version}")
            folder.build()
        except ToolchainMissing as missing:
            say(f"{folder.name} is skipped: {missing}")
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            # The others are asked all the same.
            say(f"{folder.name} FAILED: {error}")
            failures[folder.name] = str(error)
    return failures


@contextmanager
def container(image: str) -> Iterator[str]:
    """The address of a container started for the run."""
    if (reason := missing_engine()) is not None:
        sys.exit(reason)
    with broker_in_container(image) as bootstrap:
        yield bootstrap


@contextmanager
def target(arguments: argparse.Namespace) -> Iterator[Target]:
    """The broker that a report is about; a container is one and the same for all parts."""
    if arguments.container:
        with container(arguments.container) as bootstrap:
            yield Target(bootstrap=bootstrap, image=arguments.container)
    else:
        yield Target(arguments.apache, arguments.bootstrap)


@contextmanager
def broker(arguments: argparse.Namespace) -> Iterator[Mapping[str, str]]:
    """The environment that names the broker under test."""
    if arguments.apache and (reason := missing_requirement()) is not None:
        sys.exit(reason)
    if arguments.bootstrap:
        yield {MAKE: "other", BOOTSTRAP: arguments.bootstrap}
    elif arguments.container:
        with container(arguments.container) as bootstrap:
            yield {MAKE: "other", BOOTSTRAP: bootstrap}
    elif arguments.security:
        with (
            tempfile.TemporaryDirectory(prefix="conformance-") as directory,
            secured_broker(Path(directory), arguments.security) as secured,
        ):
            data = str(Path(directory) / "data")
            yield {MAKE: "pybroker", BOOTSTRAP: secured.plain, DATA_DIRECTORY: data, **secured.environment()}
    elif arguments.brokers > 1:
        make = "apache" if arguments.apache else "pybroker"
        with (
            tempfile.TemporaryDirectory(prefix="conformance-") as directory,
            make_cluster(make, Path(directory), arguments.brokers) as cluster,
        ):
            yield {
                MAKE: make,
                BROKERS: str(arguments.brokers),
                BOOTSTRAP: ",".join(cluster.bootstraps),
                DATA_DIRECTORY: os.pathsep.join(map(str, cluster.data_directories)),
            }
    elif arguments.apache:
        with (
            tempfile.TemporaryDirectory(prefix="conformance-") as directory,
            ApacheKafka(Path(directory), APACHE_KAFKA_PROPERTIES) as kafka,
        ):
            yield {MAKE: "apache", BOOTSTRAP: kafka.bootstrap, DATA_DIRECTORY: str(kafka.data_directory)}
    else:
        yield {MAKE: "pybroker"}


def parser() -> argparse.ArgumentParser:
    """The command line; what it does not know is pytest's."""
    made = argparse.ArgumentParser(
        prog="scripts/conformance", description="Is this Kafka?  Ask its clients.", allow_abbrev=False
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap",
        type=bootstrap_argument,
        metavar="HOST:PORT",
        help="a running broker of any make; default: pybroker",
    )
    where.add_argument("--apache", action="store_true", help="Apache Kafka, started for the run")
    where.add_argument(
        "--container",
        nargs="?",
        const=PYBROKER,
        metavar="IMAGE",
        help="started for the run by Docker: a confluentinc/cp-kafka image; without a name this checkout's",
    )
    made.add_argument(
        "--brokers", type=int, choices=range(1, 10), default=1, help="so many that are one cluster, started for the run"
    )
    made.add_argument(
        "--security",
        choices=SECURITIES,
        help="a pybroker, started for the run, to which clients log in over TLS, as users of SCRAM or by certificates",
    )
    made.add_argument("--client", action="append", choices=sorted(CLIENTS), help="only this one; may be repeated")
    made.add_argument(
        "--share", metavar="COMMIT", help="of these, or of all that are built, the third that this commit chooses"
    )
    made.add_argument("--build-only", action="store_true", help="build the clients and run nothing")
    made.add_argument(
        "--report",
        type=Path,
        nargs="?",
        const=REPORT,
        metavar="DIRECTORY",
        help=f"run everything there is to report and write report.html and report.md (default: {REPORT})",
    )
    made.add_argument("--report-parts", metavar="PART,…", help=f"of the report only these: {', '.join(PARTS)}")
    made.add_argument(
        "--bench", metavar="ARGUMENTS", default="", help="of the report: what scripts/bench is told, as one word"
    )
    return made


def report(arguments: argparse.Namespace, for_scenarios: Sequence[str]) -> int:
    """Run the parts and write the page; 1 when a part found something, or failed; 5 when none ran."""
    from report.page import HTML, MARKDOWN, write

    names = arguments.report_parts.split(",") if arguments.report_parts else list(PARTS)
    if unknown := set(names) - PARTS.keys():
        sys.exit(f"unknown parts: {', '.join(sorted(unknown))}")
    clients = [word for name in arguments.client or () for word in ("--client", name)]
    with target(arguments) as about:
        options = Options(about, (*clients, *for_scenarios), tuple(shlex.split(arguments.bench)))
        run = Run(shlex.join(["scripts/conformance", *sys.argv[1:]]), str(about), now_text())
        try:
            run_parts(run, names, options, arguments.report / "logs")
        finally:
            # When it is cut off, too: what the parts before have found is the work of an hour.
            run.finished = now_text()
            write(run, arguments.report)
            say(f"written: {arguments.report / HTML} and {arguments.report / MARKDOWN}")
    if not run.succeeded:
        return 1
    if not any(part.state == RAN for part in run.parts.values()):
        say("no part of the report ran: " + "; ".join(f"{name}: {run.parts[name].reason}" for name in names))
        return results.NOTHING_RAN
    return 0


def pytest_command(for_pytest: Sequence[str]) -> list[str]:
    """pytest over what is named, which is pytest's to know from the values of its options; else over the suite."""
    suite = f"testpaths={SUITE.relative_to(ROOT)}"
    return [sys.executable, "-m", "pytest", "-p", "conformance.outcomes", "-n", "2", "-o", suite, *for_pytest]


def scenarios(arguments: argparse.Namespace, for_pytest: Sequence[str]) -> int:
    """Build the clients and run the tests; pytest's exit code, but 1 when a client could not be built."""
    names = arguments.client or [*BUILT, *(application.name for application in all_applications())]
    if arguments.share:
        names = sorted(share(arguments.share, names))
        say(f"of what commit {arguments.share} chooses: {', '.join(names)}")
    failures = build(names)
    if arguments.build_only:
        return 1 if failures else 0
    with broker(arguments) as environment:
        clients = [name for name in names if name in CLIENTS]
        chosen = {CHOSEN: ",".join(clients)} if arguments.client or arguments.share else {}
        # The beginnings of long texts are cut where they are shown, too.
        told = {BUILDS_FAILED: json.dumps({name: text[-REASON_CHARACTERS_MAX:] for name, text in failures.items()})}
        variables = {**os.environ, **environment, **chosen, **told}
        exit_code = process_tree.run(pytest_command(for_pytest), cwd=ROOT, env=variables).returncode
    if failures:
        say(f"could not be built: {', '.join(failures)}")
    if exit_code == results.NOTHING_RAN:
        say("nothing ran: all that was asked for was skipped, or left out by the arguments for pytest")
    return 1 if failures and exit_code in (0, results.NOTHING_RAN) else exit_code


def main() -> int:
    made = parser()
    arguments, for_pytest = made.parse_known_args()
    if arguments.brokers > 1 and (arguments.bootstrap or arguments.container or arguments.report):
        made.error("--brokers are started for a run of scenarios: no broker that runs, no container, no report")
    elsewhere = arguments.bootstrap or arguments.container or arguments.apache or arguments.report is not None
    if arguments.security and (elsewhere or arguments.brokers > 1):
        made.error("--security is for one pybroker, started for a run of scenarios")
    exit_unless_broker(made, arguments.bootstrap)
    if arguments.report is not None:
        return report(arguments, for_pytest)
    return scenarios(arguments, for_pytest)


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
