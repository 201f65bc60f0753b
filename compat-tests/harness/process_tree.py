"""A command with all that it starts: run to its end, and ended whole when whoever waits for it is.

``subprocess.run`` kills the command alone when its wait is broken off, and leaves a command's own children behind.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

import psutil

# For brokers to stop and fixtures to be torn down.
GRACE_S = 15.0
# For a kill to take effect.
KILL_S = 5.0


def run(command: Sequence[str], timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run``, which no exception (SIGTERM, Ctrl-C, ``TimeoutExpired``) leaves with the command running."""
    with subprocess.Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException as reason:
            # Ctrl-C has reached them all; a second word would break off what they end.
            end(process.pid, tell=not isinstance(reason, KeyboardInterrupt))
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def end(pid: int, *, tell: bool = True) -> None:
    """End a process and its descendants: by SIGTERM, and after a while by SIGKILL."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        _end([root, *root.children(recursive=True)], tell=tell)


def end_children() -> None:
    """End all that this process has started."""
    _end(psutil.Process().children(recursive=True), tell=True)


def _end(tree: Iterable[psutil.Process], *, tell: bool) -> None:
    if tell:
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
    _, left = psutil.wait_procs(tree, GRACE_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            # What it has started since.
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
    psutil.wait_procs(left, KILL_S)
