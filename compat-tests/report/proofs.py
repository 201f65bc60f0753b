"""That the suite can fail, and what holds under kills: mutants, histories, and the clients' own suites.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from histories.anomalies import ANOMALIES, PHENOMENA

from report.blocks import (
    Block,
    Cell,
    Heading,
    Kind,
    Paragraph,
    Prose,
    Quote,
    Section,
    Table,
    Tile,
    number,
    plain,
    verdict,
)

CAUGHT = "caught"
OUTCOMES = ("passed", "failed", "skipped")
# The histories' statistics that are faults.
FAULTS = ("clients killed or sent away", "kills of the broker", "pauses of the broker")


def mutants(found: Sequence[dict[str, Any]]) -> Section:
    """pybroker with one behaviour broken at a time: a list of {name, trap, outcome, caught_by, seconds, attempts}."""
    caught = sum(mutant["outcome"] == CAUGHT for mutant in found)
    tile = Tile("mutants caught", f"{caught} of {len(found)}", verdict(len(found), len(found) - caught))
    rows = tuple(
        (
            Cell(mutant["name"]),
            Cell(mutant["trap"]),
            caught_by(mutant),
            number(mutant["seconds"], 1),
        )
        for mutant in found
    )
    text = Paragraph(
        "One behaviour of pybroker is broken at a time, and the tests that its trap names are run: one must fail."
    )
    return Section("mutants", "Mutants", tile, (text, Table(("mutant", "trap", "caught by", "seconds"), rows)))


def caught_by(mutant: dict[str, Any]) -> Cell:
    """The tests that failed, by their names; and what came of attempts before the one that counts."""
    before = ", ".join(attempt["outcome"] for attempt in mutant["attempts"][:-1])
    told = f" (at first: {before})" if before else ""
    if mutant["outcome"] != CAUGHT:
        return Cell(mutant["outcome"] + told, Kind.BAD)
    return Cell(", ".join(dict.fromkeys(test.rpartition("::")[2] for test in mutant["caught_by"])) + told)


def histories(found: dict[str, Any]) -> Section:
    """What the checker made of a history: {anomalies, phenomena, examples, statistics …}."""
    anomalies: dict[str, int] = found["anomalies"]
    count = sum(anomalies.values())
    tile = Tile("anomalies in histories", f"{count:,}", verdict(found["statistics"]["operations"], count))
    text = (
        f"Producers, consumers and transactions run side by side, {faults(found['statistics'])}; every "
        "operation is recorded with its outcome, and the record is searched for what cannot be."
    )
    blocks: list[Block] = [
        Paragraph(text),
        Paragraph(f"{found['seconds']:,.0f} s, seed {found['seed']}."),
        Table(
            ("anomaly", "what it means", "number"),
            tuple((Cell(kind), Cell(ANOMALIES.get(kind, "")), _unwanted(times)) for kind, times in anomalies.items()),
        ),
    ]
    for kind, examples in found["examples"].items():
        if kind in anomalies:
            blocks.append(Quote(f"{kind}: examples", "\n".join(examples)))
    phenomena = found["phenomena"].items()
    if phenomena:
        rows = tuple((*plain(kind, PHENOMENA.get(kind, "")), number(times)) for kind, times in phenomena)
        blocks += [Heading("Not faults, but counted"), Table(("phenomenon", "what it means", "number"), rows)]
    statistics = tuple((Cell(name), number(count)) for name, count in found["statistics"].items())
    blocks += [Heading("What was looked at"), Table(("what", "number"), statistics)]
    return Section("histories", "Histories", tile, tuple(blocks))


def faults(statistics: Mapping[str, int]) -> str:
    """What befell them, as it was counted."""
    befell = [f"{name} ({statistics[name]:,})" for name in FAULTS if statistics.get(name)]
    return f"through {', '.join(befell)}" if befell else "with nobody killed"


def _unwanted(times: int) -> Cell:
    return Cell(f"{times:,}", Kind.BAD if times else Kind.GOOD)


def suites(found: Sequence[dict[str, Any]], findings: str) -> Section:
    """Clients' own tests: a list of {name, version, outcomes, broken, unlisted}; and the findings beside them."""
    broken = sum(len(suite["broken"]) for suite in found)
    count = Counter(outcome for suite in found for outcome in suite["outcomes"].values())
    ran = count["passed"] + count["failed"]
    tile = Tile("of clients' own tests passed", f"{count['passed']:,} of {ran:,}", verdict(ran, broken))
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
    if missing := suite.get("missing"):
        told = Cell(f"not run: {missing}", Kind.SKIPPED)
    else:
        told = Cell(broken or "none", verdict(count["passed"] + count["failed"], len(suite["broken"])))
    return (*plain(suite["name"], suite["version"]), *(number(count[outcome]) for outcome in OUTCOMES), told)
