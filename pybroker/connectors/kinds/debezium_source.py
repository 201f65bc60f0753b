"""DebeziumPostgresSource: changes of tables in PostgreSQL, as Debezium's engine reads them from the change log.

Debezium's properties go to its engine as they are, transforms among them.  A batch and the offset behind it are one
transaction, and the database hears only then that it may forget what was read: each change is written once.  A snapshot
that was interrupted begins anew, and its rows come again.

Owns what of a configuration is the engine's; `debezium_engine` is the engine, `polled_runs` writes.
"""

from __future__ import annotations

from typing import Any, Final

from pybroker.connectors.declared.source_kinds import DEBEZIUM_POSTGRES
from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.debezium_engine import Batch, DebeziumEngine, Offsets
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun

# Of a connector here, or of Connect's workers: the engine knows none of these.
_NOT_THE_ENGINES: Final = (
    "connector.class",
    "tasks.max",
    "errors.restarts.",
    "exactly.once.support",
    "key.converter",
    "value.converter",
    "topic.creation.",
)


def start(work: Work) -> Run:
    """Start it; what is wrong ends the run."""
    return PolledRun(work, lambda offsets: _DebeziumPoller(work, offsets))


class _DebeziumPoller:
    def __init__(self, work: Work, offsets: Offsets) -> None:
        self._engine = DebeziumEngine(engine_properties(work), offsets)
        self._written: Batch | None = None

    def poll(self) -> Polled:
        """See `Poller`; what was given before is written when the next is asked for."""
        if self._written is not None:
            self._engine.acknowledge(self._written)
        self._written = batch = self._engine.next()
        if batch is None:
            return Polled()
        return Polled(
            [(event.key, event.value) for event in batch.events],
            [*batch.offsets],
            [event.topic for event in batch.events],
        )

    def close(self) -> None:
        """See `Poller`."""
        self._engine.close()


def engine_properties(work: Work) -> dict[str, Any]:
    """What the engine is given."""
    given = {name: text for name, text in work.config.items() if not name.startswith(_NOT_THE_ENGINES)}
    schemas = {
        f"{side}.converter.schemas.enable": str(work.value(f"{side}.converter.schemas.enable")).lower()
        for side in ("key", "value")
    }
    return {**given, **schemas, "name": work.name, "connector.class": DEBEZIUM_POSTGRES}
