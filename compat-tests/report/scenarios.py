"""Clients × scenarios: what every client came to in every scenario, why it skipped, how it failed.  Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from report.blocks import (
    Block,
    Cell,
    Heading,
    Kind,
    Paragraph,
    Quote,
    Row,
    Section,
    Table,
    Tile,
    number,
    plain,
    verdict,
)

Outcome = dict[str, Any]
PASSED, SKIPPED = "passed", "skipped"
ANCHOR, TITLE = "scenarios", "Clients × scenarios"
LEGEND = (
    "A figure beside ✓ is a number of parameters (codecs, assignors, partitioners …). ✗ failed, of how many; – skipped "
    "for the reason below; an empty cell: the scenario has no form for that client."
)
# More scenarios than this with one reason are counted, not listed.
LISTED_MAX = 4


def section(found: dict[str, Any]) -> Section:
    """The section, from what ``conformance.outcomes`` wrote."""
    outcomes: list[Outcome] = found["outcomes"]
    clients = [client["name"] for client in found["clients"]]
    of_clients = [outcome for outcome in outcomes if outcome["client"] is not None]
    others = [outcome for outcome in outcomes if outcome["client"] is None]
    blocks: list[Block] = [Paragraph(summary(found))]
    if of_clients:
        blocks += [matrix(of_clients, clients), Paragraph(LEGEND)]
    if others:
        blocks += [Heading("Tools, applications and the wire"), list_of_others(others)]
    blocks += quotes(outcomes)
    blocks += reasons(outcomes)
    return Section(ANCHOR, TITLE, tile(outcomes), tuple(blocks))


def tile(outcomes: Sequence[Outcome]) -> Tile:
    """Passed of those that ran."""
    count = Counter(outcome["outcome"] for outcome in outcomes)
    ran = len(outcomes) - count[SKIPPED]
    return Tile("scenarios passed", f"{count[PASSED]:,} of {ran:,}", verdict(ran, ran - count[PASSED]))


def summary(found: dict[str, Any]) -> str:
    """One sentence of totals."""
    count = Counter(outcome["outcome"] for outcome in found["outcomes"])
    failed = len(found["outcomes"]) - count[PASSED] - count[SKIPPED]
    return (
        f"{len(found['clients'])} clients; {len(found['outcomes']):,} tests: {count[PASSED]:,} passed, "
        f"{failed:,} failed, {count[SKIPPED]:,} skipped, in {found['seconds']:,.0f} s."
    )


def words(name: str) -> str:
    """A test's or a module's name as it is read."""
    text = name.removeprefix("test_").removesuffix("_with_clients")
    return text.replace("_", " ")


def matrix(outcomes: Iterable[Outcome], clients: Sequence[str]) -> Table:
    """A row per scenario under its module, a column per client, and what each client came to in all."""
    cells: dict[tuple[str, str], dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        cells[outcome["module"], outcome["scenario"]][outcome["client"]].append(outcome)
    rows: list[Row] = []
    module = None
    for at, scenario in sorted(cells):
        if at != module:
            module = at
            rows.append((Cell(words(at)),))
        row = cells[at, scenario]
        rows.append((Cell(words(scenario)), *(cell_of(row[client]) for client in clients)))
    everything = {client: [one for row in cells.values() for one in row[client]] for client in clients}
    rows.append((Cell("in all"),))
    for label, wanted in (("passed", {PASSED}), ("skipped", {SKIPPED}), ("seconds", None)):
        rows.append((Cell(label), *(_total(everything[client], wanted) for client in clients)))
    return Table(("scenario", *clients), tuple(rows), matrix=True)


def _total(outcomes: Sequence[Outcome], wanted: set[str] | None) -> Cell:
    if wanted is None:
        return number(sum(outcome["seconds"] for outcome in outcomes))
    return number(sum(outcome["outcome"] in wanted for outcome in outcomes))


def cell_of(outcomes: Sequence[Outcome]) -> Cell:
    """One client in one scenario, over all parameters."""
    if not outcomes:
        return Cell("", Kind.ABSENT)
    count = Counter(outcome["outcome"] for outcome in outcomes)
    passed, skipped = count[PASSED], count[SKIPPED]
    if failed := len(outcomes) - passed - skipped:
        return Cell("✗" if len(outcomes) == 1 else f"✗ {failed}/{len(outcomes)}", Kind.BAD)
    if not passed:
        return Cell("–", Kind.SKIPPED)
    ticks = "✓" if passed == 1 else f"✓ {passed}"
    return Cell(ticks if not skipped else f"{ticks} –{skipped}", Kind.GOOD)


def list_of_others(outcomes: Iterable[Outcome]) -> Table:
    """Tests that are not asked of every client."""
    cells: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        cells[outcome["module"], outcome["scenario"]].append(outcome)
    rows: list[Row] = []
    module = None
    for at, scenario in sorted(cells):
        if at != module:
            module = at
            rows.append((Cell(words(at)),))
        found = cells[at, scenario]
        rows.append((Cell(words(scenario)), cell_of(found), number(sum(one["seconds"] for one in found), 1)))
    return Table(("test", "outcome", "seconds"), tuple(rows))


def title_of(outcome: Outcome) -> str:
    """A test in one line."""
    where = f"{outcome['client']}: " if outcome["client"] else ""
    parameter = f" ({outcome['parameter']})" if outcome["parameter"] else ""
    return f"{where}{words(outcome['scenario'])}{parameter}"


def quotes(outcomes: Iterable[Outcome]) -> Iterator[Block]:
    """What the failures said."""
    failures = [outcome for outcome in outcomes if outcome["outcome"] not in (PASSED, SKIPPED)]
    if failures:
        yield Heading("What failed")
    for outcome in failures:
        yield Quote(title_of(outcome), outcome["reason"] or f"The test was {outcome['outcome']}.")


def reasons(outcomes: Iterable[Outcome]) -> Iterator[Block]:
    """Why tests were skipped, by client and reason."""
    skipped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome["outcome"] == SKIPPED:
            skipped[outcome["client"] or "–", outcome["reason"]].append(words(outcome["scenario"]))
    if not skipped:
        return
    yield Heading("What was skipped, and why")
    rows = [plain(client, reason, _listed(scenarios)) for (client, reason), scenarios in sorted(skipped.items())]
    yield Table(("client", "reason", "scenarios"), tuple(rows))


def _listed(scenarios: Sequence[str]) -> str:
    names = list(dict.fromkeys(scenarios))
    return "; ".join(names) if len(names) <= LISTED_MAX else f"{len(names)} scenarios"
