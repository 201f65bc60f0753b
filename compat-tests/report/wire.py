"""Keys × versions: what the broker serves, and how its replies agree with Apache Kafka's, field by field.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pybroker_protocol.api_keys import NAMES
from report.blocks import Block, Cell, Heading, Kind, Paragraph, Prose, Row, Section, Table, Tile, number, verdict

ANCHOR, TITLE = "wire", "Keys × versions"
AGREES, MEANT, UNMEANT = "agreed", "meant", "unmeant"
COUNTS = ("ordinary", "boundary", "invalid", AGREES, MEANT, UNMEANT)
CELLS = {AGREES: Cell("✓", Kind.GOOD), MEANT: Cell("≈", Kind.MEANT), "": Cell("?", Kind.MEANT)}
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
    count = Counter(map(agreement_of, compared))
    agreeing, meant, otherwise = count[AGREES], count[MEANT], count[UNMEANT]
    label = f"keys × versions agree in every field; {meant:,} differ only as meant, {otherwise:,} otherwise"
    tile = Tile(label, f"{agreeing:,} of {len(compared):,}", verdict(agreeing + meant, otherwise))
    sent = sum(row[kind] for row in compared for kind in ("ordinary", "boundary", "invalid"))
    summary = (
        f"{sent:,} requests were sent to Apache Kafka and to pybroker and the replies compared: "
        f"{sum(row['meant'] for row in compared):,} differ as meant, {sum(row['unmeant'] for row in compared):,} "
        f"otherwise. Of {len(compared):,} versions of keys {agreeing:,} agree in every field, {meant:,} differ only as "
        f"meant, {otherwise:,} otherwise."
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
    return CELLS[agreement_of(row)]


def agreement_of(row: Mapping[str, Any]) -> str:
    """The count that tells of one key and version; no reply, no agreement."""
    return next((count for count in (UNMEANT, MEANT, AGREES) if row[count]), "")


def sums(compared: Sequence[dict[str, Any]]) -> Table:
    """How much was sent of each key, of which kind, and how the replies fell out."""
    rows: list[Row] = []
    for key in sorted({row["key"] for row in compared}):
        of_key = [row for row in compared if row["key"] == key]
        rows.append(
            (Cell(f"{key} {of_key[0]['name']}"), *(number(sum(row[count] for row in of_key)) for count in COUNTS))
        )
    return Table(("key", *COUNTS), tuple(rows))
