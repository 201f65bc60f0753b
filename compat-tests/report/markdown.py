"""The page as Markdown, for a terminal, a review or a repository's own viewer; plots are files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from report.blocks import Block, Figures, Heading, Page, Paragraph, Prose, Quote, Row, Section, Table

# What Markdown would take for markup.
SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
HEADING = re.compile(r"^(#+ )", re.MULTILINE)


def render(page: Page, plots: str = "plots") -> str:
    """The whole page; ``plots`` is the directory of the plots, from where the page lies."""
    lines = [f"# {page.title}", "", page.subject, "", *overview(page)]
    for section in page.sections:
        lines += ["", f"## {section.title}", ""]
        for block in section.blocks:
            lines += [*block_lines(block, plots), ""]
    return "\n".join(lines).rstrip() + "\n"


def overview(page: Page) -> Iterator[str]:
    """The sections in one figure each."""
    for section in page.sections:
        yield f"- {section.tile.label}: **{escaped(section.tile.value)}**"


def block_lines(block: Block, plots: str) -> list[str]:
    """One block."""
    match block:
        case Table():
            return list(table(block))
        case Paragraph(text):
            return [escaped(text)]
        case Heading(text):
            return [f"### {escaped(text)}"]
        case Quote(title, text):
            return [f"**{escaped(title)}**", "", *(f"    {line}".rstrip() for line in text.splitlines())]
        case Prose(markdown):
            return [HEADING.sub(r"###\1", markdown).strip()]
        case Figures(figures):
            return [f"![{escaped(figure.title)}]({plots}/{figure.name}.svg)" for figure in figures]


def table(block: Table) -> Iterator[str]:
    """A table; a heading among its rows becomes a row of its own in bold."""
    yield line(block.columns)
    yield line(["---:" if right else "---" for right in block.numeric], escape=False)
    for row in block.rows:
        yield line(texts(row, len(block.columns)), escape=False)


def texts(row: Row, columns: int) -> list[str]:
    """A row's cells as Markdown, filled up to the table's width."""
    if len(row) == 1:
        return [f"**{escaped(row[0].text)}**", *[""] * (columns - 1)]
    return [escaped(cell.text) for cell in row]


def line(cells: Sequence[str], *, escape: bool = True) -> str:
    """One row of a table."""
    return f"| {' | '.join(escaped(cell) if escape else cell for cell in cells)} |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def figures_of(section: Section) -> Iterator[Figures]:
    """The plots of a section."""
    yield from (block for block in section.blocks if isinstance(block, Figures))
