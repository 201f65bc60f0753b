"""What was asked, by whom and on what: the broker, the clients, the machine, and the parts of the run.  Pure."""

from __future__ import annotations

from typing import Any

from report.blocks import Block, Cell, Heading, Kind, Paragraph, Quote, Row, Section, Table, Tile, number, plain
from report.parts import PARTS, RAN, SCENARIOS, Run

ANCHOR, TITLE = "run", "The run"
MAKES = {"pybroker": "pybroker", "apache": "Apache Kafka", "other": "a broker of unknown make"}


def section(run: Run) -> Section:
    """The section."""
    ran = sum(part.state == RAN for part in run.parts.values())
    tile = Tile("parts ran", f"{ran} of {len(run.parts)}")
    blocks: list[Block] = [
        Paragraph(f"{run.command}, {run.started} to {run.finished}."),
        parts_table(run),
    ]
    if scenarios := run.parts[SCENARIOS].found:
        blocks += [Heading("Versions"), versions(scenarios), Heading("Clients"), clients(scenarios)]
    for name, part in run.parts.items():
        if part.output:
            blocks.append(Quote(f"The end of what scripts/{PARTS[name].script} printed", part.output))
    return Section(ANCHOR, TITLE, tile, tuple(blocks))


def parts_table(run: Run) -> Table:
    """Every part, whether it ran or why it did not."""
    rows: list[Row] = []
    for name, part in run.parts.items():
        if part.state != RAN:
            state = Cell(f"not run: {part.reason}", Kind.SKIPPED)
        elif part.exit_code:
            state = Cell("ran, with findings", Kind.BAD)
        else:
            state = Cell("ran", Kind.GOOD)
        seconds = number(part.seconds) if part.exit_code is not None else Cell("", Kind.ABSENT)
        rows.append((Cell(name), Cell(PARTS[name].what), state, seconds))
    return Table(("part", "what", "state", "seconds"), tuple(rows))


def broker_name(broker: dict[str, Any]) -> str:
    """Make and version."""
    return " ".join(filter(None, (MAKES[broker["make"]], broker["version"])))


def versions(found: dict[str, Any]) -> Table:
    """The broker under test and what it runs on, as far as it tells."""
    broker = found["broker"]
    features = ", ".join(f"{name} {level}" for name, level in sorted(broker["features"].items()))
    facts = {
        "broker": broker_name(broker),
        "brokers in the cluster": broker["brokers"],
        "features": features,
        "APIs served": len(broker["keys"]),
        "commit of the checkout": found["commit"],
        "Python": found["python"],
        "machine": found["machine"],
    }
    return Table(
        ("what", "version"), tuple(plain(name, fact) for name, fact in facts.items() if fact not in (None, ""))
    )


def clients(found: dict[str, Any]) -> Table:
    """The clients that were asked for, and the applications."""
    rows = tuple(
        (
            *plain(client["name"], client["version"], client["language"]),
            Cell(client["missing"], Kind.SKIPPED) if client["missing"] else Cell("ran", Kind.GOOD),
        )
        for client in (*found["clients"], *found["applications"])
    )
    return Table(("client", "version", "language", "state"), rows)
