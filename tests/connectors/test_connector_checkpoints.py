"""Checkpoints of runs that are over are removed, and no other directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.connectors.connect_service import absolute
from pybroker.connectors.supervision.connector_checkpoints import Checkpoints
from pybroker.pipeline.checkpoint_files import has_noted


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(absolute(tmp_path / "data"))


def make(checkpoints: Checkpoints, name: str, *numbers: int) -> list[Path]:
    made = [Path(checkpoints.of(name, number).removeprefix("file://")) for number in numbers]
    for each in made:
        (each / "commits").mkdir(parents=True)
        (each / "state" / "0").mkdir(parents=True)
        (each / "state" / "0" / "1.delta").write_text("x")
    return made


@pytest.mark.parametrize("name", ["a", "a b", "50%", "é"])
def test_a_sink_of_files_finds_its_checkpoint_by_any_name_and_directory(tmp_path: Path, name: str) -> None:
    """Else it would not see that its directory is another one than before, as where a disk is not mounted."""
    checkpoints = Checkpoints(absolute(tmp_path / "the data é"))
    (made,) = make(checkpoints, name, 1)
    assert tmp_path / "the data é" in made.parents
    assert not has_noted(checkpoints.of(name, 1))
    (made / "offsets").mkdir()
    (made / "offsets" / ".0.crc").write_text("x")
    assert not has_noted(checkpoints.of(name, 1)), "a file of another name is no micro-batch"
    (made / "offsets" / "0").write_text("x")
    assert has_noted(checkpoints.of(name, 1))


def test_checkpoints_of_a_directory_whose_name_was_kept_with_percent_signs_stay_there(tmp_path: Path) -> None:
    """Else each connector would begin anew, and write again what it has written."""
    data, former = tmp_path / "the data é", tmp_path / "the%20data%20%C3%A9"
    assert absolute(data) == f"file://{data}"
    former.mkdir()
    assert absolute(data) == f"file://{former}" == data.as_uri()
    assert absolute(tmp_path / "data") == f"file://{tmp_path / 'data'}"


def test_runs_before_a_number_lose_their_checkpoint(checkpoints: Checkpoints) -> None:
    made = make(checkpoints, "a b", 1, 2, 10)
    other = make(checkpoints, "a", 1)
    (made[0].parent / "notes").mkdir()
    checkpoints.remove_before("a b", 10)
    assert [each.exists() for each in made] == [False, False, True]
    assert (made[0].parent / "notes").exists()
    assert other[0].exists()


def test_the_directory_of_a_connector_goes_with_its_last_checkpoint(checkpoints: Checkpoints) -> None:
    (made,) = make(checkpoints, "a", 1)
    checkpoints.remove_before("a", 2)
    checkpoints.remove_before("a", 2)
    assert not made.parent.exists()
    assert made.parent.parent.exists()


@pytest.mark.parametrize("name", [".", "..", "../..", "a/b", "%2E%2E"])
def test_a_name_leads_to_no_other_directory(checkpoints: Checkpoints, name: str, tmp_path: Path) -> None:
    (made,) = make(checkpoints, name, 1)
    assert made.resolve().parent.parent == tmp_path / "data"
    for beside in (tmp_path / "1", tmp_path / "data" / "1"):
        beside.mkdir()
    checkpoints.remove_before(name, 2)
    assert not made.exists()
    assert (tmp_path / "1").exists()
    assert (tmp_path / "data" / "1").exists()


def test_a_batch_counts_when_it_is_committed(checkpoints: Checkpoints) -> None:
    (made,) = make(checkpoints, "a", 3)
    (made / "commits" / ".0.tmp").write_text("")
    assert not checkpoints.has_batch("a", 3)
    assert not checkpoints.has_batch("a", 4)
    (made / "commits" / "0").write_text("v1")
    assert checkpoints.has_batch("a", 3)


def test_what_cannot_be_removed_is_a_line_of_the_log(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied", "1.delta")

    make(checkpoints, "a", 1)
    monkeypatch.setattr("pybroker.connectors.supervision.connector_checkpoints.shutil.rmtree", refused)
    checkpoints.remove_before("a", 2)
    assert "a: a former checkpoint stays: [Errno 13] Permission denied" in caplog.text


@pytest.mark.parametrize("directory", ["", "s3a://bucket/data", "hdfs://host/data"])
def test_what_is_not_mounted_here_is_left_alone(directory: str) -> None:
    found = Checkpoints(directory)
    assert found.of("a", 1) == f"{directory}/a/1"
    found.remove_before("a", 2)
    assert not found.has_batch("a", 1)


def test_a_supervisor_without_a_directory_looks_for_no_checkpoint_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(folder: Path) -> Iterator[Path]:
        return iter((folder / "1",))

    monkeypatch.setattr(Path, "iterdir", listed)
    assert has_noted("/a/1")
    assert not Checkpoints("").has_batch("a", 1)
