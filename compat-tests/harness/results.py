"""Where the parts of the report leave what they found, one JSON file each.

Owns: the directory and its file names.  Whoever writes a report removes a part's file before that part runs, so what
lies there afterwards is of that run and of no other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# The exit code of a part of which nothing could run, as pytest's.
NOTHING_RAN = 5
DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "results"


def path_of(part: str) -> Path:
    """The file of a part."""
    return DIRECTORY / f"{part}.json"


def write(part: str, content: Any) -> Path:
    """Leave what a part found; the file appears whole or not at all."""
    path = path_of(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)
    return path


def read(part: str) -> Any:
    """What the part found; ``None`` where it left nothing."""
    path = path_of(part)
    return json.loads(path.read_text()) if path.exists() else None


def forget(part: str) -> None:
    """Remove what an earlier run found."""
    path_of(part).unlink(missing_ok=True)
