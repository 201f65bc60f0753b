"""Where each run of a connector keeps its checkpoint, and the end of those that no run will use again.

A connector's checkpoints are numbered, ``DIRECTORY/NAME/NUMBER``; numbers of a name grow for ever, and the topic of
configurations has the last one.  So a lesser number is never used again.  It is removed when the next run has a batch
committed, or with its connector.  What a supervisor that died leaves behind goes with the next run of the name.

Owns the names of directories, and their removal, which needs one that is mounted here.  A failure to remove is a line
of the log.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_BATCH: Final = re.compile(r"[0-9]+")
_FILES: Final = "file://"

_log = logging.getLogger(__name__)


class Checkpoints:
    """Those of one directory, which is as Spark has it: a path, or a URI."""

    def __init__(self, directory: str) -> None:
        self._directory = directory.rstrip("/")

    def of(self, name: str, number: int) -> str:
        """Where a run keeps its checkpoint, as Spark has it."""
        return f"{self._directory}/{_folder(name)}/{number}"

    def has_batch(self, name: str, number: int) -> bool:
        """Whether a run has committed one."""
        folder = self._here(name)
        return folder is not None and any(map(_BATCH.fullmatch, _names(folder / str(number) / "commits")))

    def remove_before(self, name: str, number: int) -> None:
        """Remove the checkpoints of a connector's runs before this one."""
        folder = self._here(name)
        if folder is None:
            return
        for each in _names(folder):
            if _NUMBER.fullmatch(each) and int(each) < number:
                _remove(name, folder / each)
        if not _names(folder) and folder.is_dir():
            folder.rmdir()

    def _here(self, name: str) -> Path | None:
        """As this process has it; None for another file system."""
        path = self._directory.removeprefix(_FILES)
        return Path(path, _folder(name)) if path.startswith("/") else None


def _folder(name: str) -> str:
    """A name of dots would be another directory."""
    text = quote(name, safe="")
    return text if text.strip(".") else text.replace(".", "%2E")


def _names(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []


def _remove(name: str, checkpoint: Path) -> None:
    try:
        shutil.rmtree(checkpoint)
    except OSError as error:
        _log.warning("%s: a former checkpoint stays: %s", name, error)
    else:
        _log.info("%s: its former checkpoint %s is removed", name, checkpoint)
