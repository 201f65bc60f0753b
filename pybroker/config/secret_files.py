"""Files with secrets: whether others may read them.

Owns: that question and the line that tells of it.  Does not own which settings are secrets (``names``).  Refuses
nothing: a file may be guarded by its directory, or lie on a file system without modes.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable

from pybroker.config.names import is_secret

log = logging.getLogger(__name__)


def exposure_of(path: str, what: str) -> str | None:
    """What to tell an operator of a file with ``what``, where everybody on the machine may read it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
        return None
    return f"{path} has {what}, and everybody on this machine may read it: chmod 600 {path}"


def exposure_of_settings(path: str, names: Iterable[str]) -> str | None:
    """The same of a file of settings: where one of them is a secret."""
    return exposure_of(path, "passwords") if any(map(is_secret, names)) else None


def tell_of_exposure(path: str, what: str) -> None:
    """A warning in the log where everybody on the machine may read a file with ``what``."""
    _warn(exposure_of(path, what))


def tell_of_exposed_settings(path: str, names: Iterable[str]) -> None:
    """A warning in the log where everybody on the machine may read a file of settings with a secret among them."""
    _warn(exposure_of_settings(path, names))


def _warn(warning: str | None) -> None:
    if warning is not None:
        log.warning("%s", warning)
