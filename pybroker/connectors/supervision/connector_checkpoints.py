"""Where each run of a connector keeps its checkpoint, and the end of those that no run will use again.

A connector's checkpoints are numbered, ``DIRECTORY/NAME/NUMBER``; numbers of a name grow for ever, and the topic of
configurations has the last one.  So a lesser number is never used again.  It is removed when the next run has a batch
committed, or with its connector.  What a supervisor that died leaves behind goes with the next run of the name.

Owns the names of directories, and their removal, which needs one that is mounted here.  What stands in a checkpoint is
`checkpoint_files`'.  A failure to remove is a line of the log.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pybroker.pipeline.checkpoint_files import has_committed, local_checkpoint, names_in

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")

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
        return bool(self._directory) and has_committed(self.of(name, number))

    def remove_before(self, name: str, number: int) -> None:
        """Remove the checkpoints of a connector's runs before this one."""
        folder = local_checkpoint(f"{self._directory}/{_folder(name)}")
        # Without a directory the folder would be one of the root.
        if folder is None or not self._directory:
            return
        for each in names_in(folder):
            if _NUMBER.fullmatch(each) and int(each) < number:
                _remove(name, folder / each)
        if not names_in(folder) and folder.is_dir():
            folder.rmdir()


def _folder(name: str) -> str:
    """A name of dots would be another directory."""
    text = quote(name, safe="")
    return text if text.strip(".") else text.replace(".", "%2E")


def _remove(name: str, checkpoint: Path) -> None:
    try:
        shutil.rmtree(checkpoint)
    except OSError as error:
        _log.warning("%s: a former checkpoint stays: %s", name, error)
    else:
        _log.info("%s: its former checkpoint %s is removed", name, checkpoint)
