"""What stands at the door to the operating system: it answers as the calls do, and a planted fault meets all of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.storage.dirs.start_rollback import refuse_parent_of_log_dirs
from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.results import StorageError


def test_a_directory_is_made_with_those_it_lies_in_and_may_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c"
    with pytest.raises(FileNotFoundError):
        os_file.make_directory(path)
    for _ in range(2):
        os_file.make_directory(path, parents=True)
        assert path.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        os_file.make_directory(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        os_file.make_directory(tmp_path / "file" / "below", parents=True)


@pytest.mark.parametrize("ask", [os_file.exists, os_file.is_dir])
def test_only_what_is_known_to_be_missing_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Path], bool]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(tmp_path)
    assert ask(tmp_path / "link")
    assert not any(ask(tmp_path / name) for name in ("missing", "file/below", "loop"))

    def stat(_: object) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os_file, "stat", stat)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        ask(tmp_path)


def test_a_tree_is_removed_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    (outside / "kept").touch()
    (tree / "inner" / "deep").mkdir(parents=True)
    (tree / "inner" / "file").touch()
    (tree / "link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    (tmp_path / "to tree").symlink_to(tree)
    os_file.remove_tree(tmp_path / "to tree")
    assert (tree / "inner" / "file").exists()
    os_file.remove_tree(tree)
    os_file.remove_tree(tree)  # it is gone already
    assert not tree.exists()
    assert (outside / "kept").exists()


def test_what_cannot_be_removed_of_a_tree_stays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    for name in ("a/stays", "a/goes", "b", "c"):
        (tree / name).touch()

    def unlink(path: Any) -> None:
        if os.fspath(path).endswith("stays"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        os.unlink(path)

    monkeypatch.setattr(os_file, "unlink", unlink)
    os_file.remove_tree(tree)
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["a", "a/stays"]


def test_names_of_what_is_wanted_come_with_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-1").symlink_to("t-0")
    (tmp_path / "t-2").write_bytes(b"12345")
    (tmp_path / "other").symlink_to("nowhere")  # to ask what it is would fail
    wanted = lambda name: name.startswith("t-")  # noqa: E731
    assert sorted(os_file.subdirectories(tmp_path, wanted)) == ["t-0", "t-1"]
    assert {name: stat.st_size for name, stat in os_file.stats_in(tmp_path, wanted)}["t-2"] == 5
    assert os_file.names_in(tmp_path / "missing") == os_file.names_in(tmp_path / "t-2") == []
    assert sorted(os_file.names_in(tmp_path)) == ["other", "t-0", "t-1", "t-2"]


def test_lines_end_as_in_any_text_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"0\r\n1\rtwo \xff\n")
    assert os_file.read_lines(tmp_path / "lines") == ["0", "1", "two \ufffd"]


def all_of(tmp_path: Path) -> dict[str, Callable[[], object]]:
    """By the call that fails: something that consists of it."""
    file, directory = tmp_path / "file", tmp_path / "directory"
    return {
        "open_fd": lambda: os_file.read_bytes(file),
        "fsync": lambda: os_file.replace_file(file, b"new"),
        "pwrite": lambda: os_file.replace_file(file, b"new"),
        "rename": lambda: os_file.replace_file(file, b"new", sync=False),
        "stat": lambda: os_file.holds(file, b"old"),
        "fstat": lambda: os_file.lock_file(file),
        "statvfs": lambda: os_file.disk_space(directory),
        "unlink": lambda: os_file.unlink_if_exists(file),
        "mkdir": lambda: os_file.make_directory(directory / "inner"),
        "listdir": lambda: os_file.names_in(directory),
        "scandir": lambda: os_file.stats_in(directory, bool),
    }


@pytest.mark.parametrize("call", sorted(all_of(Path())))
def test_a_fault_of_a_call_meets_what_consists_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "directory").mkdir()

    def fail(*_: object, **__: object) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os_file, call, fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        all_of(tmp_path)[call]()
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_directory_that_may_not_be_looked_into_keeps_no_broker_from_its_log_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(path: Path) -> os.stat_result:
        if "lost+found" in path.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return os.stat(path)

    (tmp_path / "lost+found").mkdir()
    monkeypatch.setattr(os_file, "stat", stat)
    refuse_parent_of_log_dirs(tmp_path)
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / checkpoints.META_PROPERTIES).touch()
    with pytest.raises(StorageError, match="node-1"):
        refuse_parent_of_log_dirs(tmp_path)
