"""The whole page from the document of a run.  Pure, but for the plots' drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from report import proofs, scenarios, versions, wire
from report.blocks import Kind, Page, Paragraph, Section, Tile
from report.parts import BENCH, HISTORIES, MUTANTS, RAN, SCENARIOS, SUITES, WIRE, PartRun, Run

TITLE = "Is this Kafka?"
TITLES = {
    SCENARIOS: scenarios.TITLE,
    MUTANTS: "Mutants",
    HISTORIES: "Histories",
    SUITES: "Clients' own test suites",
    BENCH: "Head to head with Apache Kafka",
}


def head_to_head(part: PartRun) -> Section:
    """Imported when it is drawn: a page without figures needs no plotting library."""
    from report import head_to_head

    return head_to_head.section(part.found)


SECTIONS: Mapping[str, Callable[[PartRun], Section]] = {
    SCENARIOS: lambda part: scenarios.section(part.found),
    MUTANTS: lambda part: proofs.mutants(part.found),
    HISTORIES: lambda part: proofs.histories(part.found),
    SUITES: lambda part: proofs.suites(part.found, part.prose),
    BENCH: head_to_head,
}


def page(run: Run) -> Page:
    """Every part has its section, whether it ran or not."""
    found = run.parts[SCENARIOS].found
    subject = versions.broker_name(found["broker"]) if found and found["broker"] else run.target
    where = f" at {run.target}" if ":" in run.target and subject != run.target else ""
    return Page(TITLE, subject + where, (*(section(name, run) for name in run.parts), versions.section(run)))


def section(name: str, run: Run) -> Section:
    """A part's section."""
    part = run.parts[name]
    if name == WIRE:
        return wire.section(part.found, part.prose, served(run), why_not(part))
    if part.state == RAN:
        return SECTIONS[name](part)
    text = f"{why_not(part).capitalize()}."
    return Section(name, TITLES[name], Tile(TITLES[name], "not run", Kind.SKIPPED), (Paragraph(text),))


def why_not(part: PartRun) -> str:
    """Why a part has no figures."""
    return f"not run: {part.reason}"


def served(run: Run) -> list[dict[str, Any]]:
    """The keys that the broker of the scenarios serves."""
    found = run.parts[SCENARIOS].found
    return list(found["broker"]["keys"]) if found and found["broker"] else []
