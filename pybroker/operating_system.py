"""What the operating system says: of a failed call in words without numbers, and how many processors there are.

Owns: the words, and the count.  Does not own which call failed, or of what: the caller says that, but for a port.
"""

from __future__ import annotations

import errno
import os


def processor_count() -> int:
    """How many processors this process may use; where the system cannot say (macOS), how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def system_reason(error: BaseException) -> str:
    """``Connection refused``, as the system says it; asyncio has words of its own beside the number.

    An error of ``urllib`` carries the system's error, or a text, as its reason.
    """
    cause = getattr(error, "reason", None)
    if isinstance(cause, BaseException):
        error = cause
    if not isinstance(error, OSError):
        return str(error)
    if hasattr(error, "library"):  # of OpenSSL, whose numbers are its own
        return error.strerror or str(error)
    if error.errno is not None and error.errno > 0:  # below are those of name resolution, unknown to strerror
        return os.strerror(error.errno)
    return error.strerror or (cause if isinstance(cause, str) else str(error))


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """That an address could not be bound, in a sentence, with what to do where another process has it."""
    advice = "; end what listens there, or choose another port" if error.errno == errno.EADDRINUSE else ""
    return OSError(f"cannot listen on {host or '*'}:{port}: {system_reason(error)}{advice}")
