"""The table of keys × versions × agreement: which requests were compared, and how the replies agree.

Owns: the tally of a run, what it leaves uncovered, and the two forms in which it is written: ``AGREEMENT.md`` for
readers, JSON for the report.  A served version is covered by at least one ordinary and one invalid request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from harness.apache_kafka import KAFKA_VERSION
from harness.results import write

from comparator.broker import UNREAD, Step
from comparator.compare import Exchange, Result
from comparator.differences import Meant
from comparator.encoding import Tree
from comparator.wire import CLOSED, SILENT
from pybroker import __version__
from pybroker.apis import APIS

AGREEMENT = Path(__file__).parent / "AGREEMENT.md"
CLUSTER_AGREEMENT = Path(__file__).parent / "CLUSTER_AGREEMENT.md"
PART = "wire"

# Of this no request is answered without an error: a broker that is alone has no other one to forget.
NEVER_ORDINARY = {"UnregisterBroker", "UnregisterController"}

HEAD = """# What pybroker answers, and what Apache Kafka does

The same requests were sent to {who}Apache Kafka {kafka} and pybroker {pybroker}, and the decoded
replies compared field by field ({scenarios} scenarios, {date}; `scripts/compare {command}` makes this page).
*Ordinary* requests were answered without an error; *boundary* ones, too, though a value in them stands at the end of
its type's range; *invalid* ones were refused with an error, or by closing the connection, or were not answered at all.
A reply *agrees* when no field differs, and differs *as meant* when each field that does stands in the list below; no
other reply differs.  Of those that were *answered or not* no field was compared, for the request's version has no
schema that the reply follows: both brokers answered the request, and no more is known; they are in no other column.

## Keys × versions

| key | name | version | ordinary | boundary | invalid | agree | differ as meant | answered or not |
|---|---|---|---|---|---|---|---|---|
"""
WHO, COMMAND = "", "--write"
CLUSTER_WHO, CLUSTER_COMMAND = "each of three brokers of ", "--brokers 3 --write"
REASONS = """
## Differences that are meant

| API | why | replies |
|---|---|---|
"""


@dataclass
class Row:
    """The requests of one key and version that were compared, by their kind and by how the replies agree.

    ``unread`` stands beside them: both brokers answered, but no schema says how to read the replies.
    """

    key: int
    name: str
    version: int
    ordinary: int = 0
    boundary: int = 0
    invalid: int = 0
    agreed: int = 0
    meant: int = 0
    unmeant: int = 0
    unread: int = 0

    def add(self, exchange: Exchange) -> None:
        kind = kind_of(exchange.step)
        setattr(self, kind, getattr(self, kind) + 1)
        if not exchange.judged:
            self.agreed += kind != "unread"
        elif all(judged.meant for judged in exchange.judged):
            self.meant += 1
        else:
            self.unmeant += 1


class Gap(NamedTuple):
    """A served version to which no request of a kind was sent."""

    name: str
    version: int
    kind: str


def kind_of(step: Step) -> str:
    """``ordinary``, ``boundary`` or ``invalid``, by the request and by Kafka's reply, or ``unread``."""
    if step.reply == UNREAD:
        return "unread"
    if step.reply in (CLOSED, SILENT) or _has_error(step.reply):
        return "invalid"
    return "boundary" if step.at_the_end else "ordinary"


def _has_error(tree: Tree) -> bool:
    if isinstance(tree, dict):
        return any((name.endswith("error_code") and value != 0) or _has_error(value) for name, value in tree.items())
    return isinstance(tree, list) and any(_has_error(item) for item in tree)


def table(results: Iterable[Result]) -> list[Row]:
    """A row for every served version, in the order of keys."""
    rows = {
        (api.name, version): Row(api.key, api.name, version)
        for api in APIS
        for version in range(api.versions[0], api.versions[1] + 1)
    }
    for result in results:
        for exchange in result.exchanges:
            row = rows.get((exchange.step.api, exchange.step.version))
            if row is not None:  # neither an observation nor a version that is not served
                row.add(exchange)
    return list(rows.values())


def gaps(rows: Iterable[Row]) -> Iterator[Gap]:
    """What the requests of a run leave uncovered."""
    for row in rows:
        for kind in ("ordinary", "invalid"):
            if getattr(row, kind) == 0 and not (kind == "ordinary" and row.name in NEVER_ORDINARY):
                yield Gap(row.name, row.version, kind)


def summary(rows: Sequence[Row]) -> str:
    """One line: how many requests of each kind, and how they were answered."""
    counts = ("ordinary", "boundary", "invalid", "agreed", "unread")
    sums = (f"{sum(getattr(row, name) for row in rows)} {name}" for name in counts)
    return f"{len({row.key for row in rows})} keys, {len(rows)} versions: {', '.join(sums)}"


def write_rows(compared: Sequence[Result]) -> None:
    """Write the table for the report, whatever it says."""
    write(PART, [asdict(row) for row in table(compared)])


def write_page(compared: Sequence[Result], of_cluster: bool = False) -> None:
    """Write the page, which is of a run without a difference that is not meant."""
    rows = table(compared)
    if of_cluster:
        asked = [row for row in rows if row.ordinary or row.boundary or row.invalid]
        CLUSTER_AGREEMENT.write_text(document(asked, compared, CLUSTER_WHO, CLUSTER_COMMAND))
    else:
        AGREEMENT.write_text(document(rows, compared))


def document(rows: Sequence[Row], results: Sequence[Result], who: str = WHO, command: str = COMMAND) -> str:
    """The page for readers."""
    date = datetime.now(UTC).date().isoformat()
    told = {"kafka": KAFKA_VERSION, "pybroker": __version__, "scenarios": len(results), "date": date}
    head = HEAD.format(**told, who=who, command=command)
    lines = [
        f"| {row.key} | {row.name} | {row.version} | {row.ordinary} | {row.boundary} | {row.invalid} "
        f"| {row.agreed} | {row.meant} | {row.unread} |\n"
        for row in rows
    ]
    reasons = [f"| {api} | {reason} | {count} |\n" for (api, reason), count in sorted(_reasons(results).items())]
    return head + "".join(lines) + REASONS + "".join(reasons)


def _reasons(results: Iterable[Result]) -> dict[tuple[str, str], int]:
    """(API, reason) -> the number of replies that differ for it."""
    counts: dict[tuple[str, str], int] = {}
    for result in results:
        for exchange in result.exchanges:
            meant: set[Meant] = {judged.meant for judged in exchange.judged if judged.meant is not None}
            for reason in {entry.reason for entry in meant}:
                place = (exchange.step.api, reason)
                counts[place] = counts.get(place, 0) + 1
    return counts


def written_rows(text: str) -> list[Row]:
    """The rows of the page."""
    found = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)" + r" \| (\d+)" * 6 + r" \|$", text, re.MULTILINE)
    rows = []
    for key, name, version, *counts in found:
        ordinary, boundary, invalid, agreed, meant, unread = map(int, counts)
        rows.append(Row(int(key), name, int(version), ordinary, boundary, invalid, agreed, meant, unread=unread))
    return rows
