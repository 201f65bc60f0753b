"""What a broker refuses of several things that a command has asked for.

Owns: how one refusal, and several of one command, are said on stderr, in the spelling of ``failure``.  Tables have the
name in STATUS and the broker's message in a column of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.cli.failure import CommandFailed, named_error
from pybroker.cli.output import Output, remark


def refused(what: object, code: int, message: str | None = None) -> CommandFailed:
    """That a broker has refused something of ``what``."""
    return CommandFailed(f"{what}: {named_error(code, message)}")


def fail_for(failures: Sequence[CommandFailed], output: Output) -> None:
    """Say all of them behind the results, and raise the last; nothing where there are none."""
    output.flush()
    for failure in failures[:-1]:
        remark(f"pybroker: {failure}")
    if failures:
        raise failures[-1]
