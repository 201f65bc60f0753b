"""What a page is made of, whether it becomes HTML or Markdown: sections of tables, texts and figures.  Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a cell or tile says, for its colour; the text says it, too."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    MEANT = "meant"
    SKIPPED = "skipped"
    ABSENT = "absent"
    NUMBER = "number"


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    kind: Kind = Kind.PLAIN


Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a row of one cell is the heading of those below it.  A ``matrix`` has many narrow columns."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    matrix: bool = False
    block: str = field(default="table", init=False)

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold figures."""
        return tuple(
            not self.matrix and any(len(row) > at and row[at].kind is Kind.NUMBER for row in self.rows)
            for at in range(len(self.columns))
        )


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text."""

    text: str
    block: str = field(default="paragraph", init=False)


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part of a section."""

    text: str
    block: str = field(default="heading", init=False)


@dataclass(frozen=True, slots=True)
class Quote:
    """Output of a program, as it came, under a title."""

    title: str
    text: str
    block: str = field(default="quote", init=False)


@dataclass(frozen=True, slots=True)
class Prose:
    """A document in Markdown."""

    markdown: str
    block: str = field(default="prose", init=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot: a file name without ending, what it shows, the same in words, and the SVG.

    Colours in ``svg`` are those of a white page; ``page_svg`` takes them from the page, light or dark.
    """

    name: str
    title: str
    words: str
    svg: str
    page_svg: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Plots, side by side where there is room."""

    figures: tuple[Figure, ...]
    block: str = field(default="figures", init=False)


Block = Table | Paragraph | Heading | Quote | Prose | Figures


@dataclass(frozen=True, slots=True)
class Tile:
    """A section in one figure, at the top of the page."""

    label: str
    value: str
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page."""

    anchor: str
    title: str
    tile: Tile
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole: a title, what was asked, and the sections."""

    title: str
    subject: str
    sections: tuple[Section, ...]


def verdict(ran: int, failed: int) -> Kind:
    """Nothing of nothing is not good."""
    if failed:
        return Kind.BAD
    return Kind.GOOD if ran else Kind.SKIPPED


def plain(*texts: object) -> Row:
    """A row of plain cells."""
    return tuple(Cell(str(text)) for text in texts)


def number(value: float | None, digits: int = 0) -> Cell:
    """A figure, aligned with those above it."""
    return Cell("–" if value is None else f"{value:,.{digits}f}", Kind.NUMBER)
