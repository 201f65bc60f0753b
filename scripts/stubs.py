"""What ``scripts/new-api`` and ``scripts/new-setting`` share: rows that go into tables, and files that are new.

Owns: ``Stubs``, the changes of a checkout, which are made all together or not at all; ``Refused``, the one line with
which a script ends that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]


class Refused(Exception):
    """Nothing is made; the text is one line."""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaint is one line, too."""

    def error(self, message: str) -> NoReturn:
        raise Refused(" ".join(message.split()))


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant, to stand behind a refusal; empty where nothing is near."""
    found = get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]}?" if found else ""


class Table(NamedTuple):
    """Where the rows of a table stand in its module: a tuple, list or dict, what a function returns, or a class.

    ``order`` gives what the rows are sorted by; without it a new row comes last.
    """

    path: str
    name: str
    order: Callable[[ast.AST], Any] | None = None


class _Rows(NamedTuple):
    """``end``: how many lines stand before one behind the last row."""

    nodes: Sequence[ast.AST]
    end: int


class Stubs:
    """Changes of a checkout that are not written yet."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._texts: dict[str, str] = {}
        self.made: list[tuple[str, str]] = []

    def create(self, path: str, text: str, what: str) -> None:
        """A new file; raises ``Refused`` where there is one."""
        if (self._root / path).exists():
            raise Refused(f"{path} is there already")
        self._texts[path] = text
        self.made.append((path, what))

    def add_row(self, table: Table, row: str, key: Any, what: str) -> None:
        """A row in its place among the others, by the table's order."""
        text = self._text(table.path)
        rows = _rows(ast.parse(text), table.name)
        behind = (each for each in rows.nodes if table.order is not None and table.order(each) > key)
        line = next((_line(each) - 1 for each in behind), rows.end)
        lines = text.splitlines(keepends=True)
        indent = " " * rows.nodes[0].col_offset  # type: ignore[attr-defined]
        lines[line:line] = [f"{indent}{each}\n" for each in row.splitlines()]
        self._texts[table.path] = "".join(lines)
        self.made.append((table.path, what))

    def add_imports(self, path: str, module: str, names: Sequence[str]) -> None:
        """Names that a row needs of a module from which its table imports some already."""
        text = self._text(path)
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module == module:
                wanted = sorted({*names, *(each.name for each in node.names)})
                lines = text.splitlines(keepends=True)
                lines[node.lineno - 1 : node.end_lineno] = [f"from {module} import {', '.join(wanted)}\n"]
                self._texts[path] = "".join(lines)
                return
        raise LookupError(f"{path} imports nothing from {module}")

    def _text(self, path: str) -> str:
        return self._texts.get(path) or (self._root / path).read_text()

    def write(self) -> None:
        """Make the changes, formatted, and the generated parts of the pages that follow from them."""
        for path, text in self._texts.items():
            (self._root / path).write_text(text)
        paths = list(self._texts)
        self._run("-m", "ruff", "check", "-q", "--no-cache", "--select", "I", "--fix", *paths)
        self._run("-m", "ruff", "format", "-q", "--no-cache", *paths)
        self._run("scripts/docs.py")

    def _run(self, *arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], cwd=self._root, check=True)


def _rows(tree: ast.Module, name: str) -> _Rows:
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return _elements(value)
            case ast.FunctionDef(name=found, body=[*_, ast.Return(value=ast.expr() as value)]) if found == name:
                return _elements(value)
            case ast.ClassDef(name=found) if found == name:
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
                return _Rows(fields, fields[-1].end_lineno or 0)
    raise LookupError(f"there is no table {name}")


def _elements(value: ast.expr) -> _Rows:
    assert isinstance(value, ast.Tuple | ast.List | ast.Dict), "a table"
    nodes = value.elts if not isinstance(value, ast.Dict) else [key for key in value.keys if key is not None]
    return _Rows(nodes, (value.end_lineno or 0) - 1)


def _line(node: ast.AST) -> int:
    line: int = node.lineno  # type: ignore[attr-defined]
    return line


def run(program: str, make: Callable[[Sequence[str]], tuple[Stubs, Sequence[str]]], arguments: Sequence[str]) -> int:
    """Make what a script makes, and tell what was made and what ``make`` says is left to do; the exit code."""
    try:
        stubs, left = make(arguments)
    except Refused as refused:
        print(f"{program}: {refused}", file=sys.stderr)
        return 2
    stubs.write()
    print("made:")
    for path, what in stubs.made:
        print(f"  {path}: {what}")
    print("to be filled in:")
    for number, each in enumerate(left, 1):
        print(f"  {number}. {each}")
    return 0
