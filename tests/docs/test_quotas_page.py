"""The page on quotas: its commands print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pybroker.testing import Broker
from tests.docs.pages import examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "quotas.md"
BIN = Path(sys.executable).parent


def test_the_pages_commands_print_what_it_says() -> None:
    text = "".join(example.code for example in examples("console", PAGE))
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert len(commands) > 3
    with Broker() as broker:
        path = f"{BIN}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYBROKER_BOOTSTRAP": broker.bootstrap}
        for command, prints in commands:
            shell = ["bash", "-o", "pipefail", "-c", command]
            done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout) == (0, prints), (command, done.stderr)
