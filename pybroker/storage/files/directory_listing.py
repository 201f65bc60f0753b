"""The data files that a partition's directory holds, by their names and sizes."""

from __future__ import annotations

from pathlib import Path

from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import LOG_SUFFIX

# (base offset, bytes, modification time in s) of a data file
ListedSegment = tuple[int, int, float]


def segment_files(directory: Path) -> list[ListedSegment]:
    """The data files in a directory, rising; none if it is missing."""
    try:
        stats = os_file.stats_in(directory, _is_data_file)
    except FileNotFoundError:
        return []
    return sorted((int(name[: -len(LOG_SUFFIX)]), stat.st_size, stat.st_mtime) for name, stat in stats)


def _is_data_file(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit()
