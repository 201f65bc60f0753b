"""Files with secrets: whether others may read them.

Owns: that question and the line that tells of it.  Refuses nothing: a file may be guarded by its directory, or lie on a
file system without modes.
"""

from __future__ import annotations

import logging
import os
import stat

log = logging.getLogger(__name__)


def exposure_of(path: str, what: str) -> str | None:
    """What to tell whoever runs this of a file with ``what``, where everybody on the machine may read it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
        return None
    return f"{path} has {what}, and everybody on this machine may read it: chmod 600 {path}"


def tell_of_exposure(path: str, what: str) -> None:
    """A warning in the log where everybody on the machine may read a file with ``what``."""
    if (warning := exposure_of(path, what)) is not None:
        log.warning("%s", warning)
