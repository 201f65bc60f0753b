"""The benchmark's programs in C (``bench/native``), compiled when they are first asked for.

Owns: where a compiled program lies (``.cache/native``, under a hash of its sources, so that none is ever stale) and how
it is made.  Linux only, since the programs live on epoll; ``scripts/bench`` and ``scripts/test`` install the compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "bench" / "native"
CACHE = ROOT / ".cache" / "native"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wconversion")
# What every program is linked with.
SHARED = ("histogram", "net", "reply", "job", "tls")


def compiler() -> str | None:
    """The system's C compiler, if there is one."""
    return shutil.which(os.environ.get("CC", "cc"))


def program(name: str) -> Path:
    """The program of ``native/NAME.c``, compiled where it is not; raises ``RuntimeError`` where that is not possible.

    Several processes may ask at once: each compiles for itself, and the last one's is kept.
    """
    path = CACHE / _version() / name
    if path.exists():
        return path
    command = compiler()
    if command is None:
        raise RuntimeError("the load generators are compiled: please install gcc and libc6-dev")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        made = Path(directory) / name
        sources = [str(SOURCES / f"{source}.c") for source in (name, *SHARED)]
        finished = subprocess.run(
            [command, *FLAGS, "-o", str(made), *sources, "-lm"], capture_output=True, text=True, check=False
        )
        if finished.returncode:
            raise RuntimeError(f"{name}.c cannot be compiled:\n{finished.stderr}")
        made.replace(path)
    return path


def _version() -> str:
    """A name for what the programs are made of."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
