"""That the suite can fail, and what holds under kills: mutants, histories, and the clients' own suites.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from report.blocks import Block, Cell, Heading, Kind, Paragraph, Prose, Quote, Section, Table, Tile, number, plain

OUTCOMES = ("passed", "failed", "skipped")


def mutants(found: Sequence[dict[str, Any]]) -> Section:
    """pybroker with one behaviour broken at a time, and what caught it; a list of {name, trap, caught_by, seconds}."""
    caught = sum(bool(mutant["caught_by"]) for mutant in found)
    tile = Tile("mutants caught", f"{caught} of {len(found)}", Kind.GOOD if caught == len(found) else Kind.BAD)
    rows = tuple(
        (
            Cell(mutant["name"]),
            Cell(mutant["trap"]),
            Cell(_listed(mutant["caught_by"]), Kind.PLAIN) if mutant["caught_by"] else Cell("survived", Kind.BAD),
            number(mutant["seconds"], 1),
        )
        for mutant in found
    )
    text = Paragraph(
        "One behaviour of pybroker is broken at a time, and the tests that its trap names are run: one must fail."
    )
    return Section("mutants", "Mutants", tile, (text, Table(("mutant", "trap", "caught by", "seconds"), rows)))


def _listed(value: str | Sequence[str]) -> str:
    names = [value] if isinstance(value, str) else list(value)
    return ", ".join(name.rpartition("::")[2] for name in names)


def histories(found: dict[str, Any]) -> Section:
    """What the checker made of a history: {valid, anomalies, phenomena, examples, statistics}."""
    anomalies: dict[str, int] = found["anomalies"]
    count = sum(anomalies.values())
    tile = Tile("anomalies in histories", f"{count:,}", Kind.BAD if count else Kind.GOOD)
    text = (
        "Producers, consumers and transactions run side by side while members and the broker are killed; every "
        "operation is recorded with its outcome, and the record is searched for what cannot be."
    )
    blocks: list[Block] = [Paragraph(text), counts("anomaly", anomalies, wanted=False)]
    blocks += [
        Quote(f"{kind}: examples", "\n".join(examples))
        for kind, examples in found["examples"].items()
        if kind in anomalies
    ]
    if found["phenomena"]:
        blocks += [Heading("Not faults, but counted"), counts("phenomenon", found["phenomena"])]
    blocks += [Heading("What was looked at"), counts("", found["statistics"])]
    return Section("histories", "Histories", tile, tuple(blocks))


def counts(title: str, found: Mapping[str, int], *, wanted: bool = True) -> Table:
    """Names with how often each was found; what is not wanted stands out."""
    rows = tuple((Cell(name), number(times) if wanted else _unwanted(times)) for name, times in found.items())
    return Table((title, "number"), rows)


def _unwanted(times: int) -> Cell:
    return Cell(f"{times:,}", Kind.BAD if times else Kind.GOOD)


def suites(found: Sequence[dict[str, Any]], findings: str) -> Section:
    """Clients' own tests: a list of {name, version, outcomes, broken, unlisted}; and the findings beside them."""
    broken = sum(len(suite["broken"]) for suite in found)
    count = Counter(outcome for suite in found for outcome in suite["outcomes"].values())
    ran = count["passed"] + count["failed"]
    tile = Tile("of clients' own tests passed", f"{count['passed']:,} of {ran:,}", Kind.BAD if broken else Kind.GOOD)
    rows = tuple(suite_row(suite) for suite in found)
    text = (
        "What is on a suite's allow-list must pass; what else fails is among the findings, with Apache Kafka's outcome."
    )
    blocks: list[Block] = [Paragraph(text), Table(("suite", "version", *OUTCOMES, "must pass and did not"), rows)]
    for suite in found:
        if failed := [test for test, outcome in suite["outcomes"].items() if outcome == "failed"]:
            blocks.append(Quote(f"{suite['name']}: what fails", "\n".join(failed)))
    if findings:
        blocks += [Heading("Findings, as written beside the suites"), Prose(findings)]
    return Section("suites", "Clients' own test suites", tile, tuple(blocks))


def suite_row(suite: dict[str, Any]) -> tuple[Cell, ...]:
    """One suite's totals."""
    count = Counter(suite["outcomes"].values())
    broken = ", ".join(suite["broken"])
    return (
        *plain(suite["name"], suite["version"]),
        *(number(count[outcome]) for outcome in OUTCOMES),
        Cell(broken or "none", Kind.BAD if broken else Kind.GOOD),
    )
