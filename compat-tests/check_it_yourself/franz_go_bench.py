"""franz-go's own benchmark, ``examples/bench`` of its repository.

It is a module of its own without a path that the Go proxy knows, so that it is cloned, at the commit below, and built.
It runs until it is ended, and prints a line each second.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import ClassVar

from conformance.client_folder import ToolchainMissing, directory_of, run_build_step
from harness import process_tree

from check_it_yourself.built_check import BuiltCheck
from check_it_yourself.check import RECORD_BYTES, Better, CheckFailed, Figure, Subject
from check_it_yourself.tool_paths import environment_with

REPOSITORY = "https://github.com/twmb/franz-go"
VERSION, COMMIT = "v1.21.5", "1ba5fd24f949a335dbc7caaef1d6037e132ef23e"
CLONE_TIMEOUT_S = 120
PARTITIONS = 4
SECOND = re.compile(r"^[\d.]+ MiB/s; (?P<thousands>[\d.]+)k records/s$", re.MULTILINE)


class FranzGoBench(BuiltCheck):
    """Producing for some seconds, then consuming what is there."""

    name: ClassVar[str] = "franz-go"
    tool = "franz-go's bench"
    folder = f"franz-go-{VERSION}"
    program = "bench"

    def _environment(self) -> dict[str, str]:
        return environment_with([directory_of("go", get=True)])

    def _build(self, environment: Mapping[str, str]) -> None:
        sources = self._cache / "sources"
        clone(sources)
        # The module follows the library beside it, whose own requirements may be newer than it has noted.
        build = ["go", "build", "-mod=mod", "-o", str(self._program), "."]
        run_build_step(build, sources / "examples" / "bench", environment)

    def run(self, subject: Subject) -> list[Figure]:
        options = ["-brokers", subject.bootstrap, "-topic", subject.new_topic(PARTITIONS), "-pprof", ""]
        size = ["-record-bytes", str(RECORD_BYTES)]
        produced = seconds_of(self._lines([*options, *size], subject.size.seconds))
        consumed = seconds_of(self._lines([*options, "-consume"], subject.size.seconds))
        # The first second holds the start; what is consumed may end within a second.
        return [
            Figure("produce 1 kB, median second", "records/s", median(produced[1:] or produced), Better.HIGHER),
            Figure("consume 1 kB, best second", "records/s", max(consumed), Better.HIGHER),
        ]

    def _lines(self, options: Sequence[str], seconds: int) -> str:
        """What it prints within so many seconds and a half."""
        command = [str(self._program), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                output, _ = process.communicate(timeout=seconds + 0.5)
            except subprocess.TimeoutExpired:
                process.terminate()
                return process.communicate()[0]
            finally:
                process.kill()
        raise CheckFailed(f"franz-go's bench ended by itself: {output.strip()[-500:]}")


def clone(directory: Path) -> None:
    """Fetch the sources at ``COMMIT``.  Raises ``ToolchainMissing`` where they are out of reach or are others."""
    command = ["git", "clone", "-q", "-c", "advice.detachedHead=false", "--depth", "1", "--branch", VERSION]
    try:
        done = process_tree.run(
            [*command, REPOSITORY, str(directory)],
            timeout=CLONE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainMissing(f"{REPOSITORY} cannot be fetched: {error}") from None
    if done.returncode:
        raise ToolchainMissing(f"{REPOSITORY} cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    head = run_build_step(["git", "rev-parse", "HEAD"], directory, environment_with([])).strip()
    if head != COMMIT:
        raise ToolchainMissing(f"{VERSION} of {REPOSITORY} is {head}, and not the commit that was looked at")


def seconds_of(output: str) -> list[float]:
    """Records/s of each second in which there were some; raises ``CheckFailed`` where there was none."""
    rates = [1000 * float(line["thousands"]) for line in SECOND.finditer(output)]
    if not any(rates):
        raise CheckFailed(f"franz-go's bench moved no records: {output.strip()[-500:] or 'it printed nothing'}")
    return [rate for rate in rates if rate]
