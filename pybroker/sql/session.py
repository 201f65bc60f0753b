"""A session: statements one after another, over one catalog, one engine and one cluster.

Owns the table of the statements: a statement is a row of it, with its handler.  Owns no parsing (``statements``), no
prompt and no command line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pybroker.sql.handlers.answers import answer, explain
from pybroker.sql.handlers.declared_statements import create, describe, insert_values, set_option, show
from pybroker.sql.handlers.session_context import Context
from pybroker.sql.handlers.standing_statements import (
    control,
    create_as,
    drop,
    explain_standing,
    insert_select,
    show_queries,
)
from pybroker.sql.parsing.statements import (
    Control,
    Create,
    CreateAs,
    Describe,
    Drop,
    Exit,
    Explain,
    ExplainStanding,
    Help,
    InsertSelect,
    InsertValues,
    Query,
    Set,
    Show,
    ShowQueries,
    statements,
)
from pybroker.sql.sql_errors import TooDeep


class End(Exception):
    """EXIT was said."""


def _help(context: Context, wanted: Help) -> None:
    rows = [(syntax, meaning) for _, _, lines in _STATEMENTS for syntax, meaning in lines]
    context.print(("STATEMENT", "MEANING"), rows)


def _exit(context: Context, wanted: Exit) -> None:
    raise End


# What a statement is, what carries it out, and what HELP says of it.
_STATEMENTS: Final[tuple[tuple[type, Callable[[Context, Any], None], tuple[tuple[str, str], ...]], ...]] = (
    (
        Query,
        answer,
        (
            ("SELECT … FROM topic [EMIT CHANGES]", "answer a question, or print rows as they arrive"),
            ("PRINT topic [FROM BEGINNING] [LIMIT n]", "print records as they arrive"),
        ),
    ),
    (Explain, explain, (("EXPLAIN SELECT …", "what would be fetched"),)),
    (Show, show, (("SHOW TOPICS | STREAMS | TABLES", "what there is"),)),
    (Describe, describe, (("DESCRIBE name", "the columns of a topic, stream or table"),)),
    (
        Create,
        create,
        (("CREATE STREAM | TABLE name (column type, …) WITH (topic='…', format='…')", "declare a schema"),),
    ),
    (InsertValues, insert_values, (("INSERT INTO name (column, …) VALUES (value, …), …", "write records"),)),
    (
        CreateAs,
        create_as,
        (("CREATE STREAM | TABLE name AS SELECT …", "a topic that a query writes, which a supervisor runs on"),),
    ),
    (InsertSelect, insert_select, (("INSERT INTO name SELECT …", "a query that writes into what is there"),)),
    (ShowQueries, show_queries, (("SHOW QUERIES", "the queries that run, and how far behind they are"),)),
    (
        ExplainStanding,
        explain_standing,
        (("EXPLAIN CREATE … AS SELECT …", "what Spark would run"), ("EXPLAIN query", "the statement of a query")),
    ),
    (Control, control, (("PAUSE | RESUME | TERMINATE query | ALL", "have a query rest, go on or end"),)),
    (
        Drop,
        drop,
        (("DROP STREAM | TABLE name [DELETE TOPIC]", "forget a declaration, and end the query that made it"),),
    ),
    (
        Set,
        set_option,
        (
            ("SET misfits = 'skip' | 'stop'", "what records do that do not fit: skip them, or stop"),
            ("SET output = 'table' | 'json' | 'csv'", "how rows are printed"),
            ("SET 'auto.offset.reset' = 'latest' | 'earliest'", "where EMIT CHANGES and new queries begin"),
            ("SET 'schema.registry.url' = 'http://…'", "where schemas are that a declaration does not have"),
        ),
    ),
    (Help, _help, (("HELP", "this list"),)),
    (Exit, _exit, (("EXIT", "leave; so does Ctrl-D"),)),
)
_HANDLERS: Final = {kind: handler for kind, handler, _ in _STATEMENTS}


class Session(Context):
    """Runs statements; not for several threads."""

    def run(self, text: str, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        """All statements of a text; raises ``SqlError`` at the first that fails, ``Interrupted``, and ``End``."""
        self.is_interrupted = is_interrupted
        for statement in statements(text):
            self.begin_statement()
            try:
                _HANDLERS[type(statement)](self, statement)
            except RecursionError as error:
                raise TooDeep from error
