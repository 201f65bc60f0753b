"""What a broker refuses of several things that a command has asked for.

Owns: how one refusal, and several of one command, are said on stderr, in the spelling of ``failure``, behind a table of
what is done.  JSON has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pybroker.cli.failure import CommandFailed, describe_error_code, named_error
from pybroker.cli.output import Output, remark

# A part of what was asked for: its document, and why it failed.
Part = tuple[dict[str, Any], CommandFailed | None]


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


def part_of(named: dict[str, Any], what: object, code: int, done: str, message: str | None = None) -> Part:
    """A part by its name in a document, with its status, which is ``done`` or the error's name."""
    failure = refused(what, code, message) if code else None
    return {**named, "status": describe_error_code(code) if code else done}, failure


def report(output: Output, columns: Sequence[str], parts: Sequence[Part]) -> None:
    """Print what became of each part, and fail where one failed; the columns are the first values of a document.

    What failed is said on stderr, and not in the table as well.
    """
    failures = [failure for _, failure in parts if failure is not None]
    if output.as_json:
        output.json([document for document, _ in parts])
    elif len(failures) < len(parts) or not failures:
        done = [document for document, failure in parts if failure is None]
        output.table(columns, [tuple(document.values())[: len(columns)] for document in done])
    fail_for(failures, output)
