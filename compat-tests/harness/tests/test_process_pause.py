"""A paused process does nothing."""

import subprocess
import sys
from pathlib import Path

import psutil

from harness.process_pause import pause, resume
from harness.waiting import wait_until

# Threads that are all at work.
BUSY = """
import threading
for _ in range(8):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("begun", flush=True)
input()
"""


def test_no_thread_of_a_paused_process_runs_until_it_is_resumed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == "begun\n"
            process = psutil.Process(busy.pid)
            pause(busy.pid)
            at_first = process.cpu_times()
            states = {
                path.read_text().rpartition(")")[2].split()[0] for path in Path("/proc").glob(f"{busy.pid}/task/*/stat")
            }
            assert states <= {"T"}
            assert process.cpu_times() == at_first
            resume(busy.pid)
            wait_until(lambda: process.cpu_times().user > at_first.user, "it goes on")
        finally:
            busy.kill()
