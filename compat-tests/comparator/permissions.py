"""What Apache Kafka answers where a permission is missing, kept for tests that start no Kafka.

Owns: ``permissions.json``, which ``scripts/compare --write`` writes: for each request of the scenario
``acls.each_missing_permission`` the errors, authorized operations and names that are not told of Kafka's reply, and
how many there are of what is listed, by their places in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from comparator.compare import Result
from comparator.encoding import Tree

SCENARIO = "acls.each_missing_permission"
FILE = Path(__file__).with_name("permissions.json")
# What may not be seen is left out of these without an error.
LISTS = ("groups", "topics", "transaction_states")


def told(reply: Tree, place: str = "") -> Iterator[tuple[str, int | None]]:
    """The places and values of what a reply says of permissions."""
    if isinstance(reply, dict):
        for name, value in reply.items():
            where = f"{place}.{name}".removeprefix(".")
            if name.endswith(("error_code", "authorized_operations")) or (name == "name" and value is None):
                yield where, value
            else:
                if name in LISTS and isinstance(value, list):
                    yield f"{where}.length", len(value)
                yield from told(value, where)
    elif isinstance(reply, list):
        for number, element in enumerate(reply):
            yield from told(element, f"{place}[{number}]")


def write(results: Iterable[Result]) -> None:
    """Write down what Kafka said in a run."""
    said = {
        exchange.step.title: dict(told(exchange.step.reply))
        for result in results
        if result.scenario == SCENARIO
        for exchange in result.exchanges
    }
    FILE.write_text(json.dumps(said, indent=1) + "\n")


def written() -> Mapping[str, Mapping[str, int | None]]:
    """What was written last."""
    said: dict[str, dict[str, int | None]] = json.loads(FILE.read_text())
    return said
