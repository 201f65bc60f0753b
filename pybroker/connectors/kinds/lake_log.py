"""What a directory of files has taken, as a log of numbered states, each written by one run alone.

A state is a file of JSON whose name is its number, without an ending, so that no pattern of JSON files finds it.  A
link that must not exist yet makes it: of two runs which write the next state one fails.  `LakeLog.claim` writes a
state, too, and so the run before can commit nothing behind it.

Owns the states and their order; what the files hold is not known here.  Invariants: the last state is never removed;
a run whose commit failed writes nothing more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

_KEPT: Final = 2


class LakeTaken(RuntimeError):
    """Another run writes to the directory."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A file that is written, and not seen yet.  Its rows belong in ``folder``, which is relative to the directory.

    ``since_ms`` is when the first of its rows came, in ms since 1970; ``columns`` names what its rows have.
    """

    file: str
    folder: str
    columns: str
    rows: int
    size: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Publication:
    """A file that is about to be seen: ``temporary`` is renamed to ``target``, relative to the directory."""

    temporary: str
    target: str


@dataclass(frozen=True, slots=True)
class LakeState:
    """All that is known behind one change.  ``epoch`` is the last micro-batch of ``query`` whose rows are staged."""

    number: int = 0
    query: str = ""
    epoch: int = -1
    columns: Mapping[str, str] = field(default_factory=dict)
    staged: tuple[Staged, ...] = ()
    publications: tuple[Publication, ...] = ()

    def has(self, query: str, epoch: int) -> bool:
        """Whether the rows of a micro-batch are staged or seen."""
        return query == self.query and epoch <= self.epoch


class LakeLog:
    """The states of one connector in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.state = LakeState()

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return bool(self._numbers())

    def claim(self) -> LakeState:
        """Read the last state, and let no other run commit behind it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        while True:
            number = max(self._numbers(), default=0)
            if number:
                try:
                    self.state = _read(self._directory / _name(number))
                except FileNotFoundError:
                    continue  # another run has written two more meanwhile
            try:
                return self.commit(self.state)
            except LakeTaken:
                continue

    def commit(self, state: LakeState) -> LakeState:
        """Write the next state, which gets its number here; raises `LakeTaken`."""
        made = replace(state, number=self.state.number + 1)
        at, temporary = self._directory / _name(made.number), self._directory / f".{uuid4().hex}"
        try:
            _write(temporary, json.dumps(asdict(made), separators=(",", ":")))
            os.link(temporary, at)
        except FileExistsError:
            raise LakeTaken(f"another run writes to {self._directory.parent.parent}") from None
        finally:
            temporary.unlink(missing_ok=True)
        synced(self._directory)
        numbers = self._numbers()
        if max(numbers) > made.number:
            # Its number had been written before, and removed as an old one.
            at.unlink(missing_ok=True)
            raise LakeTaken(f"another run writes to {self._directory.parent.parent}")
        for number in numbers:
            if number <= made.number - _KEPT:
                (self._directory / _name(number)).unlink(missing_ok=True)
        self.state = made
        return made

    def _numbers(self) -> list[int]:
        if not self._directory.is_dir():
            return []
        return [int(each.name) for each in self._directory.iterdir() if each.name.isdecimal()]


def synced(path: Path) -> None:
    """Have the disk keep a file, or the names in a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(number: int) -> str:
    return f"{number:020d}"


def _write(path: Path, text: str) -> None:
    with path.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> LakeState:
    found: dict[str, Any] = json.loads(path.read_text())
    staged = tuple(Staged(**each) for each in found.pop("staged"))
    publications = tuple(Publication(**each) for each in found.pop("publications"))
    return LakeState(**found, staged=staged, publications=publications)
