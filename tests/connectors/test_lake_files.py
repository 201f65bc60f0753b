"""Files of a directory, without Spark: what readers see while rows are staged and merged, and after any crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from pybroker.connectors.kinds.lake_files import OWN_FOLDER, Bounds, ColumnsRefused, DirectoryGone, FileLake  # noqa: E402
from pybroker.connectors.kinds.lake_forms import LinesForm, ParquetForm, TaskWriting  # noqa: E402
from pybroker.connectors.kinds.lake_log import LakeTaken, Staged  # noqa: E402

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
COLUMNS = {"id": "bigint"}
NEVER = Bounds(1 << 40, 1 << 40)
AT_ONCE = Bounds(1, 0)


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def lake(directory: Path, bounds: Bounds = NEVER, form: Any = None, clock: Callable[[], int] = Clock()) -> FileLake:  # noqa: B008
    made = FileLake(directory, "rows", form or ParquetForm("zstd"), bounds, clock)
    made.open(has_written=False)
    return made


def write(one: FileLake, epoch: int, ids: list[int], hours: int = 0, query: str = "q", by: str = "hour") -> None:
    """A micro-batch; each row's time is ``hours`` times its id behind noon."""
    if one.has(query, epoch):
        return
    times = pa.array([NOON + timedelta(hours=hours * each) for each in ids], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), times], ["id", "_time"])
    (found,) = TaskWriting(str(one.staging), one._form, by)(iter([batch]))
    staged = [
        Staged(each["file"], each["folder"], "id", each["rows"], each["size"], one.now_ms())
        for each in found.to_pylist()
    ]
    one.stage(query, epoch, staged, COLUMNS)


def ids(directory: Path) -> list[int]:
    """Of each file that a pattern fits, also in folders that others pass over."""
    return sorted(each for file in directory.rglob("*.parquet") for each in pq.read_table(file)["id"].to_pylist())


def files(directory: Path) -> list[str]:
    seen = (each.relative_to(directory) for each in directory.rglob("*") if each.is_file())
    return sorted(str(each.parent) for each in seen if each.parts[0] != OWN_FOLDER)


def test_rows_are_seen_when_they_are_old_enough_and_small_files_are_one(tmp_path: Path) -> None:
    clock = Clock()
    one = lake(tmp_path, Bounds(1 << 40, 1_000), clock=clock)
    for epoch in range(5):
        write(one, epoch, [epoch])
    assert (one.publish(), ids(tmp_path)) == (0, [])
    clock.ms = 1_000
    assert (one.publish(), ids(tmp_path)) == (1, [0, 1, 2, 3, 4])
    assert files(tmp_path) == ["day=2026-08-01/hour=12"]
    assert list(one.staging.iterdir()) == []


def test_rows_are_seen_when_they_are_many_enough(tmp_path: Path) -> None:
    one = lake(tmp_path, Bounds(1_000, 1 << 40))
    for epoch in range(4):
        write(one, epoch, [epoch])
    sizes = [each.stat().st_size for each in one.staging.iterdir()]
    assert sum(sizes[:2]) >= 1_000 > max(sizes)
    assert (one.publish(), ids(tmp_path)) == (2, [0, 1, 2, 3])


def test_rows_are_parted_by_their_hour_of_utc(tmp_path: Path) -> None:
    one = lake(tmp_path, AT_ONCE)
    write(one, 0, [0, 1, 2, 1, 12], hours=1)
    one.publish()
    assert files(tmp_path) == [f"day=2026-08-01/hour={hour}" for hour in (12, 13, 14)] + ["day=2026-08-02/hour=00"]
    assert ids(tmp_path) == [0, 1, 1, 2, 12]


def test_other_readers_see_what_is_published_and_nothing_that_is_staged(tmp_path: Path) -> None:
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    one = lake(tmp_path, AT_ONCE)
    write(one, 0, [0, 1, 2], hours=1)
    one.publish()
    write(one, 1, [3, 4])
    found = duckdb.sql(f"SELECT id, day, hour FROM read_parquet('{tmp_path}/**/*.parquet') ORDER BY id").fetchall()
    assert found == [(number, date(2026, 8, 1), 12 + number) for number in range(3)]
    frame = pandas.read_parquet(tmp_path)
    assert (sorted(frame["id"]), list(frame.columns)) == ([0, 1, 2], ["id", "day", "hour"])


def test_rows_without_a_time_have_a_folder_of_their_own(tmp_path: Path) -> None:
    writing = TaskWriting(str(tmp_path), ParquetForm("none"), "hour")
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([None], pa.timestamp("us", "UTC"))], ["id", "_time"])
    (found,) = writing(iter([batch]))
    assert found.column("folder").to_pylist() == ["day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), -719_162, 2_932_896),
        (pa.timestamp("us", "UTC"), -62_135_596_800_000_000, 253_402_300_799_999_999),
    ],
)
def test_rows_of_a_time_that_has_no_date_are_written_as_those_without_one(
    tmp_path: Path, kind: Any, first: int, last: int
) -> None:
    """A record's time may be any number: one of microseconds is taken for milliseconds of the year 58000."""
    bits = kind.bit_width
    times = [first, first - 1, last, last + 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    writing = TaskWriting(str(tmp_path), ParquetForm("none"), "day")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(times))), pa.array(times, pa.int32() if bits == 32 else pa.int64()).cast(kind)],
        ["id", "_time"],
    )
    (found,) = writing(iter([batch]))
    assert sorted(zip(found.column("folder").to_pylist(), found.column("rows").to_pylist(), strict=True)) == [
        ("day=0001-01-01", 1),
        ("day=9999-12-31", 1),
        ("day=__HIVE_DEFAULT_PARTITION__", 4),
    ]


def test_rows_of_more_folders_than_files_may_be_open_are_all_written(tmp_path: Path) -> None:
    one = lake(tmp_path, AT_ONCE)
    write(one, 0, list(range(100)), hours=1)
    one.publish()
    assert ids(tmp_path) == list(range(100))
    assert len(set(files(tmp_path))) == 100


def test_a_micro_batch_that_comes_again_is_passed_over(tmp_path: Path) -> None:
    one = lake(tmp_path, AT_ONCE)
    for query, epoch in (("q", 0), ("q", 0), ("q", 1), ("r", 0), ("q", 0)):
        write(one, epoch, [epoch], query=query)
        one.publish()
    # That of another query is a new one: its checkpoint was made anew.
    assert ids(tmp_path) == [0, 0, 0, 1]


def test_many_staged_files_are_folded_before_they_are_seen(tmp_path: Path) -> None:
    one = lake(tmp_path)
    for epoch in range(70):
        write(one, epoch, [epoch])
        one.publish()
    assert len(list(one.staging.iterdir())) < 70
    assert ids(tmp_path) == []
    one.publish(all_of_it=True)
    assert ids(tmp_path) == list(range(70))
    assert len(files(tmp_path)) == 1


def test_a_run_that_was_followed_by_another_writes_nothing_more(tmp_path: Path) -> None:
    former = lake(tmp_path)
    write(former, 0, [0])
    latter = lake(tmp_path)
    with pytest.raises(LakeTaken):
        former.publish(all_of_it=True)
    with pytest.raises(LakeTaken):
        write(lake_of_the_same_state(former, tmp_path), 1, [1])
    for epoch in range(1, 6):  # the state that the former one would write is long gone
        write(latter, epoch, [epoch])
    with pytest.raises(LakeTaken):
        write(lake_of_the_same_state(former, tmp_path), 1, [1])
    latter.publish(all_of_it=True)
    assert ids(tmp_path) == [0, 1, 2, 3, 4, 5]


def lake_of_the_same_state(former: FileLake, directory: Path) -> FileLake:
    """As it was before its change failed."""
    made = FileLake(directory, "rows", ParquetForm("zstd"), NEVER)
    made._log.state = former._log.state
    return made


def test_a_directory_without_what_was_written_there_is_refused(tmp_path: Path) -> None:
    made = FileLake(tmp_path / "away", "rows", ParquetForm("zstd"), NEVER)
    with pytest.raises(DirectoryGone, match="it is away, or was emptied"):
        made.open(has_written=True)
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize(
    ("columns", "evolves", "is_whole", "told"),
    [
        ({"id": "bigint", "more": "int"}, False, False, "no column more, and auto.evolve is false"),
        ({"id": "bigint", "more": "int"}, True, True, "the files have the columns id, and rows id, more"),
        ({"id": "string"}, True, False, "the column id as bigint, and rows as string"),
        ({"id": "bigint", "more": "int"}, True, False, None),
        ({}, False, False, None),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, columns: dict[str, str], evolves: bool, is_whole: bool, told: str | None
) -> None:
    one = lake(tmp_path)
    write(one, 0, [0])
    if told is None:
        one.check(columns, evolves=evolves, is_whole=is_whole)
    else:
        with pytest.raises(ColumnsRefused, match=told):
            one.check(columns, evolves=evolves, is_whole=is_whole)


def test_lines_are_in_one_file_below_one_header(tmp_path: Path) -> None:
    one = lake(tmp_path, form=LinesForm(".csv", has_header=True))
    for epoch in range(3):
        times = pa.array([NOON], pa.timestamp("us", "UTC"))
        batch = pa.RecordBatch.from_arrays([pa.array([f"{epoch},é"]), times], ["line", "_time"])
        (found,) = TaskWriting(str(one.staging), one._form, "none")(iter([batch]))
        (file,) = found.column("file").to_pylist()
        one.stage("q", epoch, [Staged(file, "", "id,name", 1, 5, 0)], {"id": "bigint", "name": "string"})
    one.publish(all_of_it=True)
    (path,) = tmp_path.rglob("*.*")  # what is staged, and the log, have no ending that a pattern could fit
    assert path.read_text() == "id,name\n0,é\n1,é\n2,é\n"


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Has the n-th change of the disk from now on not happen, nor any behind it."""
    left = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return call(*args, **kwargs)

        return change

    for owner, name in ((os, "link"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    monkeypatch.setattr(os, "fsync", counted(lambda _: None))

    def crash(after: int) -> None:
        left[0] = after

    yield crash
    monkeypatch.undo()


def test_each_row_is_seen_once_wherever_a_run_ends(tmp_path: Path, crash_at: Callable[[int], None]) -> None:
    whole = 10**9
    for steps in range(200):
        directory = tmp_path / str(steps)
        crash_at(whole)
        one, epoch, crashed = lake(directory, AT_ONCE), 0, False
        crash_at(steps)
        while epoch < 3:
            try:
                write(one, epoch, [epoch * 2, epoch * 2 + 1], hours=1)
                one.publish()
                epoch += 1
            except Crash:
                crash_at(whole)
                crashed = True
                assert len(set(ids(directory))) == len(ids(directory))
                one = lake(directory, AT_ONCE)
        one.publish(all_of_it=True)
        assert ids(directory) == [0, 1, 2, 3, 4, 5], f"a crash after {steps} changes"
        assert list(one.staging.iterdir()) == [], f"a crash after {steps} changes"
        if not crashed:
            break
    assert steps > 40
    assert not crashed
