"""EMIT CHANGES: the rows of one topic as its records arrive, without an end of its own.

Owns which queries can be answered record by record, where they begin, and the loop.  What needs memory of former
records (an aggregate, an order, a join of topics) is a standing query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from pybroker.sql.fetching.record_columns import Position, next_offset, raw_batches
from pybroker.sql.fetching.relation_decoding import Decoding, Misfits
from pybroker.sql.fetching.scanning import Plan
from pybroker.sql.parsing.aggregates import has_aggregates
from pybroker.sql.parsing.queries import TableReference
from pybroker.sql.parsing.statements import Query
from pybroker.sql.questions.engine import Engine
from pybroker.sql.relations.cluster_port import Cluster, Connect
from pybroker.sql.sql_errors import Interrupted, SqlError

_FETCH_BYTES: Final = 1 << 20
# Short enough that Ctrl-C feels immediate.
_WAIT_MS: Final = 200
_NO_END: Final = 2**63 - 1
# What a SELECT has that a row cannot be told of by itself, by sqlglot's names.
_REMEMBERING: Final = {
    "group": "GROUP BY",
    "order": "ORDER BY",
    "distinct": "DISTINCT",
    "limit": "LIMIT before EMIT CHANGES",
    "offset": "OFFSET",
    "having": "HAVING",
}
# How soon a tail reads a partition that is added.
_LOOKED_EVERY_S: Final = 5.0


def check(query: Query, references: Sequence[TableReference]) -> None:
    """Raise ``SqlError`` for a query that cannot be answered record by record."""
    tree = query.tree
    why = None
    if not isinstance(tree, exp.Select):
        why = "a query that is no single SELECT"
    elif len(references) != 1:
        why = f"a query over {len(references)} topics"
    elif (found := next(_remembered(tree), None)) is not None:
        why = found
    elif has_aggregates(tree) or tree.find(exp.Window) is not None:
        why = "an aggregate"
    if why is not None:
        raise SqlError(f"EMIT CHANGES with {why} is a standing query: CREATE TABLE … AS SELECT makes one")


def _remembered(tree: exp.Expr) -> Iterator[str]:
    """What the query has that needs former records, in the SELECTs inside of it, too: each is asked of what arrives."""
    for select in tree.find_all(exp.Select):
        yield from (words for name, words in _REMEMBERING.items() if select.args.get(name))
    if tree.find(exp.SetOperation) is not None:
        yield "UNION, INTERSECT or EXCEPT"
    if tree.find(exp.TableSample) is not None:
        yield "a sample"
    if any(not pivot.args.get("unpivot") for pivot in tree.find_all(exp.Pivot)):
        yield "PIVOT"


def starts(cluster: Cluster, found: Plan, *, from_begin: bool) -> dict[int, int]:
    """Where each partition is read from: what the query says of offsets and times, or else the begin or the end."""
    wanted = found.wanted
    partitions = cluster.partitions(found.relation.topic) or []
    if wanted.partitions is not None:
        partitions = [each for each in partitions if each in wanted.partitions]
    bounds = cluster.bounds(found.relation.topic, partitions) if partitions else {}
    has_start = from_begin or wanted.first_offset is not None or wanted.first_ms is not None
    return {
        partition: found.positions[partition].start if has_start and partition in found.positions else at.end
        for partition, at in bounds.items()
    }


class Follower:
    """Reads a topic on, and asks the query of what has come."""

    def __init__(
        self,
        connect: Connect,
        engine: Engine,
        sql: str,
        name: str,
        wanted: Plan,
        positions: dict[int, int],
        misfits: Misfits,
    ) -> None:
        """``name`` is that of the topic in ``sql``."""
        if not positions:
            raise SqlError(f"the query reads no partition of {wanted.relation.topic}")
        self._connect = connect
        self._engine = engine
        self._sql = sql
        self._name = name
        self._plan = wanted
        self._positions = positions
        self._decoding = Decoding(wanted.relation, wanted.columns, misfits)

    def tables(self, limit: int | None, is_interrupted: Callable[[], bool]) -> Iterator[pa.Table]:
        """Rows as they come, ``limit`` of them at most; the first table has none, so that the columns are known.

        Raises ``Interrupted`` once that is asked for.
        """
        yield self._asked([])
        left = limit
        looks_at_s = time.monotonic() + _LOOKED_EVERY_S
        with self._connect() as cluster:
            while left is None or left > 0:
                if is_interrupted():
                    raise Interrupted
                if time.monotonic() >= looks_at_s:
                    self._add_partitions(cluster)
                    looks_at_s = time.monotonic() + _LOOKED_EVERY_S
                batches = list(self._arrived(cluster))
                if not batches:
                    continue
                rows = self._asked(batches)
                rows = rows if left is None else rows.slice(0, left)
                left = left if left is None else left - rows.num_rows
                yield rows

    def _add_partitions(self, cluster: Cluster) -> None:
        """Read those, too, that were added meanwhile: from their begin, for all of their records are new."""
        topic, chosen = self._plan.relation.topic, self._plan.wanted.partitions
        there = cluster.partitions(topic)
        if there is None:
            raise SqlError(f"topic {topic} is gone")
        added = [each for each in there if each not in self._positions and (chosen is None or each in chosen)]
        if added:
            self._positions |= {each: at.begin for each, at in cluster.bounds(topic, added).items()}

    def _arrived(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        topic = self._plan.relation.topic
        for fetched in cluster.fetch(topic, self._positions, _FETCH_BYTES, _WAIT_MS):
            partition = fetched.partition
            wanted = Position(self._positions[partition], _NO_END)
            for raw in raw_batches(fetched, wanted, self._decoding.fields):
                yield self._decoding.decoded(raw, partition)
            self._positions[partition] = next_offset(fetched) or self._positions[partition]

    def _asked(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches, self._decoding.schema())
        return self._engine.rows_over(self._sql, {self._name: table}, are_shown=True)
