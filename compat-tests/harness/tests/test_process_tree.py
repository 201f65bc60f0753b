"""A command that is ended takes what it has started with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness import process_tree

ENDS_IN_VAIN_S = 5  # enough for a busy machine to start what is to be ended
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
# Tells the pid of its own child, which hears no SIGTERM.
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


def test_command_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_tree, "GRACE_S", 0.5)
    told = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        process_tree.run([sys.executable, "-c", PARENT, str(told)], timeout=ENDS_IN_VAIN_S)
    assert not psutil.pid_exists(int(told.read_text()))


def test_exit_code_and_output_are_the_commands() -> None:
    done = process_tree.run([sys.executable, "-c", "print(7); exit(3)"], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (3, "7\n")
