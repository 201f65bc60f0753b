"""What a broker refuses of several things that a command has asked for.

Owns: how one refusal, and several of one command, are said on stderr, in the spelling of ``failure``, behind a table of
what is done.  JSON has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pybroker.cli.terminal.failure import CommandFailed, describe_error_code, named_error
from pybroker.cli.terminal.output import Output, Row, remark
from pybroker_protocol.errors import ErrorCode

# A part of what was asked for: its document, and why it failed.
Part = tuple[dict[str, Any], CommandFailed | None]

# What brokers say of themselves, where the command has asked the cluster.
_OF_ONE_BROKER: Final = (
    *(each.message for each in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.RESOURCE_NOT_FOUND)),
    "This server does not host this topic-partition.",
    "The resource could not be found.",
)


def refused(what: object, code: int, message: str | None = None) -> CommandFailed:
    """That a broker has refused something of ``what``."""
    if message is None or message in _OF_ONE_BROKER:
        message = _of_the_cluster(str(what), code) or message
    return CommandFailed(f"{what}: {named_error(code, message)}")


def _of_the_cluster(what: str, code: int) -> str | None:
    """What two errors mean of this thing in the whole cluster."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"The cluster has no such {'topic' if what.startswith('topic ') else 'topic or partition'}."
    if code == ErrorCode.RESOURCE_NOT_FOUND and what.startswith("user "):
        return "The user does not exist."
    return None


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
    done = [document for document, failure in parts if failure is None]
    rows = [tuple(document.values())[: len(columns)] for document in done]
    show(output, [document for document, _ in parts], columns, rows, [each for _, each in parts if each is not None])


def show(
    output: Output,
    document: Mapping[str, Any] | Sequence[Any],
    columns: Sequence[str],
    rows: Iterable[Row],
    failures: Sequence[CommandFailed],
) -> None:
    """Print a result and fail for what failed; no table stands before errors that leave nothing to show."""
    shown = list(rows)
    if output.as_json or shown or not failures:
        output.result(document, columns, shown)
    fail_for(failures, output)
