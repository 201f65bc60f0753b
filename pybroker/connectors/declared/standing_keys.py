"""Keys of a standing query, which `pybroker sql` declares as a connector.

Owns their names, and that a plan can be read.  What a plan says, and how it runs, is ``pybroker.sql``'s.
"""

from __future__ import annotations

import json
from typing import Final

from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.sql.standing.standing_plans import plan_read

# Of the keys that sinks have, those that mean something for a query.
SHARED_KEYS: Final = frozenset(
    {
        "name",
        "connector.class",
        "tasks.max",
        "topics",
        "poll.interval.ms",
        "errors.restarts.max",
        "errors.restarts.backoff.ms",
        "max.records.per.batch",
        "consumer.override.auto.offset.reset",
    }
)


def _check_plan(text: str) -> str | None:
    try:
        plan_read(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "it is no plan that `pybroker sql` has made"
    return None


KEYS: Final = (
    Key("topic", KeyType.STRING, "The topic that is written.", is_required=True, importance="HIGH"),
    Key("statement", KeyType.STRING, "The statement that declared it.", ""),
    Key(
        "plan",
        KeyType.STRING,
        "What Spark runs for it, as JSON, which `pybroker sql` makes.",
        is_required=True,
        importance="HIGH",
        check=_check_plan,
    ),
)
