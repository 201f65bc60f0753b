"""``pybroker serve``: parse the options of the broker's process and start it.

Owns: the options.  Owns nothing of the process: ``broker_process`` prints the ready line and handles the
signals.  Imports the standard library alone, as the start-up budget asks.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterable, Sequence
from typing import NoReturn

from pybroker.cli.serve.hidden_arguments import take_from_environment

AUTO = "auto"
# What other servers and commands call the same, Kafka's own script among them.
_OTHER_NAMES = {
    **dict.fromkeys(
        ("--port", "-p", "--host", "--bind", "--bootstrap", "--bootstrap-server", "-b"), "--listen HOST:PORT"
    ),
    **dict.fromkeys(("--dir", "--log-dir", "--log-dirs"), "--data-dir DIR"),
    **dict.fromkeys(("--override", "-s"), "--set KEY=VALUE"),
}
DESCRIPTION = "Run a broker.  Prints `pybroker ready on HOST:PORT` when it serves; SIGTERM and SIGINT end it cleanly."


def parse_setting(text: str) -> tuple[str, str]:
    """``key=value`` as a pair; the value may be empty and may hold further ``=``."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return name.strip(), value.strip()


def parse_count(text: str) -> int | str:
    """The number of workers, or ``auto``."""
    from pybroker.cli.serve.worker_count import WORKERS_MAX

    if text == AUTO:
        return text
    if not text.isdecimal() or not 1 <= int(text) <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {WORKERS_MAX}, or auto, got {text!r}")
    return int(text)


class _WholeWords(argparse.HelpFormatter):
    """A help that reads like the other commands': it breaks no name at a hyphen, and begins with a capital letter."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        import textwrap

        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


class _Parser(argparse.ArgumentParser):
    """Names the option that was meant, as the client commands do."""

    def error(self, message: str) -> NoReturn:
        _, is_unknown, arguments = message.partition("unrecognized arguments: ")
        super().error(_unknown(arguments.split(" ")[0], list(self._option_string_actions)) if is_unknown else message)


def _unknown(argument: str, options: Sequence[str]) -> str:
    from difflib import get_close_matches

    if not argument.startswith("-"):
        return f"unexpected argument {argument!r}; a file of settings stands behind --config"
    name = argument.partition("=")[0]
    near = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, options, 1)), None)
    return f"no such option: {name}" + (f"; did you mean {near}?" if near else "")


def build_parser() -> argparse.ArgumentParser:
    """The parser of everything that may follow ``pybroker serve``."""
    parser = _Parser(
        "pybroker serve", description=DESCRIPTION, allow_abbrev=False, add_help=False, formatter_class=_WholeWords
    )
    options = parser.add_argument_group("Options")
    options.add_argument("-h", "--help", action="help", help="Show this message and exit.")
    options.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="The address to listen on and to advertise (default: port 9092 of all); repeatable. IPv6 is written as "
        "[::1]:9092, and port 0 picks a free one.",
    )
    options.add_argument(
        "--data-dir",
        metavar="DIR",
        help="The directory of the log, or several with commas (default: /tmp/kafka-logs). It is made where it is "
        "missing, and locked while in use.",
    )
    options.add_argument("--config", metavar="FILE", help="A server.properties file with Kafka's own settings.")
    options.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="settings",
        type=parse_setting,
        action="append",
        default=[],
        help="One of Kafka's broker settings, which wins over --config; repeatable.",
    )
    options.add_argument(
        "--dev",
        action="store_true",
        help="Settings for a laptop or a test: no join delay, five partitions per internal topic, no fsync.",
    )
    options.add_argument(
        "--metadata",
        metavar="URL",
        dest="settings",
        type=lambda url: ("pybroker.metadata", url),
        action="append",
        help="The store in which the brokers of a cluster share their metadata: sqlite:///PATH or "
        "zookeeper://HOST:PORT,.../CHROOT.",
    )
    options.add_argument(
        "--accept-lost-metadata",
        action="append_const",
        dest="settings",
        const=("pybroker.accept.lost.metadata", "true"),
        help="Start though the metadata's store has lost acknowledged changes; unknown partitions are put aside.",
    )
    options.add_argument(
        "--add-scram",
        metavar="USER",
        action="append",
        default=[],
        help="A user that a new cluster begins with, as SCRAM-SHA-512=[name=alice,password=...]; repeatable. Better is "
        "@FILE with a user a line, since everybody on this machine sees a command's arguments.",
    )
    options.add_argument(
        "--workers",
        metavar="N",
        type=parse_count,
        help="Run N brokers as one cluster (1 to 256; auto: one per processor): worker i has the port + i, node.id + i "
        "and DIR/worker-i.",
    )
    return parser


def run_serve(arguments: Sequence[str]) -> int:
    """Run the broker until a signal to stop; returns the exit code."""
    options = build_parser().parse_args([*take_from_environment(), *arguments])
    from pybroker.cli.terminal.standard_streams import open_closed_streams

    open_closed_streams()
    if options.workers is not None:
        from pybroker.cli.serve.workers import run_workers

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
    from pybroker.cli.serve.broker_process import run_broker

    return run_broker(
        listen=options.listen,
        data_dir=options.data_dir,
        config_file=options.config,
        settings=options.settings,
        dev=options.dev,
        add_scram=options.add_scram,
    )
