"""Keys, values and versions in SQLite: the tables that every metadata store of SQLite has, and transactions on them.

Owns: the schema's versions, who may read a file, what is refused at open, and reading and writing keys.  Owns no thread
and no connection.
Schema 1 is what one broker needs.  Schema 2 has tables besides for brokers that share the file (``sqlite_sessions``,
``sqlite_history``): a file gets them when it is shared for the first time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from pybroker.cluster.store.metadata_store import ABSENT, Entry, StoreError, Transaction
from pybroker.config.secret_files import tell_of_exposure
from pybroker.storage.files import os_file

SCHEMA_VERSION: Final = 1
SHARED_SCHEMA_VERSION: Final = 2
# Told apart from other SQLite files by `file` and by ourselves: "pybk" in ASCII.
APPLICATION_ID: Final = 0x7079626B
# The session of a broker that has the file for itself; sessions of sharing brokers are rows that count from 1.
OWN_SESSION: Final = 1

# `ephemeral` is the session that a key ends with, 0 for those that stay.
SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, ephemeral INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO revision VALUES (1, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
_PUT: Final = """
INSERT INTO entries VALUES (?, ?, 0, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value,
version = CASE ephemeral WHEN excluded.ephemeral THEN version + 1 ELSE 0 END, ephemeral = excluded.ephemeral
"""


def guard(path: str, mode: int = 0o600) -> None:
    """Let a new file be read by those of ``mode`` alone, and tell where everybody may read one that is there.

    It holds the cluster's secret, and by what users prove their passwords.  SQLite's files beside it have its mode.
    """
    # Only where there is none: whoever closes a file gives up the locks that this process has on it.
    with suppress(OSError):
        os_file.close(os_file.open_fd(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    tell_of_exposure(path, "the cluster's secrets")


def remove(path: str) -> None:
    """Remove a file that no process has open, with SQLite's files beside it."""
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):
            os_file.unlink(name)


def check_schema(connection: sqlite3.Connection, path: str) -> int:
    """The schema's version, 0 for an empty file; StoreError for a file that is not ours, or is of times to come."""
    # In this order: another process may make all of it, in one transaction, at any time.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{path} is not a metadata store of pybroker")
    if version > SHARED_SCHEMA_VERSION:
        raise StoreError(f"the metadata store {path} was written by a newer pybroker (schema {version})")
    return int(version)


def revision(connection: sqlite3.Connection) -> int:
    """The revision of the last transaction."""
    (value,) = connection.execute("SELECT value FROM revision").fetchone()
    return int(value)


def select(connection: sqlite3.Connection, prefix: str) -> dict[str, Entry]:
    """Every key with the prefix, in order."""
    # The first text that sorts after every key with the prefix: U+10FFFF is the greatest character and in no key.
    rows = connection.execute(
        "SELECT key, value, version FROM entries WHERE key >= ? AND key < ? ORDER BY key",
        (prefix, prefix + "\U0010ffff"),
    )
    return {key: Entry(value, version) for key, value, version in rows}


def first_conflict(connection: sqlite3.Connection, checks: Iterable[tuple[str, int]]) -> str | None:
    """The first key whose version is another; None when all are as they should be."""
    for key, expected in checks:
        row = connection.execute("SELECT version FROM entries WHERE key = ?", (key,)).fetchone()
        if (ABSENT if row is None else row[0]) != expected:
            return key
    return None


def write(connection: sqlite3.Connection, transaction: Transaction, session: int) -> int:
    """The writes of a transaction whose checks hold; the new revision."""
    connection.executemany("DELETE FROM entries WHERE key = ?", ((key,) for key in transaction.deletes))
    connection.executemany(_PUT, ((key, value, 0) for key, value in transaction.puts.items()))
    connection.executemany(_PUT, ((key, value, session) for key, value in transaction.ephemerals.items()))
    (value,) = connection.execute("UPDATE revision SET value = value + 1 RETURNING value").fetchone()
    assert isinstance(value, int)
    return value


def roll_back(connection: sqlite3.Connection) -> None:
    """Leave the transaction, if there is one; where that fails SQLite does it when the file is opened again."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        pass
