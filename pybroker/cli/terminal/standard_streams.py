"""The process's stdin, stdout and stderr where they are closed, or have no reader any more.

Owns: descriptors 0 to 2, and the form of a log on stderr.  Owns nothing that is printed (``output``,
``broker_process``).  Standard library alone, because ``serve`` needs it, too.

All commands run with these descriptors taken (``open_closed_streams``): a closed stdout becomes one that fails when it
is written to, so that commands which print nothing still work.  ``serve`` goes on where its ready line has no reader.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """A broker's log, or that of the process that runs brokers: lines with time, level and part."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)


def open_closed_streams() -> None:
    """Give a command that was started without a standard stream one: stdin is empty, stdout fails when written to.

    The descriptors are taken as well: a socket that got one of their numbers would receive what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))


def say(line: str) -> None:
    """Print a line at once; a broker serves as well where its reader has gone."""
    try:
        print(line, flush=True)
    except OSError:
        silence_stdout()


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot raise after the reader has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
