"""The prompt: history, completion, several lines, and Ctrl-C that ends a query and not the session.

Owns the terminal while a statement is typed; it is prompt_toolkit's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.interrupts import Interrupts
from pybroker.sql.parsing.statements import is_complete
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS
from pybroker.sql.session import End, Session
from pybroker.sql.sql_errors import Interrupted

PROMPT: Final = "sql> "
_CONTINUED: Final = "  -> "
_HISTORY: Final = "pybroker/sql_history"
KEYWORDS: Final = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "DISTINCT", "WITH", "UNION ALL", "AS"),
    *("JOIN", "LEFT JOIN", "ON", "USING", "AND", "OR", "NOT", "NULL", "IN", "BETWEEN", "LIKE", "ASC", "DESC"),
    *("CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "COUNT", "SUM", "AVG", "MIN", "MAX", "EMIT CHANGES"),
    *("EXPLAIN", "SHOW TOPICS", "SHOW STREAMS", "SHOW TABLES", "DESCRIBE", "CREATE STREAM", "CREATE TABLE"),
    *("SHOW QUERIES", "PAUSE", "RESUME", "TERMINATE", "WINDOW TUMBLING", "WITHIN", "PARTITION BY", "EMIT FINAL"),
    *("DROP STREAM", "DROP TABLE", "INSERT INTO", "VALUES", "SET", "HELP", "EXIT"),
)
_RESERVED: Final = frozenset(word for words in KEYWORDS for word in words.split())
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
# What may be the begin of a name: as far as a name of a topic goes, and behind the last of what parts words.
_TYPED: Final = (re.compile(r'"?[\w.-]+$'), re.compile(r'"?\w+$'))


class Names(Completer):
    """Topics, declared names, known columns and keywords, in any case."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        # A topic's name may have what parts words, too.
        typed = [found[0] for pattern in _TYPED if (found := pattern.search(document.text_before_cursor)) is not None]
        for name, text in self._candidates() if typed else ():
            for part in typed:
                word = part.strip('"').lower()
                if word and name.lower().startswith(word) and name.lower() != word:
                    yield Completion(text, start_position=-len(part))
                    break

    def _candidates(self) -> Iterator[tuple[str, str]]:
        """Each with the text that stands for it."""
        seen: set[str] = set()
        # Without a cluster that answers there are fewer names, and no error: a statement tells it.
        topics: list[str] = []
        with suppress(Exception):
            topics = self._session.names()
        for name in [*topics, *sorted(self._session.catalog.known_columns()), *PSEUDO_COLUMNS]:
            if name not in seen:
                seen.add(name)
                yield name, name if _needs_no_quotes(name) else quoted(name)
        yield from ((word, word) for word in KEYWORDS if word not in seen)


def _needs_no_quotes(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name.upper() not in _RESERVED


def history_file() -> Path:
    """Where the history is kept, by the XDG directories."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / _HISTORY


def _history() -> History:
    """In a file that others cannot read; in memory where there is no place for one."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def converse(session: Session, remark: Callable[[str], None], described: Callable[[Exception], str | None]) -> None:
    """Ask for statements and run them until EXIT or the end of the input.

    ``described`` gives the sentence for an error that ends a statement, and None for one that ends the program.
    """
    unfinished = Condition(lambda: not is_complete(prompts.default_buffer.text))
    prompts: PromptSession[str] = PromptSession(
        PROMPT,
        history=_history(),
        completer=Names(session),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=unfinished,
        prompt_continuation=_CONTINUED,
    )
    interrupts = Interrupts()
    while True:
        try:
            text = prompts.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            with interrupts.heeded():
                session.run(text, interrupts)
        except End:
            return
        except (Interrupted, KeyboardInterrupt):
            remark("the query was ended")
        except Exception as error:
            if (told := described(error)) is None:
                raise
            remark(told)
