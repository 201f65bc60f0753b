"""What the code of a kind is given, and what it gives back.

Owns the port between the supervisor and the kinds, and the run of a streaming query.  A kind's module has ``start``.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pybroker.connectors.declared.config_keys import parse
from pybroker.connectors.declared.connector_kind import Kind
from pybroker.connectors.declared.secret_texts import shown

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

RETRIES_FOR_EVER_S = 10.0 * 365 * 86_400


class RecordRefused(RuntimeError):
    """A record cannot be read, changed or written, and the connector tolerates none such."""


class Place(Protocol):
    """Where a source's offsets are kept, in the topic of offsets."""

    topic: str
    transactional_id: str

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """The offset of each partition, which is JSON text, as the topic has them now."""
        ...

    def records(
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
    ) -> list[tuple[bytes, bytes | None]]:
        """The records that say so."""
        ...

    def remember(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """They have been committed."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """A connector to be run: its resolved configuration, the session, and where it keeps its place.

    ``cluster`` has the options of the brokers, each with ``kafka.`` in front. ``directory`` is the checkpoint's, which
    is new after a reset of offsets; ``starting_offsets`` is where a new checkpoint begins. ``ends`` is set when the
    connector is to stop. ``place`` is that of sources that are asked again and again.
    """

    name: str
    kind: Kind
    config: Mapping[str, str]
    spark: Any
    cluster: Mapping[str, str]
    directory: str
    group: str
    starting_offsets: Callable[[Sequence[str]], str]
    place: Place
    ends: threading.Event = field(default_factory=threading.Event)
    # The configuration as it was declared, where it has references; ``config`` has what they find.
    declared: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Work({self.name!r}, {self.kind.name})"

    def value(self, name: str) -> Any:
        """The parsed value of a key: its default where it is unset."""
        (key,) = (each for each in self.kind.keys if each.name == name)
        text = self.config.get(name, key.default)
        return None if text is None else parse(key.type, text)

    def shown(self, name: str) -> str:
        """The text of a key as it may be shown: a reference, and not what it finds."""
        # What Connect has left in the topic was judged by nothing here.
        return shown(self.declared.get(name, self.config.get(name, "")).strip())

    @property
    def partition(self) -> Mapping[str, str]:
        """The partition of a source that reads one, by its declaration: a new secret does not make it another."""
        reads = None if self.kind.partition is None else self.kind.partition({**self.config, **self.declared})
        assert reads is not None, "the kind says which partition it reads"
        return reads.partition

    @property
    def forms(self) -> dict[str, str]:
        """Its configuration with the names of both converters, which the kind may have defaults for."""
        return {**self.config, **{name: self.value(name) for name in ("key.converter", "value.converter")}}

    @property
    def patience_s(self) -> float:
        """For how long a target that is away is waited for."""
        timeout_ms: int = self.value("errors.retry.timeout")
        return RETRIES_FOR_EVER_S if timeout_ms < 0 else timeout_ms / 1_000

    @property
    def tolerates_errors(self) -> bool:
        """Whether a record that cannot be used is passed over."""
        tolerance: str = self.value("errors.tolerance")
        return tolerance.lower() == "all"

    @property
    def interval(self) -> str:
        """How often it looks for news, as Spark's triggers have it."""
        return f"{self.value('poll.interval.ms')} milliseconds"


class Run(Protocol):
    """A connector that runs."""

    @property
    def failure(self) -> str | None:
        """Why it ended by itself; ``None`` while it runs."""
        ...

    @property
    def remark(self) -> str | None:
        """What its operator is to know while it runs, such as which records it leaves out; ``None`` for nothing."""
        ...

    def stop(self) -> None:
        """End it; returns when it writes nothing more."""
        ...


class Watch(Protocol):
    """What counts something of a query while it runs."""

    def remark(self) -> str | None:
        """See `Run`."""
        ...

    def close(self) -> None:
        """Count nothing more.  What was counted stays."""
        ...


class QueryRun:
    """A streaming query that is a connector."""

    def __init__(self, query: StreamingQuery, work: Work, watch: Watch | None = None) -> None:
        self._query, self._work, self._watch = query, work, watch

    @property
    def failure(self) -> str | None:
        """See `Run`."""
        from pybroker.pipeline.query_failure import failure_of

        return failure_of(self._query)

    @property
    def remark(self) -> str | None:
        """See `Run`."""
        return None if self._watch is None else self._watch.remark()

    def stop(self) -> None:
        """See `Run`."""
        self._work.ends.set()
        self._query.stop()
        if self._watch is not None:
            self._watch.close()


def start(work: Work) -> Run:
    """Start a connector by its kind's module; raises what is wrong."""
    module = importlib.import_module(f"pybroker.connectors.kinds.{work.kind.module}")
    run: Run = module.start(work)
    return run
