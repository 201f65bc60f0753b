"""Where a command's results go: a table for people, tab-separated lines for pipes, JSON when asked.

Owns: stdout.  Every byte of a result passes ``Output``, so that a closed pipe has one meaning everywhere
(``OutputClosed``) and colour and box drawing appear on a terminal only.  Progress and remarks go to stderr.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from pybroker.cli.failure import OutputClosed

if TYPE_CHECKING:
    from rich.progress import Progress

Row = Sequence[object]


def plain_cell(value: object) -> str:
    """A table cell as text; nothing known is a dash, as in Kafka's own tools."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


class Output:
    """One command's stdout."""

    def __init__(self, *, as_json: bool = False, stream: BinaryIO | None = None) -> None:
        """``stream`` is the binary stdout unless a test hands in another."""
        self.as_json = as_json
        self._stream = stream if stream is not None else sys.stdout.buffer
        self.is_terminal = self._stream.isatty()
        self._poll: select.poll | None = None
        if stream is None and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            self._poll = select.poll()
            # No events asked for: an error on the pipe is always reported.
            self._poll.register(sys.stdout.fileno(), 0)

    def write(self, data: bytes) -> None:
        """Write a result's bytes; raises ``OutputClosed`` when the reader is gone."""
        try:
            self._stream.write(data)
        except BrokenPipeError as error:
            raise OutputClosed from error

    def line(self, text: str) -> None:
        """Write one line of text."""
        self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def flush(self) -> None:
        """Hand everything over to the reader; notices that a pipe's reader is gone even with nothing to write."""
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error
        if self._poll is not None and any(event & select.POLLERR for _, event in self._poll.poll(0)):
            raise OutputClosed

    def json(self, document: Any) -> None:
        """One JSON document, indented on a terminal and on one line in a pipe."""
        self.line(json.dumps(document, indent=2 if self.is_terminal else None, ensure_ascii=False))

    def table(self, columns: Sequence[str], rows: Iterable[Row], *, title: str | None = None) -> None:
        """Rows under a heading: a rich table on a terminal, tab-separated lines elsewhere."""
        if not self.is_terminal:
            self.line("\t".join(columns))
            for row in rows:
                self.line("\t".join(plain_cell(cell) for cell in row))
            return
        self._rich_table(columns, rows, title)

    def _rich_table(self, columns: Sequence[str], rows: Iterable[Row], title: str | None) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column)
        for row in rows:
            numeric = [isinstance(cell, int) and not isinstance(cell, bool) for cell in row]
            table.add_row(
                *(
                    Text(plain_cell(cell), justify="right" if is_number else "left")
                    for cell, is_number in zip(row, numeric, strict=True)
                )
            )
        console = Console(file=sys.stdout, force_terminal=True)
        with console.capture() as capture:
            console.print(table)
        self.write(capture.get().encode())

    def result(self, document: Mapping[str, Any] | Sequence[Any], columns: Sequence[str], rows: Iterable[Row]) -> None:
        """``document`` as JSON when ``--json`` was given, the rows as a table otherwise."""
        if self.as_json:
            self.json(document)
        else:
            self.table(columns, rows)


def remark(text: str) -> None:
    """Say something to a person that is not part of the result."""
    print(text, file=sys.stderr)


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Progress | None]:
    """A progress bar with one task (id 0) on stderr, or ``None`` where nobody looks at one.

    Nobody does when stderr is no terminal, and when the results themselves scroll over the same terminal.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(description, total=total)
        yield bar


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot raise after the reader has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
