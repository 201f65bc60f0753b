"""How new the cluster's metadata was that a log directory has last seen.

Owns ``pybroker-metadata-seen`` in each log dir: one line with the store's revision, rewritten in place after each
change and never synced.  So it is behind a store that syncs, never ahead, whatever dies; a store that is behind it has
lost what was acknowledged.  Owns no judgement (``cluster/bootstrap``).

Directories of unknown topics prove no loss: a crash between a deletion's commit and the renames leaves them, too.

Kafka has no counterpart: its metadata is a replicated log.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pybroker.storage.files import os_file

MARK_FILE = "pybroker-metadata-seen"
NOTHING_SEEN = -1
_LINE_BYTES = 21

logger = logging.getLogger("pybroker.storage")


def read_mark(directory: Path) -> int:
    """The revision that a log dir has seen; ``NOTHING_SEEN`` if it does not say.  Raises OSError."""
    path = directory / MARK_FILE
    try:
        # What lies behind the line is another's, and would stay there for good.
        text = path.read_bytes()[:_LINE_BYTES].decode("ascii", "replace")
    except FileNotFoundError:
        return NOTHING_SEEN
    if text.endswith("\n") and text[:-1].isdecimal():
        return int(text)
    if text:
        logger.warning("%s is malformed: what is missing of the metadata would not be noticed at this start", path)
    return NOTHING_SEEN


def write_mark(directory: Path, revision: int) -> None:
    """Note that a log dir has seen the metadata of a revision.  Raises OSError."""
    fd = os_file.open_for_append(directory / MARK_FILE)
    try:
        os_file.write_fully(fd, b"%020d\n" % revision, 0)
    finally:
        os.close(fd)
