"""Brokers of a cluster over a shared SQLite file that nobody can use for a while."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from harness.waiting import PATIENCE_S

from .running_cluster import Partition, Processes
from .store_away import serve_while_the_store_is_away


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_shared_file_locked_for_a_minute_stops_no_record_and_leaves_no_topic_half_made(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with (
        Processes(tmp_path, f"sqlite://{path}") as processes,
        closing(sqlite3.connect(path, timeout=PATIENCE_S)) as stranger,
    ):
        stranger.isolation_level = None
        serve_while_the_store_is_away(
            Partition(processes),
            tmp_path,
            lambda: stranger.execute("BEGIN EXCLUSIVE"),
            lambda: stranger.execute("ROLLBACK"),
        )
