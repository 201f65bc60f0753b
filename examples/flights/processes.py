"""The processes that demos start: a broker, a supervisor of connectors, and the Spark job. Linux and macOS.

Owns their life cycles and their one-line contracts on stdout: the ready line of a server, the job's JSON lines. Each
runs in a process group of its own, so that ending it ends its children too (Spark's JVM is a child).
"""

import json
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from examples.flights.failures import RunFailed
from examples.flights.job_options import JobOptions

PYBROKER = str(Path(sys.executable).with_name("pybroker"))
READY_LINE = re.compile(r"pybroker (?:connect )?ready on (\S+)")
READY_WITHIN_SECONDS = 60
BROKER_STOPS_WITHIN_SECONDS = 30
# Connectors end their micro-batches, and then Spark's JVM ends.
SUPERVISOR_STOPS_WITHIN_SECONDS = 120
LOG_TAIL_CHARS = 3_000


class ProcessFailed(RunFailed):
    """A process of the demo ended, or did not start, as it should; the message ends with the tail of its log."""

    def __init__(self, what: str, log_path: Path) -> None:
        super().__init__(f"{what}; the end of {log_path}:\n{log_path.read_text(errors='replace')[-LOG_TAIL_CHARS:]}")


def _start(command: list[str], log_path: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )


@contextmanager
def given_or_own_broker(bootstrap: str | None, work_dir: Path) -> Iterator[str]:
    """The HOST:PORT of ``bootstrap``, or of a pybroker that keeps all in ``work_dir``, for the length of a `with`."""
    if bootstrap is not None:
        yield bootstrap
    else:
        with own_broker(work_dir / "data", work_dir / "broker.log") as own:
            yield own


@contextmanager
def own_broker(data_dir: Path, log_path: Path) -> Iterator[str]:
    """A pybroker on a free port for the length of a `with`; yields its HOST:PORT."""
    command = [PYBROKER, "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with _server("the broker", command, log_path, {}, BROKER_STOPS_WITHIN_SECONDS) as address:
        yield address


@contextmanager
def own_supervisor(options: Sequence[str], work_dir: Path) -> Iterator[str]:
    """A supervisor of connectors on a free port for the length of a `with`; yields its URL.

    ``options`` are those of ``pybroker connect serve``. Its checkpoints, Spark's files and its log are in ``work_dir``.
    """
    scratch_dir = work_dir / "scratch"
    scratch_dir.mkdir(exist_ok=True)
    command = [PYBROKER, "connect", "serve", "--listen", "127.0.0.1:0", "--data", str(work_dir / "checkpoints")]
    log_path, environment = work_dir / "supervisor.log", {"TMPDIR": str(scratch_dir)}
    stops_within = SUPERVISOR_STOPS_WITHIN_SECONDS
    with _server("the supervisor", [*command, *options], log_path, environment, stops_within) as url:
        yield url


@contextmanager
def _server(
    what: str, command: list[str], log_path: Path, environment: Mapping[str, str], stops_within_seconds: float
) -> Iterator[str]:
    """A process that says where it is reached; yields that."""
    process = _start(command, log_path, environment)
    assert process.stdout is not None
    try:
        ready = READY_LINE.match(_first_line(process.stdout, READY_WITHIN_SECONDS))
        if ready is None:
            raise ProcessFailed(f"{what} did not get ready", log_path)
        yield ready.group(1)
        if _terminated(process, stops_within_seconds) != 0:
            raise ProcessFailed(f"{what} did not stop cleanly", log_path)
    finally:
        _terminated(process, stops_within_seconds)
        process.stdout.close()


def _terminated(process: subprocess.Popen[str], timeout_seconds: float) -> int:
    """Asks a process to end, kills it when it does not, and returns its exit code; also for one that has ended."""
    process.terminate()
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _first_line(stdout: IO[str], timeout_seconds: float) -> str:
    """The first line, or nothing when none comes in time. (Both processes write their lines whole.)"""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        return stdout.readline() if selector.select(timeout_seconds) else ""


class JobProcess:
    """One run of the Spark job, with its log and its temporary files below `work_dir`.

    Leaving the `with` ends whatever still runs of it.
    """

    def __init__(self, options: JobOptions, work_dir: Path) -> None:
        self._log_path = work_dir / "spark.log"
        scratch_dir = work_dir / "scratch"
        scratch_dir.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "examples.flights.job", *options.arguments()]
        self._process = _start(command, self._log_path, {"TMPDIR": str(scratch_dir)})

    def __enter__(self) -> "JobProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What the job tells, until it ends; raises `ProcessFailed` when it ends badly."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        if self._process.wait() != 0:
            raise ProcessFailed(f"the job ended with exit code {self._process.returncode}", self._log_path)

    def kill(self) -> None:
        """Ends the job and its JVM at once, as a crash would; does nothing to one that has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
