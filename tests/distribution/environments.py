"""Virtual environments of their own, with the wheel in them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALLED_WITHIN_S = 300
ENDED_WITHIN_S = 60


@dataclass(frozen=True)
class Environment:
    """One virtual environment without pip, so that all that lies in it was asked for."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the environment's, run to its end whatever its exit code."""
        program, *arguments = command
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=ENDED_WITHIN_S,
            check=False,
        )

    def size_mb(self) -> float:
        """What its packages take on the disk, compiled modules included, in MB."""
        return sum(path.lstat().st_blocks * 512 for path in self.site_packages.rglob("*")) / 1e6


def environment_with(folder: Path, *requirements: str) -> Environment:
    """Make an environment and install the requirements into it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=INSTALLED_WITHIN_S)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "-q", "--disable-pip-version-check", *requirements], check=True, timeout=INSTALLED_WITHIN_S
    )
    return Environment(folder)
