"""The kinds of connectors: by what names they are found, and what all sources or sinks must have.

Owns the list.  The code of a kind is in ``kinds/``, found by the module's name here, and imported when a connector
starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pybroker.connectors.declared.common_keys import TOPICS, TOPICS_REGEX
from pybroker.connectors.declared.config_keys import nearest
from pybroker.connectors.declared.connector_kind import Kind, own_dead_letters
from pybroker.connectors.declared.sink_kinds import SINKS
from pybroker.connectors.declared.source_kinds import SOURCES
from pybroker.connectors.declared.standing_keys import KEYS, SHARED_KEYS
from pybroker.sql.standing.standing_plans import STANDING_QUERY

KINDS: Final = (
    Kind(
        STANDING_QUERY,
        "sink",
        "standing_query",
        "A query of `pybroker sql` that reads topics and writes one.",
        KEYS,
        shared_keys=SHARED_KEYS,
        keeps_state=True,
    ),
    *SOURCES,
    *SINKS,
)


def kind_named(text: str) -> Kind | None:
    """The kind of a ``connector.class``, also with ``Connector`` behind it, or the kind that runs that class."""
    wanted = text.strip().removesuffix("Connector")
    return next((kind for kind in KINDS if kind.name.lower() == wanted.lower() or kind.runs == text.strip()), None)


def unknown_kind(text: str) -> str:
    """The error of a ``connector.class`` that there is not."""
    near = nearest(text.rpartition(".")[2].removesuffix("Connector"), [kind.name for kind in KINDS])
    hint = f"is {near} meant?" if near else f"there are {', '.join(kind.name for kind in KINDS)}"
    return f"Failed to find any class that implements Connector and which name matches {text}; {hint}"


def together(kind: Kind, config: Mapping[str, str]) -> dict[str, list[str]]:
    """What is wrong with values as they stand together, by the key that is named."""
    found: dict[str, list[str]] = {}
    if kind.type == "sink":
        topics, pattern = config.get(TOPICS, "").strip(), config.get(TOPICS_REGEX, "").strip()
        if topics and pattern:
            found[TOPICS] = ["topics and topics.regex are mutually exclusive options, but both are set."]
        elif not topics and not pattern:
            found[TOPICS] = ["Must configure one of topics or topics.regex"]
        else:
            found = own_dead_letters(TOPICS, TOPICS_REGEX)(config)
    return found | kind.check(config)
