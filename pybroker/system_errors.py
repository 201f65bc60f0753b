"""What the system says of a failed call, in words without numbers.

Owns: the words.  Does not own which call failed, or of what: the caller says that.
"""

from __future__ import annotations

import os


def system_reason(error: BaseException) -> str:
    """``Connection refused``, as the system says it; asyncio has words of its own beside the number."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno and error.errno > 0:  # below are those of name resolution, which strerror does not know
        return os.strerror(error.errno)
    return error.strerror or str(error)
