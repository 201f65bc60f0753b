"""``scripts/histories``: run the workload against a broker, or take a history that is there, and check it.

Exits with 1 when an anomaly was found, with 2 when there was nothing to judge: no broker, no history, or a run that
did not come to its end.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from harness import results
from harness.apache_kafka import KAFKA_VERSION, ApacheKafka, missing_requirement
from harness.broker_probe import answers_as_broker, host_and_port
from harness.pybroker_process import PybrokerProcess
from harness.termination import exit_on_sigterm

from histories.anomalies import ANOMALIES, PHENOMENA, Report
from histories.checker import check
from histories.cluster_nemesis import FAULT_EVERY_S
from histories.cluster_run import STORES, ClusterPlan, find_hosts
from histories.cluster_run import started as cluster_started
from histories.history import HistoryError, read_events
from histories.hosts import Hosts
from histories.mistakes import MISTAKES
from histories.nemesis import Nemesis, OneBroker
from histories.secure import SecureBroker
from histories.worker import REST_S
from histories.workload import BROKER_PROPERTIES, CAST, SECURE_CAST, Workload
from pybroker.security.client_access import ClientAccess

PART = "histories"
NOTHING_TO_JUDGE = 2
PROBE_S = 5.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def give_up(reason: object) -> NoReturn:
    sys.stderr.write(f"scripts/histories: {reason}\n")
    raise SystemExit(NOTHING_TO_JUDGE)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/histories", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, which is not killed")
    where.add_argument("--apache", action="store_true", help="Apache Kafka, started for the run")
    where.add_argument("--secure", action="store_true", help="pybroker with TLS, logins that end soon, and ACLs")
    where.add_argument("--check", type=Path, metavar="FILE", help="run nothing, check this history")
    parser.add_argument("--seconds", type=float, default=60, help="how long clients work (%(default)s)")
    parser.add_argument("--kills", type=int, default=3, help="how often the broker is killed (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults, and of what clients choose (%(default)s)")
    parser.add_argument(
        "--rest", type=float, default=REST_S, metavar="SECONDS", help="of clients at most (%(default)s)"
    )
    cluster = parser.add_argument_group("a cluster of pybroker")
    cluster.add_argument("--brokers", type=int, default=1, metavar="N", help="a cluster of so many, at least three")
    cluster.add_argument("--metadata", choices=sorted(STORES), default="sqlite", help="their store (%(default)s)")
    cluster.add_argument("--servers", type=int, default=1, help="of ZooKeeper (%(default)s)")
    cluster.add_argument("--faults", metavar="KIND,...", help="some kinds; all that can be had by default")
    cluster.add_argument("--every", type=float, default=FAULT_EVERY_S, help="seconds to a fault (%(default)s)")
    cluster.add_argument("--plant", choices=sorted(MISTAKES), help="a mistake that the brokers make")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep history, logs and data there")
    return parser.parse_args()


def check_bootstrap(bootstrap: str) -> None:
    """Clients would go on asking for a long time."""
    try:
        host, port = host_and_port(bootstrap)
    except ValueError:
        give_up(f"{bootstrap!r} is not HOST:PORT")
    # As in a URL, an IPv6 address is in brackets.
    if not answers_as_broker(host.strip("[]"), port, PROBE_S):
        give_up(f"no broker answers at {bootstrap}")


@contextmanager
def started(
    arguments: argparse.Namespace, hosts: Hosts | None, directory: Path
) -> Iterator[tuple[ClientAccess, Nemesis]]:
    """(How clients get to the broker under test, who strikes it)."""
    if hosts is not None:
        with cluster_started(cluster_plan(arguments), hosts, directory, say) as (cluster, nemesis):
            yield ClientAccess(cluster.bootstrap), nemesis
        return
    if arguments.bootstrap:
        check_bootstrap(arguments.bootstrap)
        yield ClientAccess(arguments.bootstrap), OneBroker(None, 0)
        return
    broker: ApacheKafka | PybrokerProcess
    secure: SecureBroker | None = None
    if arguments.secure:
        secure = SecureBroker(directory / "broker", BROKER_PROPERTIES)
        broker = secure.process
    elif arguments.apache:
        if (reason := missing_requirement()) is not None:
            give_up(reason)
        broker = ApacheKafka(directory / "broker", BROKER_PROPERTIES)
    else:
        broker = PybrokerProcess(directory / "broker", BROKER_PROPERTIES)
    try:
        broker.start()
        if secure is not None:
            secure.grant()
        access = ClientAccess(broker.bootstrap) if secure is None else secure.access
        yield access, OneBroker(broker, arguments.kills)
        broker.stop()
    finally:
        broker.kill()


def cluster_plan(arguments: argparse.Namespace) -> ClusterPlan:
    faults = None if arguments.faults is None else [kind for kind in arguments.faults.split(",") if kind]
    return ClusterPlan(
        arguments.brokers, arguments.metadata, arguments.servers, faults, arguments.every, arguments.plant
    )


def hosts_of_a_cluster(arguments: argparse.Namespace) -> Hosts | None:
    """Where its brokers run; None where no cluster is asked for."""
    if arguments.brokers == 1:
        return None
    plan = cluster_plan(arguments)
    try:
        plan.check()
    except ValueError as mistake:
        give_up(mistake)
    return find_hosts(plan, say)


def make_history(arguments: argparse.Namespace, hosts: Hosts | None, directory: Path) -> Path:
    with started(arguments, hosts, directory) as (access, nemesis):
        cast = SECURE_CAST if arguments.secure else CAST
        return Workload(directory, access, nemesis, arguments.seconds, arguments.seed, arguments.rest, cast, say).run()


def print_report(report: Report) -> None:
    for name, number in report.statistics.items():
        say(f"  {number:>10,}  {name}")
    say("")
    for kind, meaning in {**ANOMALIES, **PHENOMENA}.items():
        count = report.counts.get(kind, 0)
        mark = "no fault" if kind in PHENOMENA else "FOUND" if count else "none"
        say(f"  {kind:<21} {count:>8,}  {mark:<9} {meaning}")
        for example in report.examples.get(kind, ()) if kind in ANOMALIES else ():
            say(f"      {example}")


def write_result(arguments: argparse.Namespace, report: Report) -> None:
    broker = f"Apache Kafka {KAFKA_VERSION}" if arguments.apache else arguments.bootstrap or "pybroker"
    if arguments.secure:
        broker += " with TLS, logins and ACLs"
    if arguments.brokers > 1:
        broker = f"{arguments.brokers} brokers of pybroker"
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
            if (hosts := hosts_of_a_cluster(arguments)) is not None:
                stack.callback(hosts.close)
            history = make_history(arguments, hosts, directory)
        began = time.monotonic()
        # Millions of objects that all stay: to look for garbage among them takes a third of the time.
        gc.disable()
        try:
            report = check(read_events(history))
        except (HistoryError, OSError) as failure:
            give_up(f"{history} is no history: {failure}")
    print_report(report)
    say(f"\nchecked in {time.monotonic() - began:.1f} s")
    if arguments.check is None:
        write_result(arguments, report)
    return int(bool(report.anomalies))


if __name__ == "__main__":
    exit_on_sigterm()
    try:
        sys.exit(main())
    except Exception:  # Python's own exit code for it says that an anomaly was found
        traceback.print_exc()
        sys.exit(NOTHING_TO_JUDGE)
