"""The tour's report: one page of HTML with what each chapter said, its tables and its picture, and no file beside it.

Owns the page's look, light and dark as its reader's machine is.  Owns no table: those of the terminal are shown.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.table import Column, Table

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --back: #ffffff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --back: #0d1117; --line: #30363d; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 75rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1.5rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: bottom; }
td { vertical-align: top; }
.right { text-align: right; }
.wide { overflow-x: auto; }
img { max-width: 100%; height: auto; }
"""


class Chapter(NamedTuple):
    """What people are shown of a chapter: lines, and the terminal's tables."""

    title: str
    told: Sequence[str]
    tables: Sequence[Table] = ()


class Picture(NamedTuple):
    """PNG files of one picture, for light and dark screens, and what it shows."""

    light: Path
    dark: Path
    described: str


def write_report(path: Path, title: str, chapters: Sequence[Chapter], picture: Picture) -> None:
    """Write the page; ``path`` is replaced."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _picture(picture),
        *map(_chapter, chapters),
        "</body></html>\n",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _chapter(chapter: Chapter) -> str:
    lines = "\n".join(f"<p>{escape(line)}</p>" for line in chapter.told)
    return "\n".join((f"<h2>{escape(chapter.title)}</h2>", lines, *map(_table, chapter.tables)))


def _picture(picture: Picture) -> str:
    light, dark = (b64encode(path.read_bytes()).decode() for path in (picture.light, picture.dark))
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img src="data:image/png;base64,{light}" alt="{escape(picture.described)}"></picture>'
    )


def _table(table: Table) -> str:
    """A table of the terminal's: its title, its heads, its rows, and its last row where it has one."""
    head = "".join(_cell("th", column, column.header) for column in table.columns)
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    if table.show_footer:
        rows.append(tuple(column.footer for column in table.columns))
    body = "\n".join(
        "<tr>" + "".join(_cell("td", column, cell) for column, cell in zip(table.columns, row, strict=True)) + "</tr>"
        for row in rows
    )
    caption = f"<caption>{escape(str(table.title))}</caption>" if table.title else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _cell(tag: str, column: Column, text: object) -> str:
    side = ' class="right"' if column.justify == "right" else ""
    return f"<{tag}{side}>{escape(str(text)).replace(chr(10), '<br>')}</{tag}>"
