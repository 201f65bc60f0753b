"""Where lines stand in files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.connectors.kinds import line_places
from pybroker.connectors.kinds.line_places import can_be_searched, numbers_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "a [1] é.csv"
    made.write_bytes("id,name\r\n1,a\rno row\n\n2,b\nno row\nid,name\n\xe9".encode())
    return made


def test_lines_end_as_sparks_readers_have_it(file: Path) -> None:
    assert numbers_of(file.as_uri(), {"1,a", "no row", "é", "none"}) == {"1,a": [2], "no row": [3, 6], "é": [8]}


def test_a_header_is_no_line_that_is_searched_for(file: Path) -> None:
    assert numbers_of(file.as_uri(), {"id,name"}) == {"id,name": [1, 7]}
    assert numbers_of(file.as_uri(), {"id,name"}, has_header=True) == {"id,name": [7]}


def test_of_a_text_that_stands_often_the_first_lines_are_told(file: Path) -> None:
    file.write_text("x\n" * 1_000)
    assert numbers_of(file.as_uri(), {"x"}) == {"x": list(range(1, 11))}


def test_a_line_of_a_file_that_cannot_be_read_here_has_no_number(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers_of("s3a://bucket/a.csv", {"x"}) == {}
    assert numbers_of((file.parent / "gone").as_uri(), {"x"}) == {}
    monkeypatch.setattr(line_places, "_BYTES_MAX", 3)
    assert numbers_of(file.as_uri(), {"no row"}) == {}


def test_a_large_file_is_not_searched(tmp_path: Path) -> None:
    large = tmp_path / "a.csv"
    with large.open("wb") as made:
        made.truncate(64 << 20)
    assert can_be_searched(large.as_uri())
    with large.open("ab") as made:
        made.write(b"x")
    assert not can_be_searched(large.as_uri())


@pytest.mark.parametrize("end", ["gz", "bz2", "deflate", "lz4", "snappy", "zst"])
def test_a_packed_file_is_not_searched(tmp_path: Path, end: str) -> None:
    packed = tmp_path / f"a.csv.{end}"
    packed.write_bytes(b"x")
    assert not can_be_searched(packed.as_uri())


class NoSpark:
    """A session that is asked for nothing."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"Spark is asked for {name}")


@pytest.mark.parametrize("file", ["large", "gone", "packed.gz"])
def test_spark_reads_no_file_once_more_in_which_no_line_would_be_found(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    from pybroker.connectors.kinds.file_source import _line_of

    (tmp_path / "large").write_text("no row\n")
    (tmp_path / "packed.gz").write_bytes(b"x")
    monkeypatch.setattr(line_places, "_BYTES_MAX", 3)
    work: Any = SimpleNamespace(spark=NoSpark())
    assert _line_of(work, f"Encountered error while reading file {(tmp_path / file).as_uri()}. ") == ""
