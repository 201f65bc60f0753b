"""``pybroker serve``: parse the options of the broker's process and start it.

Owns: the options.  Owns nothing of the process: ``broker_process`` prints the ready line and handles the
signals.  Imports the standard library alone, as the start-up budget asks.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence

from pybroker.cli.unseen_arguments import take_from_environment

WORKERS_MAX = 256
DESCRIPTION = "Run a broker.  Prints `pybroker ready on HOST:PORT` when it serves; SIGTERM and SIGINT end it cleanly."


def parse_setting(text: str) -> tuple[str, str]:
    """``key=value`` as a pair; the value may be empty and may hold further ``=``."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return name.strip(), value.strip()


def parse_count(text: str) -> int:
    """How many workers."""
    if not text.isdecimal() or not 1 <= int(text) <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {WORKERS_MAX}, got {text!r}")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """The parser of everything that may follow ``pybroker serve``."""
    parser = argparse.ArgumentParser(prog="pybroker serve", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="to listen on and advertise (default: port 9092 of all); repeatable, IPv6 as [::1]:9092, 0 picks a port",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="of the log, several with commas (default: /tmp/kafka-logs); made if missing, locked while in use",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file with Kafka's own settings")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        type=parse_setting,
        action="append",
        default=[],
        help="one of Kafka's broker settings; repeatable, wins over --config",
    )
    parser.add_argument(
        "--dev",
        action="store_true",
        help="for a laptop or a test: no join delay, five partitions per internal topic, no fsync",
    )
    parser.add_argument(
        "--metadata",
        metavar="URL",
        dest="settings",
        type=lambda url: ("pybroker.metadata", url),
        action="append",
        help="where the brokers of a cluster share their metadata: sqlite:///PATH or zookeeper://HOST:PORT,.../CHROOT",
    )
    parser.add_argument(
        "--accept-lost-metadata",
        action="append_const",
        dest="settings",
        const=("pybroker.accept.lost.metadata", "true"),
        help="start though the metadata's store has lost acknowledged changes; unknown partitions are put aside",
    )
    parser.add_argument(
        "--add-scram",
        metavar="USER",
        action="append",
        default=[],
        help="a user that a new cluster begins with, as SCRAM-SHA-512=[name=alice,password=...], repeatable; "
        "better @FILE with a user a line, since everybody on this machine sees a command's arguments",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=parse_count,
        help="run N brokers as one cluster: worker i has the port + i, node.id + i and DIR/worker-i",
    )
    return parser


def run_serve(arguments: Sequence[str]) -> int:
    """Run the broker until it is told to stop; returns the exit code."""
    options = build_parser().parse_args([*take_from_environment(), *arguments])
    from pybroker.cli.standard_streams import open_closed_streams

    open_closed_streams()
    if options.workers is not None:
        from pybroker.cli.workers import run_workers

        return run_workers(
            options.workers,
            listen=options.listen,
            data_dir=options.data_dir,
            config_file=options.config,
            settings=options.settings,
            dev=options.dev,
            add_scram=options.add_scram,
        )
    gc.disable()  # what is imported stays: to look at it while it comes costs a tenth of the start
    from pybroker.cli.broker_process import run_broker

    return run_broker(
        listen=options.listen,
        data_dir=options.data_dir,
        config_file=options.config,
        settings=options.settings,
        dev=options.dev,
        add_scram=options.add_scram,
    )
