"""What files of a directory hold: Parquet, or lines of JSON, CSV or text.

Owns how rows are parted by time, written by Spark's tasks, and merged.  Rows come as batches of Arrow: their last
column is the time that they are parted by, and rows of lines have the line as the only other one.

Invariants: what a task gives back are files that are complete; rows of one file have one folder.  A time that Python
and other readers have no date of, before the year 1 or behind 9999, is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pybroker.connectors.kinds.lake_log import synced

# Folders of one time span, named as Hive does, in UTC.
FOLDERS: Final = {"none": "", "month": "month=%Y-%m", "day": "day=%Y-%m-%d", "hour": "day=%Y-%m-%d/hour=%H"}
STAGED_COLUMNS: Final = "file string, folder string, rows bigint, size bigint"
_UNIT: Final = {"month": "month", "day": "day", "hour": "hour"}
_WITHOUT_TIME: Final = "__HIVE_DEFAULT_PARTITION__"
_FIRST: Final = datetime(1, 1, 1)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999)
_OPEN_MAX: Final = 32
_ROW_GROUP: Final = 500_000
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_COPIED: Final = 1024 * 1024


class LakeForm(Protocol):
    """A form of files; it is sent to Spark's tasks."""

    @property
    def ending(self) -> str:
        """The ending of a file's name."""
        ...

    def writer(self, path: Path, schema: pa.Schema) -> RowsWriter:
        """Begin a file of rows of one schema."""
        ...

    def merge(self, sources: Sequence[Path], target: Path, header: str | None) -> None:
        """Make one file of several that have the same columns, which ``header`` names where the file is to be seen."""
        ...


class RowsWriter(Protocol):
    """A file that is written."""

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True)
class ParquetForm:
    """Files of Parquet."""

    compression: str

    @property
    def ending(self) -> str:
        """See `LakeForm`."""
        return ".parquet"

    def writer(self, path: Path, schema: pa.Schema) -> RowsWriter:
        """See `LakeForm`."""
        made: RowsWriter = pq.ParquetWriter(path, schema, compression=self.compression)
        return made

    def merge(self, sources: Sequence[Path], target: Path, header: str | None) -> None:
        """See `LakeForm`.  Row groups of many small files become large ones."""
        kept: list[pa.Table] = []
        with pq.ParquetWriter(target, pq.read_schema(sources[0]), compression=self.compression) as writer:
            for source in sources:
                with pq.ParquetFile(source) as file:
                    for batch in file.iter_batches():
                        kept.append(pa.Table.from_batches([batch]))
                        is_full = sum(each.nbytes for each in kept) >= _ROW_GROUP_BYTES
                        if is_full or sum(each.num_rows for each in kept) >= _ROW_GROUP:
                            writer.write_table(pa.concat_tables(kept).cast(writer.schema))
                            kept = []
            if kept:
                writer.write_table(pa.concat_tables(kept).cast(writer.schema))


@dataclass(frozen=True, slots=True)
class LinesForm:
    """Files of lines, the first of which names the columns where it ``has_header``."""

    ending: str
    has_header: bool = False

    def writer(self, path: Path, schema: pa.Schema) -> RowsWriter:
        """See `LakeForm`."""
        return _LinesWriter(path)

    def merge(self, sources: Sequence[Path], target: Path, header: str | None) -> None:
        """See `LakeForm`."""
        with target.open("xb") as whole:
            if self.has_header and header is not None:
                whole.write(f"{header}\n".encode())
            for source in sources:
                with source.open("rb") as part:
                    while copied := part.read(_COPIED):
                        whole.write(copied)


class _LinesWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")

    def write(self, rows: pa.Table) -> None:
        """See `RowsWriter`."""
        self._file.write(b"".join(f"{line or ''}\n".encode() for line in rows.column(0).to_pylist()))

    def close(self) -> None:
        """See `RowsWriter`."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class TaskWriting:
    """What a task of Spark does with its rows: it writes them to files in ``directory``, parted by time."""

    directory: str
    form: LakeForm
    by: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The files, as `STAGED_COLUMNS`; each is complete."""
        files = _TaskFiles(Path(self.directory), self.form)
        for batch in batches:
            if batch.num_rows:
                rows = pa.Table.from_batches([batch])
                times, rows = rows.column(rows.num_columns - 1), rows.select(range(rows.num_columns - 1))
                for folder, part in _parted(rows, times, self.by):
                    files.write(folder, part)
        files.close()
        kinds = (pa.string(), pa.string(), pa.int64(), pa.int64())
        columns = [pa.array([each[at] for each in files.written], kind) for at, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(columns, ["file", "folder", "rows", "size"])


class _TaskFiles:
    def __init__(self, directory: Path, form: LakeForm) -> None:
        self._directory, self._form = directory, form
        self._open: dict[str, tuple[str, RowsWriter]] = {}
        self._rows: dict[str, int] = {}
        self.written: list[tuple[str, str, int, int]] = []

    def write(self, folder: str, rows: pa.Table) -> None:
        if folder not in self._open:
            if len(self._open) == _OPEN_MAX:
                self.close()
            name = uuid4().hex
            self._open[folder] = name, self._form.writer(self._directory / name, rows.schema)
            self._rows[folder] = 0
        self._open[folder][1].write(rows)
        self._rows[folder] += rows.num_rows

    def close(self) -> None:
        for folder, (name, writer) in self._open.items():
            writer.close()
            path = self._directory / name
            synced(path)
            self.written.append((name, folder, self._rows[folder], path.stat().st_size))
        self._open.clear()


def _parted(rows: pa.Table, times: pa.ChunkedArray, by: str) -> Iterator[tuple[str, pa.Table]]:
    """Rows by their folder, in the order in which folders come."""
    if by == "none":
        yield "", rows
        return
    moments = _utc(times)
    spans = pc.floor_temporal(moments, unit=_UNIT[by])
    for span in pc.unique(spans):
        if span.is_valid:
            # As UTC and without a zone, so that no database of zones is asked.
            moment = span.as_py()
            # Systems differ in how many digits a year below 1000 has.
            folder = moment.strftime(FOLDERS[by].replace("%Y", f"{moment.year:04d}"))
            yield folder, rows.filter(pc.equal(spans, span))
        else:
            yield (
                "/".join(f"{part.partition('=')[0]}={_WITHOUT_TIME}" for part in FOLDERS[by].split("/")),
                rows.filter(pc.is_null(spans)),
            )


def _utc(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times without a zone, in UTC."""
    kind = times.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        times = times.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    # Bounds of the same type: of a later date there are no microseconds.
    first, last = (pa.scalar(bound).cast(times.type, safe=False) for bound in (_FIRST, _LAST))
    is_dated = pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last))
    return pc.if_else(is_dated, times, pa.scalar(None, times.type)).cast(pa.timestamp("us"))
