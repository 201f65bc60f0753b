"""A shared SQLite file that is taken away under its brokers: they tell, once, and what they have can be saved."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.cluster.store.metadata_store import Transaction
from pybroker.cluster.store.sqlite import opened_sqlite_file
from pybroker.cluster.store.sqlite.shared_sqlite_worker import Sharing
from pybroker.cluster.store.sqlite.sqlite_store import SqliteStore

from .test_shared_sqlite_store import Site

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path)
    yield opened
    opened.close()


def delete(path: str) -> None:
    for suffix in SUFFIXES:
        os.unlink(path + suffix)


def move(path: str) -> None:
    for suffix in SUFFIXES:
        os.rename(path + suffix, path + ".old" + suffix)


def replace(path: str) -> None:
    shutil.copy(path, path + ".new")
    os.replace(path + ".new", path)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize("take_away", [delete, move, replace])
def test_file_that_is_taken_away_is_told_once_also_where_nothing_is_written(
    site: Site, caplog: pytest.LogCaptureFixture, take_away: Callable[[str], None]
) -> None:
    client = site.client()
    site.put(client, "/a")
    assert not told(caplog)
    take_away(site.path)
    site.until(lambda: told(caplog))
    for number in range(3):
        site.put(client, f"/{number}")
    (line,) = told(caplog)
    assert f"the metadata store {site.path} was deleted, moved or replaced" in line
    assert "\n" not in line


def test_what_brokers_go_on_with_is_saved_as_the_log_says(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    client = site.client()
    site.put(client, "/before", b"1")
    delete(site.path)
    site.put(client, "/after", b"2")
    (line,) = told(caplog)
    copies = re.findall(r"(/proc/\S+) to (\S+?),? ", line)
    assert [target for _, target in copies] == [site.path, site.path + "-wal"]
    for source, target in copies:
        shutil.copyfile(source, target)
    client.shared.abandon()
    restarted = SqliteStore(site.path, site.env, fsync=False, sharing=Sharing(1_000, 1))
    site.opened(restarted)
    assert {key: entry.value for key, entry in site.read(restarted).entries.items()} == {
        "/before": b"1",
        "/after": b"2",
    }


def test_where_nobody_can_read_what_a_process_has_open_the_log_says_what_else_to_do(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(opened_sqlite_file, "_OWN_DESCRIPTORS", tmp_path / "none")
    client = site.client()
    delete(site.path)
    assert site.commit(client, Transaction(puts={"/a": b""})).error is None
    (line,) = told(caplog)
    assert "to save it, note what the cluster has" in line
