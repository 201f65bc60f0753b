"""How the commands spell what a broker refuses: Kafka's name of the error, then what there is to say about it.

Owns: that one spelling, for lines on stderr, and how several failures of one command are said.  Tables have the name in
STATUS and the broker's message in a column of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.cli.failure import CommandFailed, describe_error_code
from pybroker.cli.output import Output, remark
from pybroker_protocol.errors import ErrorCode

_MEANINGS = {int(error): error.message for error in ErrorCode}


def named_error(code: int, message: str | None = None) -> str:
    """``NAME_OF_ERROR: message``: the broker's own message, or what the error means."""
    told = message or _MEANINGS.get(code)
    return f"{describe_error_code(code)}: {told}" if told else describe_error_code(code)


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
