"""DESIGN.md names what exists: the files and folders of its map and of its text, and the functions of its walks.

What it says is to be made is set in italics, and not looked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import anchors
from tests.source_tree import ROOT, parsed

DESIGN = ROOT / "DESIGN.md"
FOLDERS = ("protocol", "pybroker", "examples", "compat-tests", "bench", "scripts", "tests", "docs")
# Packages below these have a line in the map each; those of tests and messages are told as a whole.
MAPPED = ("protocol/pybroker_protocol", "pybroker", "examples", "compat-tests", "bench")
WITHOUT_A_LINE = re.compile(r".*/(tests|messages)$")

_PATH = r"[A-Za-z_][\w-]*(?:/[\w-]+)*(?:/|\.(?:py|md|toml|c))"
_NAMES = r"`\w+`(?:(?:, | and )`\w+`)*"


def text() -> str:
    return DESIGN.read_text()


def drawing() -> str:
    match = re.search(r"^## Map\n.*?^```\n(.*?)^```\n", text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def mapped_paths() -> Iterator[Path]:
    """Every path that the map's lines begin with; an entry lies in the last folder that is less indented."""
    folders: list[tuple[int, Path]] = [(-1, ROOT)]
    for line in drawing().splitlines():
        match = re.match(rf"( *)((?:{_PATH} )+) *\S", line)
        assert match is not None, f"no path and no words: {line}"
        indent = len(match[1])
        while folders[-1][0] >= indent:
            folders.pop()
        names = match[2].split()
        yield from (folders[-1][1] / name for name in names)
        if names[0].endswith("/"):
            folders.append((indent, folders[-1][1] / names[0]))


@cache
def files_and_folders() -> tuple[str, ...]:
    """What lies in the checkout, below the folders that are the project's."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    paths = [*ROOT.glob("*.*"), *(ROOT / folder for folder in FOLDERS), *below]
    return tuple(f"/{path.relative_to(ROOT).as_posix()}{'/' if path.is_dir() else ''}" for path in paths)


def found(path: str) -> list[Path]:
    """What a path in the text may mean: it is told by its end, as far as that says which."""
    return [ROOT / each[1:] for each in files_and_folders() if each.endswith(f"/{path}")]


def defined(path: Path) -> set[str]:
    """Every name that a module defines or assigns, at any depth."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def test_every_entry_of_the_map_exists() -> None:
    missing = [str(path) for path in mapped_paths() if not path.exists()]
    assert not missing


def test_every_package_has_a_line_in_the_map() -> None:
    mapped = set(mapped_paths())
    sources = {path.parent for folder in MAPPED for path in (ROOT / folder).rglob("__init__.py")}
    below = {path for path in sources if not WITHOUT_A_LINE.match(path.relative_to(ROOT).as_posix())}
    assert ROOT / "pybroker" / "storage" / "log" in below
    assert below <= mapped, sorted(str(path.relative_to(ROOT)) for path in below - mapped)


def test_every_path_in_the_text_exists() -> None:
    named = set(re.findall(rf"`({_PATH})`", text()))
    assert "net/connection.py" in named
    assert not {path for path in named if not found(path)}


def test_every_function_that_stands_with_its_file_is_there() -> None:
    behind = re.findall(rf"`({_PATH})`(?: \||:)? ({_NAMES})", text())
    before = [(path, names) for names, path in re.findall(rf"({_NAMES}) (?:of|in) `({_PATH})`", text())]
    named = {(path, name) for path, names in (*behind, *before) for name in re.findall(r"`(\w+)`", names)}
    assert ("net/connection.py", "buffer_updated") in named
    wrong = {
        (path, name)
        for path, name in named
        if path.endswith(".py") and not any(name in defined(each) for each in found(path))
    }
    assert not wrong


def test_the_contents_lead_to_the_headings() -> None:
    assert set(re.findall(r"\]\(#([^)]+)\)", text())) <= anchors(DESIGN)
