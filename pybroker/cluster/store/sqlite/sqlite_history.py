"""Which keys changed behind which revision, for followers in other processes.

Owns: a row per key that was put or deleted lately, with the revision of its last change.  Values are not kept twice: a
follower gets the value that the key has now, and of several changes the last.

Invariants: every change behind ``floor`` has its row, and a file that was changed without keeping rows counts as one
without a history. Bounded by ``cluster_limits.STORE_HISTORY_KEYS_MAX``, or by the last transaction where that is
longer: ephemeral keys have no rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from pybroker import cluster_limits
from pybroker.cluster.store.metadata_store import Changes, Transaction
from pybroker.cluster.store.sqlite import sqlite_tables

# `floor`: changes behind it are known; `last`: up to where; `rows`: at most so many.
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS changes (key TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changes_by_revision ON changes (revision);
CREATE TABLE IF NOT EXISTS history (
    one INTEGER PRIMARY KEY CHECK (one = 1), floor INTEGER NOT NULL, last INTEGER NOT NULL, rows INTEGER NOT NULL
);
INSERT OR IGNORE INTO history SELECT 1, value, value, 0 FROM revision;
"""
_CHANGED: Final = """
SELECT changes.key, entries.value FROM changes LEFT JOIN entries ON entries.key = changes.key WHERE changes.revision > ?
"""


def resume(connection: sqlite3.Connection) -> None:
    """Begin anew where a broker that had the file for itself has written since."""
    now = sqlite_tables.revision(connection)
    (last,) = connection.execute("SELECT last FROM history").fetchone()
    if last != now:
        _forget(connection, now)


def ephemeral_among(connection: sqlite3.Connection, keys: Iterable[str]) -> set[str]:
    """Those keys that are ephemeral now."""
    return {key for (key,) in connection.execute("SELECT key FROM entries WHERE ephemeral != 0")}.intersection(keys)


def record(connection: sqlite3.Connection, transaction: Transaction, revision: int, ephemeral: set[str]) -> None:
    """Note what the transaction of this ``revision`` changed; the keys in ``ephemeral`` were so before it."""
    keys = [*transaction.puts, *(key for key in transaction.deletes if key not in ephemeral)]
    connection.executemany("INSERT OR REPLACE INTO changes VALUES (?, ?)", ((key, revision) for key in keys))
    (rows,) = connection.execute(
        "UPDATE history SET last = ?, rows = rows + ? RETURNING rows", (revision, len(keys))
    ).fetchone()
    if rows > cluster_limits.STORE_HISTORY_KEYS_MAX:
        _trim(connection, revision)


def changes_behind(connection: sqlite3.Connection, revision: int) -> Changes | None:
    """What changed behind ``revision``, as one; None where that is not known any more."""
    now = sqlite_tables.revision(connection)
    floor, last = connection.execute("SELECT floor, last FROM history").fetchone()
    if not floor <= revision <= now or last != now:
        return None
    puts: dict[str, bytes] = {}
    deletes: list[str] = []
    for key, value in connection.execute(_CHANGED, (revision,)):
        if value is None:
            deletes.append(key)
        else:
            puts[key] = value
    return Changes(now, puts, tuple(deletes))


def _trim(connection: sqlite3.Connection, newest: int) -> None:
    """Keep the newer half of what there may be, and all of the ``newest`` revision: every follower is about to ask."""
    half = cluster_limits.STORE_HISTORY_KEYS_MAX // 2
    row = connection.execute("SELECT revision FROM changes ORDER BY revision DESC LIMIT 1 OFFSET ?", (half,)).fetchone()
    if row is not None:
        floor = (min(row[0], newest - 1),)
        connection.execute("DELETE FROM changes WHERE revision <= ?", floor)
        connection.execute("UPDATE history SET floor = max(floor, ?)", floor)
    connection.execute("UPDATE history SET rows = (SELECT count(*) FROM changes)")


def _forget(connection: sqlite3.Connection, now: int) -> None:
    connection.execute("DELETE FROM changes")
    connection.execute("UPDATE history SET floor = ?, last = ?, rows = 0", (now, now))
