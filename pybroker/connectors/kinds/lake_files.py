"""Files of a directory that each row is in once, for readers that list the directory and know nothing of its writer.

Rows are staged first, below a folder that readers pass over and with names that have no ending.  What is staged for a
folder becomes one file when it is large or old enough; a rename lets readers see it.  So small files are compacted
before they are seen, and a file that is seen is never changed: no reader finds a row twice, or misses one.

Owns what is staged, merged and seen, and the crash between any two steps.  `lake_log` has the order of the changes,
`lake_forms` what files hold.  Counterparts in Kafka: the S3 sink's ``flush.size`` and ``rotate.interval.ms``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from pybroker.connectors.kinds.lake_forms import LakeForm
from pybroker.connectors.kinds.lake_log import LakeLog, LakeState, Publication, Staged, synced

# Spark, pandas and PyArrow pass over folders with an underscore in front.
OWN_FOLDER: Final = "_pybroker"
# So many files that are staged for one folder become one that is staged, which keeps states short.
_STAGED_MAX: Final = 64


class ColumnsRefused(RuntimeError):
    """Rows have a column that the files have not, or of another type, and the connector may not change that."""


class DirectoryGone(RuntimeError):
    """The directory does not have what an earlier run has written."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When what is staged is to be seen: from ``size`` bytes in a folder, or ``age_ms`` after its first row."""

    size: int
    age_ms: int


class FileLake:
    """The files of one connector in one directory; used by several threads of one run."""

    def __init__(
        self,
        directory: Path,
        name: str,
        form: LakeForm,
        bounds: Bounds,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1_000),
    ) -> None:
        self._directory, self._form, self._bounds = directory, form, bounds
        self.now_ms = now_ms
        self._own = directory / OWN_FOLDER / quote(name, safe="")
        self._log = LakeLog(self._own / "log")
        self.staging = self._own / "staged"
        self._lock = threading.Lock()
        # Set when a change failed half way: the next run ends it.
        self._has_failed = False

    def open(self, *, has_written: bool) -> None:
        """Let no earlier run write, and end what it has begun; raises `DirectoryGone`, OSError."""
        if has_written and not self._log.exists:
            raise DirectoryGone(
                f"{self._directory} does not have what the connector has written there: it is away, or was emptied.  "
                "After a reset of its offsets the connector begins anew"
            )
        with self._lock:
            state = self._log.claim()
            self.staging.mkdir(exist_ok=True)
            self._see(state)
            used = {each.file for each in state.staged}
            for left in self.staging.iterdir():
                if left.name not in used:
                    left.unlink(missing_ok=True)

    def has(self, query: str, epoch: int) -> bool:
        """Whether a micro-batch was staged."""
        return self._log.state.has(query, epoch)

    def check(self, columns: Mapping[str, str], *, evolves: bool, is_whole: bool) -> None:
        """Raise `ColumnsRefused` where rows of ``columns``, each with its type, do not fit those before.

        Where it ``is_whole`` they must have all columns, in the same order.
        """
        known = self._log.state.columns
        if is_whole and known and list(known) != list(columns):
            raise ColumnsRefused(f"the files have the columns {', '.join(known)}, and rows {', '.join(columns)}")
        for name, kind in columns.items():
            if known and name not in known and not evolves:
                raise ColumnsRefused(f"the files have no column {name}, and auto.evolve is false")
            if known.get(name, kind) != kind:
                raise ColumnsRefused(f"the files have the column {name} as {known[name]}, and rows as {kind}")

    def stage(self, query: str, epoch: int, staged: Sequence[Staged], columns: Mapping[str, str]) -> None:
        """Take over the files of a micro-batch, which are complete; raises `LakeTaken`."""
        with self._changing():
            state = self._log.state
            if state.has(query, epoch):
                return
            known, files = {**state.columns, **columns}, (*state.staged, *staged)
            self._log.commit(replace(state, query=query, epoch=epoch, columns=known, staged=files))

    def publish(self, *, all_of_it: bool = False) -> int:
        """Let readers see what is due; the number of new files.  Raises `LakeTaken`, OSError."""
        due: list[list[Staged]] = []
        with self._changing():
            for group in self._groups():
                taken: list[Staged] = []
                for each in group:
                    taken.append(each)
                    if sum(one.size for one in taken) >= self._bounds.size:
                        due.append(taken)
                        taken = []
                is_old = taken and self.now_ms() - taken[0].since_ms >= self._bounds.age_ms
                if taken and (is_old or all_of_it):
                    due.append(taken)
                elif len(taken) > _STAGED_MAX:
                    self._fold(taken)
            if due:
                self._publish(due)
        return len(due)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            if self._has_failed:
                raise DirectoryGone(f"an earlier change in {self._directory} failed")
            self._has_failed = True
            yield
            self._has_failed = False

    def _groups(self) -> list[list[Staged]]:
        """What is staged, by folder and columns, in order."""
        found: dict[tuple[str, str], list[Staged]] = {}
        for each in self._log.state.staged:
            found.setdefault((each.folder, each.columns), []).append(each)
        return list(found.values())

    def _publish(self, due: Sequence[Sequence[Staged]]) -> None:
        made: list[Publication] = []
        number = self._log.state.number + 1
        for taken in due:
            temporary = self._merged(taken, is_last=True)
            name = f"part-{number:010d}-{temporary[:12]}{self._form.ending}"
            made.append(Publication(temporary, f"{taken[0].folder}/{name}" if taken[0].folder else name))
        taken = [each for group in due for each in group]
        # What an earlier change was to show is seen: `_see` follows each commit, and the first one of a run.
        rest = _without(self._log.state, taken)
        self._see(self._log.commit(replace(self._log.state, staged=rest, publications=tuple(made))))
        self._remove(taken)

    def _fold(self, taken: Sequence[Staged]) -> None:
        file = self._merged(taken, is_last=False)
        whole = replace(
            taken[0], file=file, rows=sum(each.rows for each in taken), size=(self.staging / file).stat().st_size
        )
        state = self._log.state
        self._log.commit(replace(state, staged=(*_without(state, taken), whole)))
        self._remove(taken)

    def _merged(self, taken: Sequence[Staged], *, is_last: bool) -> str:
        name = uuid4().hex
        target = self.staging / name
        header = taken[0].columns if is_last else None
        self._form.merge([self.staging / each.file for each in taken], target, header)
        synced(target)
        return name

    def _see(self, state: LakeState) -> None:
        for each in state.publications:
            target = self._directory / each.target
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.staging / each.temporary).rename(target)
            except FileNotFoundError:
                continue  # it is seen, or was, and the user has removed it
            synced(target.parent)

    def _remove(self, taken: Sequence[Staged]) -> None:
        for each in taken:
            (self.staging / each.file).unlink(missing_ok=True)


def _without(state: LakeState, taken: Sequence[Staged]) -> tuple[Staged, ...]:
    gone = {each.file for each in taken}
    return tuple(each for each in state.staged if each.file not in gone)
