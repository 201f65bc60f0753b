"""The broker of ``scripts/run --secure``, and what it tells its clients.

The script is started without the part that makes an environment, because a test has one.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.broker_probe import free_port
from harness.pybroker_process import Serving, serving

from tests.source_tree import ROOT


def block_of(printed: str, title: str) -> str:
    """What stands indented below a title."""
    match = re.search(rf"^{re.escape(title)}:\n((?:    .*\n)+)", printed, re.MULTILINE)
    assert match is not None, printed
    return textwrap.dedent(match[1])


@contextmanager
def secure_broker(directory: Path) -> Iterator[Serving]:
    """Keys and data lie in ``directory``."""
    script = [sys.executable, str(ROOT / "scripts" / "secure.py")]
    with serving([*script, "--listen", f"127.0.0.1:{free_port()}", "--data-dir", str(directory / "data")]) as served:
        yield served
