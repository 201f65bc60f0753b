"""Generators as processes of their own: a job goes in on stdin, an outcome as JSON comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Self

TIMEOUT_S = 300


class Generator:
    """A running generator; ``outcome`` waits for its end."""

    def __init__(self, command: Sequence[str], job: str) -> None:
        pipe = subprocess.PIPE
        self._name = command[-1].rpartition("/")[2]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job)
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # It refused the job; its end says why.
        self._process.stdin = None

    @classmethod
    def of_module(cls, module: str, job: dict[str, Any]) -> Self:
        """A running ``python -m MODULE``, with its job as JSON."""
        return cls([sys.executable, "-m", module], json.dumps(job))

    def outcome(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """What the generator printed; raises ``RuntimeError``, with what it said, when it failed or took too long."""
        try:
            output, errors = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{self._name} did not end in {timeout_s:.0f} s") from error
        finally:
            if self._process.returncode is None:
                self._process.kill()
                self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"{self._name} exited with {self._process.returncode}: {errors.strip()[-2000:]}")
        result: dict[str, Any] = json.loads(output)
        return result
