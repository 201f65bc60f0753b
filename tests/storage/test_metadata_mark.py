"""The mark of the newest metadata that a log dir has seen: it may be behind, and is never ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.storage.files import metadata_mark
from pybroker.storage.files.metadata_mark import MARK_FILE, NOTHING_SEEN, read_mark, write_mark


def written(directory: Path, revision: int) -> bytes:
    write_mark(directory, revision)
    return (directory / MARK_FILE).read_bytes()


@given(revisions=st.tuples(st.integers(0, 2000), st.integers(0, 2000)).map(sorted))
def test_write_that_was_cut_short_is_never_ahead(
    tmp_path_factory: pytest.TempPathFactory, revisions: list[int]
) -> None:
    directory, (old, new) = tmp_path_factory.mktemp("mark"), revisions
    before, after = written(directory, old), written(directory, new)
    for count in range(len(after) + 1):
        (directory / MARK_FILE).write_bytes(after[:count] + before[count:])
        assert old <= read_mark(directory) <= new, f"cut at {count}"


def test_first_write_that_was_cut_short_says_nothing_or_all(tmp_path: Path) -> None:
    data = written(tmp_path, 29)
    for count in range(len(data) + 1):
        (tmp_path / MARK_FILE).write_bytes(data[:count])
        assert read_mark(tmp_path) == (29 if count >= metadata_mark._LINE_BYTES else NOTHING_SEEN)


@pytest.mark.parametrize("behind", [b"", b"\n", b"x" * 21, b"a remark\n"])
def test_first_line_counts_where_another_s_words_are_behind_it(tmp_path: Path, behind: bytes) -> None:
    (tmp_path / MARK_FILE).write_bytes(b"%020d\n" % 29 + behind)
    assert read_mark(tmp_path) == 29


def test_directory_without_a_mark_has_seen_nothing(tmp_path: Path) -> None:
    assert read_mark(tmp_path) == NOTHING_SEEN
