"""Keys × versions: what the broker serves, and how its replies agree with Apache Kafka's, field by field.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pybroker_protocol.api_keys import NAMES
from report.blocks import Block, Cell, Heading, Kind, Paragraph, Prose, Row, Section, Table, Tile, number

ANCHOR, TITLE = "wire", "Keys × versions"
COUNTS = ("ordinary", "boundary", "invalid", "agreed", "meant", "unmeant")
# Where the comparator's own page tells why replies may differ.
REASONS = "## Differences that are meant\n"
LEGEND = (
    "✓ every reply agreed with Apache Kafka's, ≈ some differ and are meant to, ✗ some differ and are not meant to, "
    "? served and not compared."
)

Served = Sequence[Mapping[str, int]]


def section(compared: list[dict[str, Any]] | None, document: str, served: Served, why_not: str) -> Section:
    """The section, from what the comparator wrote and what ApiVersions told; either may be missing."""
    if compared is None:
        tile = Tile("keys × versions", "not run", Kind.SKIPPED)
        if not served:
            return Section(ANCHOR, TITLE, tile, (Paragraph(f"The comparator was {why_not}."),))
        text = Paragraph(f"The comparator was {why_not}. What the broker serves, none of it compared:")
        return Section(ANCHOR, TITLE, tile, (text, matrix([], served)))
    unmeant = sum(row["unmeant"] for row in compared)
    agreeing = sum(not row["unmeant"] for row in compared)
    tile = Tile("keys × versions agree", f"{agreeing:,} of {len(compared):,}", Kind.BAD if unmeant else Kind.GOOD)
    sent = sum(row[kind] for row in compared for kind in ("ordinary", "boundary", "invalid"))
    summary = (
        f"{sent:,} requests were sent to Apache Kafka and to pybroker and the replies compared: "
        f"{sum(row['meant'] for row in compared):,} differ as meant, {unmeant:,} otherwise."
    )
    blocks: list[Block] = [Paragraph(summary), matrix(compared, served), Paragraph(LEGEND)]
    blocks += [Heading("Requests and replies"), sums(compared)]
    if reasons := document.partition(REASONS)[2]:
        blocks += [Heading(REASONS.strip("# \n")), Prose(reasons.partition("\n## ")[0])]
    return Section(ANCHOR, TITLE, tile, tuple(blocks))


def matrix(compared: Iterable[dict[str, Any]], served: Served) -> Table:
    """A row per key, a column per version."""
    cells = {
        (api["key"], version): Cell("?", Kind.MEANT) for api in served for version in range(api["min"], api["max"] + 1)
    }
    for row in compared:
        cells[row["key"], row["version"]] = agreement(row)
    highest = max((version for _, version in cells), default=-1)
    rows = [
        (
            Cell(f"{key} {NAMES.get(key, '')}".strip()),
            *(cells.get((key, at), Cell("", Kind.ABSENT)) for at in range(highest + 1)),
        )
        for key in sorted({key for key, _ in cells})
    ]
    return Table(("key", *map(str, range(highest + 1))), tuple(rows), matrix=True)


def agreement(row: Mapping[str, Any]) -> Cell:
    """One key and version."""
    if row["unmeant"]:
        return Cell(f"✗ {row['unmeant']}", Kind.BAD)
    return Cell("≈", Kind.MEANT) if row["meant"] else Cell("✓", Kind.GOOD)


def sums(compared: Sequence[dict[str, Any]]) -> Table:
    """How much was sent of each key, of which kind, and how the replies fell out."""
    rows: list[Row] = []
    for key in sorted({row["key"] for row in compared}):
        of_key = [row for row in compared if row["key"] == key]
        rows.append(
            (Cell(f"{key} {of_key[0]['name']}"), *(number(sum(row[count] for row in of_key)) for count in COUNTS))
        )
    return Table(("key", *COUNTS), tuple(rows))
