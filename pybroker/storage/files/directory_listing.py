"""The data files that a partition's directory holds, by their names and sizes."""

from __future__ import annotations

import os
from pathlib import Path

from pybroker.storage.files.file_names import LOG_SUFFIX

# (base offset, bytes, modification time in s) of a data file
ListedSegment = tuple[int, int, float]


def segment_files(directory: Path) -> list[ListedSegment]:
    """The data files in a directory, rising; none if it is missing."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit():
                    stat = entry.stat()
                    found.append((int(name[: -len(LOG_SUFFIX)]), stat.st_size, stat.st_mtime))
    except FileNotFoundError:
        return []
    return sorted(found)
