"""Checkpoints of streaming queries as this machine's file system has them: which micro-batches stand in one.

Owns where Spark notes a micro-batch, before it runs and when it is committed.  Spark takes each sign of a checkpoint's
path, also a percent, as it stands.  A checkpoint of another file system has nothing here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_FILES: Final = "file://"
_BATCH: Final = re.compile(r"[0-9]+")


def local_checkpoint(checkpoint: str) -> Path | None:
    """The directory of a path or a URI as Spark has it; None for another file system."""
    path = checkpoint.removeprefix(_FILES)
    return Path(path) if path.startswith("/") else None


def has_noted(checkpoint: str) -> bool:
    """Whether a micro-batch was begun: Spark notes it before it runs."""
    return _has_batch(checkpoint, "offsets")


def has_committed(checkpoint: str) -> bool:
    """Whether a micro-batch is done."""
    return _has_batch(checkpoint, "commits")


def names_in(folder: Path) -> list[str]:
    """The names of what a directory has; none of one that cannot be read."""
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []


def _has_batch(checkpoint: str, log: str) -> bool:
    folder = local_checkpoint(checkpoint)
    return folder is not None and any(map(_BATCH.fullmatch, names_in(folder / log)))
