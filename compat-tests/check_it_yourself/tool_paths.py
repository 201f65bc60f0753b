"""The environment in which tools are built and run: this process's own, with the directories of toolchains in front."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def environment_with(directories: Iterable[Path]) -> dict[str, str]:
    """The variables of this process, but that these directories are searched first."""
    return {**os.environ, "PATH": os.pathsep.join([*map(str, directories), os.environ["PATH"]])}
