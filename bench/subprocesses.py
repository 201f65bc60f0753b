"""Generators as processes of their own: a job as JSON goes in, an outcome as JSON comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from bench import latency_load
from bench.raw_load import Job, Outcome

TIMEOUT_S = 300


class Generator:
    """A running ``python -m MODULE``; ``outcome`` waits for its end."""

    def __init__(self, module: str, job: dict[str, Any]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, "-m", module], stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job))
        self._process.stdin.close()
        self._process.stdin = None

    def outcome(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """What the generator printed; raises ``RuntimeError`` when it failed or did not end in time."""
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"a generator did not end in {timeout_s:.0f} s") from error
        finally:
            if self._process.returncode is None:
                self._process.kill()
                self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"a generator exited with {self._process.returncode}")
        result: dict[str, Any] = json.loads(output)
        return result


def start_raw_load(job: Job) -> Generator:
    """A raw producer in the background."""
    return Generator("bench.raw_load", asdict(job))


def raw_load(job: Job) -> Outcome:
    """A raw producer, run to its end."""
    return Outcome(**start_raw_load(job).outcome())


def latencies(job: latency_load.Job) -> latency_load.Outcome:
    """Requests at a fixed rate, run to their end; raises ``RuntimeError`` when one was never answered or consumed:
    what is lost has no latency, so that the rest would look the better for it."""
    outcome = latency_load.Outcome(**Generator("bench.latency_load", asdict(job)).outcome())
    if outcome.lost:
        raise RuntimeError(f"{outcome.lost} records did not come back at {job.rate:,.0f} requests/s")
    return outcome
