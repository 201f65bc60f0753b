"""The command behind ``scripts/bench``: choose parts, run them one after another, report.

One load runs at a time.  A part that fails is reported and skipped; the others still run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from harness.machine import now_text
from harness.termination import exit_on_sigterm

from bench.contestants import FLOOR, KAFKA, PYBROKER
from bench.context import FULL, QUICK, Context
from bench.measurements import Measurements
from bench.parts import FULL_ONLY, PARTS
from bench.picture import write_picture
from bench.process_stats import load_average, stolen_seconds
from bench.report import OWN_SECTIONS, RunInfo, print_changes, print_report, read_json, write_json, write_markdown

CONTESTANTS = (KAFKA, PYBROKER, FLOOR)
# More than this share of the processors' time is not the host's usual one, which is some hundredths under any load that
# sleeps and wakes.
DISTURBED = 0.1


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    described = "\n".join(f"  {name:<11} {what}" for name, what in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Run pybroker and Apache Kafka on this machine in alternation and compare them.",
        epilog=f"parts:\n{described}\n\nWithout --full, {', '.join(FULL_ONLY)} runs only when it is named.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="PART,…", help="run these parts")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="RESULTS.json",
        help="measure parts of that run again, by default those that failed or that the host disturbed",
    )
    parser.add_argument("--full", action="store_true", help="more rounds and longer ones (hours)")
    parser.add_argument(
        "--rounds",
        type=int,
        help="how often each broker is measured (default: 5, 7 with --full; long parts half as often)",
    )
    parser.add_argument(
        "--before",
        type=Path,
        metavar="COMMAND",
        help="compare with this pybroker, of the environment of another commit, in Apache Kafka's place",
    )
    parser.add_argument("--brokers", default=",".join(CONTESTANTS), metavar="NAME,…", help="measure these only")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data (default: a temporary one)")
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md and bench/comparison.svg")
    arguments = parser.parse_args()
    arguments.brokers = arguments.brokers.split(",")
    arguments.parts = arguments.only.split(",") if arguments.only else None
    if unknown := (set(arguments.parts or ()) - PARTS.keys()) | (set(arguments.brokers) - set(CONTESTANTS)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if arguments.before is not None:
        if arguments.again or arguments.write:
            parser.error("what --before brings is printed: it goes with neither --again nor --write")
        if not os.access(arguments.before, os.X_OK):
            parser.error(f"--before {arguments.before} is no command")
        arguments.brokers = [str(arguments.before.absolute()), *(name for name in arguments.brokers if name != KAFKA)]
    if arguments.directory is not None and not arguments.directory.is_dir():
        parser.error(f"--directory {arguments.directory} is no directory")
    return arguments


def default_parts(full: bool) -> list[str]:
    """The parts of a run that names none."""
    return [name for name in PARTS if full or name not in FULL_ONLY]


def disturbed_parts(info: RunInfo) -> list[str]:
    """The parts of a run whose figures say little: those that failed, and those of which the host took too much."""
    return [name for name, share in info.stolen.items() if name in info.failed or share > DISTURBED]


def begin_again(info: RunInfo, measurements: Measurements, parts: list[str]) -> None:
    """Take back what was found of these parts, and say so."""
    for name in parts:
        taken = info.stolen.get(name, 0)
        if name in info.failed:
            why = "which had failed"
        elif taken > DISTURBED:
            why = f"of which the host had taken {taken:.1%}"
        else:
            why = "which was asked for"
        info.again[name] = f"{why}, at {now_text()}"
        measurements.forget(name)
    info.failed = [name for name in info.failed if name not in parts]


def run_parts(context: Context, parts: list[str], info: RunInfo) -> None:
    """Run the parts; what failed, and how much of the machine there was, goes into ``info``.

    The samples are written behind every part: nothing that was measured is lost with a run that is cut off.
    """
    for name in parts:
        context.part = name
        started, stolen = time.monotonic(), stolen_seconds()
        try:
            import_module(f"bench.parts.{name}").run(context)
        except Exception as error:  # Whatever it was, the hour of the other parts is not lost with it.
            context.say(f"{name} failed: {type(error).__name__}: {error}")
            info.failed.append(name)
        elapsed = time.monotonic() - started
        info.seconds[name] = elapsed
        info.stolen[name] = (stolen_seconds() - stolen) / (elapsed * (os.cpu_count() or 1))
        context.say(f"{name}: {elapsed:.0f} s, {info.stolen[name]:.1%} of the processors' time taken by the host")
        write_json(info, context.measurements)


def main() -> int:
    """Run, report, and return the exit code."""
    arguments = parse_arguments()
    if arguments.again is None:
        info = RunInfo(shlex.join(["scripts/bench", *sys.argv[1:]]), load_before=load_average())
        measurements = Measurements()
        parts = arguments.parts or default_parts(arguments.full)
    else:
        info, measurements = read_json(arguments.again)
        parts = arguments.parts or disturbed_parts(info)
        begin_again(info, measurements, parts)
    with tempfile.TemporaryDirectory(prefix="pybroker-bench-", dir=arguments.directory) as root:
        volume = FULL if arguments.full else QUICK
        volume = replace(volume, rounds=arguments.rounds or volume.rounds)
        brokers = [name for name in arguments.brokers if name != FLOOR]
        context = Context(brokers, volume, Path(root), measurements, has_floor=FLOOR in arguments.brokers)
        run_parts(context, parts, info)
    info.finish()
    if arguments.before is None:
        print_report(info, context.measurements)
    else:
        print_changes(info, context.measurements, brokers[0])
    print(f"\nwritten: {write_json(info, context.measurements)}")
    if arguments.write:
        print(f"written: {write_markdown(info, context.measurements)}")
        if alone := info.seconds.keys() - OWN_SECTIONS:
            print(f"written: {write_picture(context.measurements.of(alone))}")
    return 1 if info.failed else 0


if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
