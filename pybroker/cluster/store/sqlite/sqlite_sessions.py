"""Sessions of the brokers that share a SQLite file: leases on the clock of the machine.

Owns: a row per session with the time at which its lease ends, and the rules of who may end it.  A lease counts on the
monotonic clock that all processes of a machine share, together with the id of its boot; the wall clock has no say.

A writer that was stopped in the middle of a transaction keeps all others from renewing: their leases are not held
against them. Each broker writes at a third of the time-out at the latest, so the time of the last write tells. What was
alive then gets a whole lease from the first write after a silence.

Invariants: every function runs within a write transaction, ``next_lapse_ms`` excepted; an ephemeral key is there as
long as its session's row is.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

# Ids are never used again. `clock` has the time of the last write.
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, boot TEXT NOT NULL, ends_ms INTEGER NOT NULL, timeout_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS ephemerals ON entries (ephemeral) WHERE ephemeral != 0;
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, written_ms INTEGER NOT NULL
);
INSERT OR IGNORE INTO clock VALUES (1, '', 0);
"""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# No lease ends later than its time-out from now: where a boot has no id, that shows leases of earlier ones.
_HAS_LAPSED: Final = "boot != :boot OR ends_ms < :now OR ends_ms > :now + timeout_ms"


def boot_id() -> str:
    """What tells this boot of the machine from others; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def begin(connection: sqlite3.Connection, boot: str, now_ms: int, timeout_ms: int) -> int:
    """A new session; its id."""
    row = (boot, now_ms + timeout_ms, timeout_ms)
    (session,) = connection.execute(
        "INSERT INTO sessions (boot, ends_ms, timeout_ms) VALUES (?, ?, ?) RETURNING id", row
    ).fetchone()
    return int(session)


def end(connection: sqlite3.Connection, session: int) -> None:
    """End a session, with its keys."""
    connection.execute("DELETE FROM entries WHERE ephemeral = ?", (session,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def renew(connection: sqlite3.Connection, session: int, boot: str, now_ms: int) -> bool:
    """Give the session a whole lease; whether it is still there."""
    row = (now_ms, session, boot)
    return (
        connection.execute("UPDATE sessions SET ends_ms = ? + timeout_ms WHERE id = ? AND boot = ?", row).rowcount == 1
    )


def end_lapsed(connection: sqlite3.Connection, boot: str, now_ms: int) -> None:
    """End those whose lease is over, unless no process could write meanwhile."""
    now = {"boot": boot, "now": now_ms}
    # Half of the time-out lies between a third, by which whoever lives has written, and the whole, at which leases end:
    # so long a silence means that nobody could write, and comes before it costs anybody the lease.
    connection.execute(
        "UPDATE sessions SET ends_ms = :now + timeout_ms FROM clock WHERE sessions.boot = :boot AND clock.boot = :boot "
        "AND ends_ms >= written_ms AND :now - written_ms > timeout_ms / 2",
        now,
    )
    for (session,) in connection.execute(f"SELECT id FROM sessions WHERE {_HAS_LAPSED}", now).fetchall():
        end(connection, session)
    connection.execute("UPDATE clock SET boot = :boot, written_ms = :now", now)


def alive(connection: sqlite3.Connection, boot: str, now_ms: int) -> int:
    """How many sessions are not over."""
    now = {"boot": boot, "now": now_ms}
    (count,) = connection.execute(f"SELECT count(*) FROM sessions WHERE NOT ({_HAS_LAPSED})", now).fetchone()
    return int(count)


def next_lapse_ms(connection: sqlite3.Connection, session: int) -> int | None:
    """When the first lease of another session ends, unless it is renewed; None without others."""
    (ends_ms,) = connection.execute("SELECT min(ends_ms) FROM sessions WHERE id != ?", (session,)).fetchone()
    return None if ends_ms is None else int(ends_ms)
