"""Every file beside the data, damaged in every way, after a clean stop and after a crash: it heals, or is refused.

What heals answers as before in every way: records, offsets, leader epochs, aborted transactions, producers, times.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.results import StorageError
from tests.storage.logs import Client, Storage
from tests.storage.whole_logs import DAMAGES, DELETED_BELOW, answers, fill

ALIKE = "answers as before"
REFUSED = "refuses to be used, in one sentence"
NOTHING_DELETED = "begins at its first record, as Kafka's does"
EITHER = "answers as before, or refuses to be used"
ABORTED_SHOWN = "cannot know that transactions were aborted, as Kafka cannot"


@pytest.fixture(scope="module", params=["after a clean stop", "after a crash"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A data directory, and what its log answered."""
    path = tmp_path_factory.mktemp("left") / "data"
    world = VirtualWorld()
    storage = Storage(path, world)
    log = fill(storage)
    expected = answers(log)
    log.flushes.flush()
    world.run()
    storage.manager._housekeeping.checkpoint_recovery_points()
    storage.manager._housekeeping.checkpoint_log_starts()
    storage.manager._housekeeping.checkpoint_high_watermarks()
    world.run()
    if request.param == "after a clean stop":
        storage.close()
    else:
        storage.kill()
    return path, expected


def outcome_of(path: Path, damage: str) -> str:
    """What is to become of a damaged file."""
    if path.name == "meta.properties":
        return ALIKE if damage == "missing" else REFUSED
    if damage == "a directory":
        return REFUSED if path.name in DIRECTORY_FILES else EITHER
    if path.suffix == ".txnindex" and damage in {"missing", "empty"}:
        return ABORTED_SHOWN
    if path.name == "log-start-offset-checkpoint":
        return NOTHING_DELETED
    return ALIKE


DIRECTORY_FILES = (
    "meta.properties",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
FILES = [
    *DIRECTORY_FILES,
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    "t-0/*.index",
    "t-0/*.timeindex",
    "t-0/*.txnindex",
    "t-0/*.snapshot",
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("pattern", FILES)
def test_damaged_file_heals_or_is_refused(
    left: tuple[Path, dict[str, Any]], tmp_path: Path, pattern: str, damage: str
) -> None:
    template, expected = left
    for found in sorted(template.glob(pattern)):
        path = tmp_path / "data"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path)
        DAMAGES[damage](path / found.relative_to(template))
        outcome = outcome_of(found, damage)
        assert (found.name, outcome, what_becomes(path, outcome, expected)) == (found.name, outcome, None)


def what_becomes(path: Path, outcome: str, expected: dict[str, Any]) -> object:
    """None if it is the outcome that was to be; else what it was instead."""
    world = VirtualWorld()
    try:
        storage = Storage(path, world)
    except StorageError:
        return None if outcome == REFUSED else "refused the start"
    try:
        try:
            log = storage.log()
            found = answers(log)
        except AssertionError:
            if not storage.all_failed:
                raise
        if storage.all_failed:
            return None if outcome in {REFUSED, EITHER} else "went offline"
        if outcome == REFUSED:
            return "served it"
        if outcome == ABORTED_SHOWN:
            expected = {**expected, "aborted": found["aborted"]}
        if outcome == NOTHING_DELETED:
            assert found["offsets"][0] in {0, DELETED_BELOW}
            expected = {**expected, "offsets": found["offsets"], "records": found["records"], "epochs": found["epochs"]}
            expected["times"] = found["times"]
        differing = {key: (found[key], expected[key]) for key in expected if found[key] != expected[key]}
        if differing:
            return differing
        appended = Client(log, leader_epoch=9).send_now(values=[b"after"])
        assert (appended.error_code, appended.base_offset) == (0, expected["offsets"][1])
        return None
    finally:
        storage.kill()
