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
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from unicodedata import category

from pybroker.cli.terminal.failure import OutputClosed
from pybroker.cli.terminal.standard_streams import silence_stdout

if TYPE_CHECKING:
    from rich.progress import Progress

Row = Sequence[object]

# Control characters, formats (bidirectional overrides are such) and separators of lines.
_UNSEEN: Final = ("Cc", "Cf", "Zl", "Zp")

# Wider than any table: the width that rich gets, to find out how wide one would like to be.
WIDTH_UNBOUND = 10_000
# Columns of sentences, which may be broken between words where they are the last of a table.
SENTENCES: Final = frozenset({"SUMMARY", "MEANING", "WHAT", "PROBLEM", "REASON", "LOST"})
# One in fewer columns is a tower of words.
SENTENCE_WIDTH_MIN: Final = 30


def plain_cell(value: object) -> str:
    """A table cell as text; nothing known is a dash, as in Kafka's own tools."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(visible(str(item)) for item in value) or "-"
    return visible(str(value))


def visible(text: str) -> str:
    """The text with what is not seen of it written out, so that no name makes rows, or commands to a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if category(char) in _UNSEEN else char for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def show_time(epoch_ms: int) -> str | None:
    """A moment for people, in UTC; ``None`` for what stands for none (-1)."""
    if epoch_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23] + "Z"
    except (OverflowError, ValueError, OSError):
        # A producer may claim any timestamp.
        return str(epoch_ms)


def show_duration(duration_ms: int | None) -> str | None:
    """A duration for people, in its two largest units."""
    if duration_ms is None:
        return None
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    seconds = duration_ms // 1000
    for unit, unit_s, smaller, smaller_s in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= unit_s:
            rest = seconds % unit_s // smaller_s
            return f"{seconds // unit_s}{unit}{rest}{smaller}" if rest else f"{seconds // unit_s}{unit}"
    return f"{seconds}s"


def show_size(size: int | None) -> str | None:
    """A number of bytes for people, in units of a thousand."""
    if size is None or size < 1000:
        return None if size is None else f"{size} B"
    amount, units = size / 1000, iter(("kB", "MB", "GB", "TB", "PB", "EB"))
    unit = next(units)
    while amount >= 999.95 and (larger := next(units, None)) is not None:
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """A number of things: ``1 record``, ``12,345 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def is_numeric(cells: Iterable[object]) -> bool:
    """Whether a column is one of numbers, as far as its cells are known."""
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int) and not isinstance(cell, bool) for cell in known)


def can_be_broken(column: str, cells: Sequence[str], room: int) -> bool:
    """Whether a column may be broken between words to have this width: one of sentences, and wide enough for them."""
    words = [word for cell in cells for word in cell.split(" ")]
    return column in SENTENCES and room >= SENTENCE_WIDTH_MIN and max(map(len, words)) <= room


class Output:
    """One command's stdout."""

    def __init__(self, *, as_json: bool = False, stream: BinaryIO | None = None) -> None:
        """``stream`` is the binary stdout unless a test hands in another."""
        self.as_json = as_json
        self._is_stdout = stream is None
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

    def text(self, text: str) -> None:
        """Lines of a result; on a terminal, what is not seen of them is written out."""
        shown = "\n".join(map(visible, text.split("\n"))) if self.is_terminal else text
        self.write(shown.encode(errors="backslashreplace"))

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

    def abandon(self) -> None:
        """Forget what was not handed over, for a command that goes on without: no later flush of stdout fails."""
        if self._is_stdout:
            silence_stdout()

    def json(self, document: Any) -> None:
        """One JSON document, indented on a terminal and on one line in a pipe."""
        self.line(json.dumps(document, indent=2 if self.is_terminal else None, ensure_ascii=False))

    def sentence(self, text: str, indent: int) -> None:
        """A line of text; on a terminal it is broken between words, and goes on behind an indent."""
        if self.is_terminal:
            from textwrap import fill

            width = get_terminal_size().columns
            text = fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
        self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Row], none: str = "(none)") -> None:
        """Rows under a heading, or ``none``: on a terminal a rich table, row by row if it is too narrow; else
        tab-separated.
        """
        if self.is_terminal:
            self._rich_table(columns, rows, none)
        else:
            self.rows([columns, *rows])

    def rows(self, rows: Iterable[Row]) -> None:
        """Tab-separated lines."""
        for row in rows:
            self.line("\t".join(plain_cell(cell) for cell in row))

    def _rich_table(self, columns: Sequence[str], rows: Iterable[Row], none: str) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        rows = [list(row) for row in rows]
        if not rows:
            self.line(none)
            return
        cells = [[plain_cell(cell) for cell in row] for row in rows]
        # A name may be a record's: it is no markup of rich's, and no command to the terminal.
        columns = [visible(column) for column in columns]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for position, column in enumerate(columns):
            numeric = is_numeric([row[position] for row in rows])
            table.add_column(Text(column), justify="right" if numeric else "left", no_wrap=position < len(columns) - 1)
        for texts in cells:
            table.add_row(*map(Text, texts))
        console = Console(file=sys.stdout, force_terminal=True)
        wide = console.measure(table, options=console.options.update(width=WIDTH_UNBOUND)).maximum
        last = [row[-1] for row in cells]
        room = console.width - wide + max(map(len, [columns[-1], *last]))
        with console.capture() as capture:
            if wide <= console.width or can_be_broken(columns[-1], last, room):
                console.print(table)
            else:
                # Cut cells would hide names and offsets that the next command needs, and folded ones would be copied in
                # parts: what is longer than a line the terminal itself breaks.
                widest = max(map(len, columns))
                for row in rows:
                    for column, cell in zip(columns, row, strict=True):
                        line = Text.assemble((column.ljust(widest), "bold"), "  ", plain_cell(cell))
                        console.print(line, soft_wrap=True)
                    console.print()
        self.write(capture.get().encode())

    def result(self, document: Mapping[str, Any] | Sequence[Any], columns: Sequence[str], rows: Iterable[Row]) -> None:
        """``document`` as JSON when ``--json`` was given, the rows as a table otherwise."""
        if self.as_json:
            self.json(document)
        else:
            self.table(columns, rows)


def remark(text: str) -> None:
    """Say something to a person that is not part of the result; what is not seen of it is written out."""
    print("\n".join(map(visible, text.split("\n"))), file=sys.stderr)


@contextmanager
def progress(
    description: str, total: int | None, *, prints: bool = True, is_typed: bool = False
) -> Iterator[Progress | None]:
    """A progress bar with one task (id 0) on stderr, or ``None`` where it would not be seen.

    That is so where stderr is no terminal, where results (``prints``) scroll over the same terminal, and where it would
    be drawn over input that ``is_typed`` there.  Its spinner turns as long as the command runs, also while nothing
    comes.  Without a total it is a number and the description.
    """
    if not sys.stderr.isatty() or (prints and sys.stdout.isatty()) or is_typed:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: tuple[ProgressColumn, ...] = (TextColumn("{task.completed:,.0f} {task.description}"),)
    if total is not None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(SpinnerColumn(), *columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(description, total=total)
        yield bar
