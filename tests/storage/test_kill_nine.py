"""A real process, killed at random moments while it appends: nothing acknowledged is missing after the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from harness.virtual_world import VirtualWorld

from tests.storage.logs import Storage, read_all

ROOT = Path(__file__).parents[2]
KILLS = 6


def append_until_killed(directory: Path, seed: int, lines: int) -> dict[int, str]:
    """Run the appending process and kill it after about ``lines`` acknowledgements; what it acknowledged."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protocol")])}
    command = [sys.executable, str(ROOT / "tests/storage/killed_process.py"), str(directory), str(seed)]
    acknowledged: dict[int, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if len(acknowledged) == lines:
                process.kill()
            if line.endswith("\n"):
                offset, value = line.split()
                assert int(offset) not in acknowledged
                acknowledged[int(offset)] = value
    assert process.returncode == -signal.SIGKILL, "it ended by itself"
    return acknowledged


def test_kill_nine_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    random = Random(7)
    acknowledged: dict[int, str] = {}
    for seed in range(KILLS):
        for offset, value in append_until_killed(tmp_path / "data", seed, random.randrange(1, 80)).items():
            assert offset not in acknowledged, "an offset was given out twice"
            acknowledged[offset] = value
        storage = Storage(tmp_path / "data", VirtualWorld())
        stored = {base: data for base, _, data in read_all(storage.log())}
        storage.kill()
        missing = [offset for offset, value in acknowledged.items() if value.encode() not in stored.get(offset, b"")]
        assert missing == []
        assert sorted(stored) == list(range(len(stored)))
