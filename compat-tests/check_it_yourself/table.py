"""What a run has found: per check the figures of both brokers, what is missing and what failed; as a table and as JSON.

Owns: medians and ratios, the verdict, and how they are printed.  The table is Markdown, to be shown and pasted alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from harness.apache_kafka import KAFKA_VERSION

from bench.contestants import KAFKA, PYBROKER
from bench.measurements import ratio_text
from check_it_yourself.check import Better, Figure

COLUMNS = ("tool", "what", f"Apache Kafka {KAFKA_VERSION}", "pybroker", "ratio", "ok")
ABSENT = "–"


@dataclass
class Row:
    """One line: what a tool measured, in ``unit``, in each round of each broker."""

    what: str
    unit: str
    better: Better
    values: dict[str, list[float]] = field(default_factory=dict)

    def shown(self, broker: str) -> str:
        """The median over the rounds."""
        values = self.values.get(broker)
        if not values:
            return ABSENT
        if self.better is Better.PASSED:
            return "passed"
        middle = median(values)
        return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"

    @property
    def ratio(self) -> float | None:
        """pybroker's median divided by Kafka's; ``None`` where there is none."""
        kafka, pybroker = self.values.get(KAFKA), self.values.get(PYBROKER)
        if self.better is Better.PASSED or not kafka or not pybroker or not median(kafka):
            return None
        return median(pybroker) / median(kafka)


@dataclass
class Finding:
    """What came of one check.  ``missing``: why it was skipped; ``failed``: by broker, what went wrong first."""

    name: str
    tool: str
    rows: dict[str, Row] = field(default_factory=dict)
    missing: str | None = None
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, broker: str, figures: Sequence[Figure]) -> None:
        """One round of one broker."""
        for figure in figures:
            row = self.rows.setdefault(figure.what, Row(figure.what, figure.unit, figure.better))
            row.values.setdefault(broker, []).append(figure.value)

    @property
    def ok(self) -> str:
        """Whether pybroker did what the tool asks for."""
        if self.missing is not None:
            return "skipped"
        return "**no**" if PYBROKER in self.failed else "yes"

    def lines(self) -> Iterator[tuple[str, ...]]:
        """The cells of each row; a check without figures has one row."""
        if not self.rows:
            yield (self.tool, ABSENT, *(self._cell(broker, ABSENT) for broker in (KAFKA, PYBROKER)), ABSENT, self.ok)
        for row in self.rows.values():
            what = f"{row.what}, {row.unit}" if row.unit else row.what
            if row.better is Better.LOWER:
                what += " (less is better)"
            ratio = ABSENT if row.ratio is None else ratio_text(row.ratio)
            cells = (self._cell(broker, row.shown(broker)) for broker in (KAFKA, PYBROKER))
            yield (self.tool, what, *cells, ratio, self.ok)

    def _cell(self, broker: str, shown: str) -> str:
        return "failed" if broker in self.failed else shown

    def document(self) -> dict[str, Any]:
        """For ``--json``: every round's figures."""
        rows = [
            {"what": row.what, "unit": row.unit, "better": row.better.value, "values": row.values, "ratio": row.ratio}
            for row in self.rows.values()
        ]
        return {"name": self.name, "tool": self.tool, "rows": rows, "missing": self.missing, "failed": self.failed}


def table(findings: Sequence[Finding]) -> str:
    """All rows, with columns that stand below each other."""
    cells = [COLUMNS, *(line for finding in findings for line in finding.lines())]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    right = {2, 3, 4}

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |".rstrip()

    rule = (f"{'-' * (width - 1)}{':' if column in right else '-'}" for column, width in enumerate(widths))
    return "\n".join([line(cells[0]), f"| {' | '.join(rule)} |", *map(line, cells[1:])])


def remarks(findings: Sequence[Finding], names: Mapping[str, str]) -> list[str]:
    """A sentence for each check that was skipped, or that failed with a broker; ``names`` are the brokers'."""
    said = [f"skipped: {finding.tool}: {finding.missing}" for finding in findings if finding.missing is not None]
    return said + [
        f"failed: {finding.tool} with {names[broker]}: {reason}"
        for finding in findings
        for broker, reason in finding.failed.items()
    ]
