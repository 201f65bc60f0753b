"""How new the cluster's metadata was that a log directory has last seen.

Owns ``pybroker-metadata-seen`` in each log dir: two lines with the store's revision, rewritten in place after each
change and never synced.  So it is behind a store that syncs, never ahead, whatever dies; a store that is behind it has
lost what was acknowledged.  Owns no judgement (``cluster/bootstrap``).

The smaller line counts. A write that was cut short leaves, in one of the lines, the digits of the new revision before
those of the old one. That line is then at least the old revision, and may be ahead of the new one (29 between 19 and
21). The other line is the old one whole, or the new one.

Directories of unknown topics prove no loss: a crash between a deletion's commit and the renames leaves them, too.

Kafka has no counterpart: its metadata is a replicated log.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pybroker.storage.files import os_file

MARK_FILE = "pybroker-metadata-seen"
NOTHING_SEEN = -1
_LINE_BYTES = 21
_LINE = b"%020d\n"

logger = logging.getLogger("pybroker.storage")


def read_mark(directory: Path) -> int:
    """The revision that a log dir has seen; ``NOTHING_SEEN`` if it does not say.  Raises OSError."""
    path = directory / MARK_FILE
    try:
        data = os_file.read_bytes(path)
    except FileNotFoundError:
        return NOTHING_SEEN
    seen, again = _revision(data[:_LINE_BYTES]), _revision(data[_LINE_BYTES : 2 * _LINE_BYTES])
    if data and seen == NOTHING_SEEN:
        logger.warning("%s is malformed: what is missing of the metadata would not be noticed at this start", path)
    # What lies behind the first line may be another's, and would stay there for good.
    return seen if again == NOTHING_SEEN else min(seen, again)


def _revision(line: bytes) -> int:
    return int(line) if len(line) == _LINE_BYTES and line.endswith(b"\n") and line[:-1].isdigit() else NOTHING_SEEN


def write_mark(directory: Path, revision: int) -> None:
    """Note that a log dir has seen the metadata of a revision.  Raises OSError."""
    fd = os_file.open_for_append(directory / MARK_FILE)
    try:
        os_file.write_fully(fd, 2 * (_LINE % revision), 0)
    finally:
        os_file.close(fd)
