"""What ended a query, in the one line that matters of all that Spark says.

Spark's text has the traceback of the task or the JVM, with the reason as the last line that is not indented. Then come
parts with a heading: the expression that failed, with carets below it, and the query's plan, which may be long.
"""

import re

from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.topics.source_options import LOSS_ADVICE

_HEADING = re.compile("^={2,3} ", re.MULTILINE)
# What a plan of ours raises says all there is to say.
_RAISED = re.compile(r".*\[USER_RAISED_EXCEPTION\] (?P<said>.*?)( SQLSTATE: \w+)?")


def what_ended(query: StreamingQuery) -> str | None:
    """The line that says what ended ``query``; None where it runs, was stopped, or has done all that it was to do."""
    error = query.exception()
    return None if error is None else reason_in(str(error))


def failure_of(query: StreamingQuery) -> str | None:
    """Why a query that was to go on has ended by itself; None while it runs.

    Connectors and standing queries ask, whose declarations have no option of Spark's source to be advised of.
    """
    if query.isActive:
        return None
    return (what_ended(query) or "the query ended without an error").replace(LOSS_ADVICE, "")


def reason_in(said: str) -> str:
    """The line of an error's text that says what was wrong."""
    lines = [line for line in _HEADING.split(said, maxsplit=1)[0].splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if not line[0].isspace()), said.strip())
    raised = _RAISED.fullmatch(reason)
    return reason if raised is None else raised["said"]
