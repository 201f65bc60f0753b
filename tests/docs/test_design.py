"""The pages for developers name what exists: files, folders, and the functions that stand with their file.

What a page says is to be made is set in italics, and not looked for.  The maps of files are generated
(``test_pages``); here is that every folder has one.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DEVELOPER_PAGES
from tests.source_tree import BROKER, ROOT, parsed, relative

DESIGN = ROOT / "DESIGN.md"
DESIGN_BYTES_MAX = 30_000
PAGES = (*DEVELOPER_PAGES, ROOT / "docs" / "differences.md", ROOT / "docs" / "limits.md")
FOLDERS = (
    "protocol",
    "pybroker",
    "pyspark_pybroker",
    "examples",
    "compat-tests",
    "bench",
    "scripts",
    "tests",
    "docs",
    "requirements",
)

_PATH = r"[A-Za-z_][\w-]*(?:/[\w-]+)*(?:/|\.(?:py|md|toml|c))"
_NAMES = r"`\w+`(?:(?:, | and )`\w+`)*"


@cache
def files_and_folders() -> tuple[str, ...]:
    """What lies in the checkout, below the folders that are the project's."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    paths = [*ROOT.glob("*.*"), *(ROOT / folder for folder in FOLDERS), *below]
    return tuple(f"/{path.relative_to(ROOT).as_posix()}{'/' if path.is_dir() else ''}" for path in paths)


def found(path: str) -> list[Path]:
    """What a path in a text may mean: its end says which, as far as it can."""
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


def paths_in(text: str) -> set[str]:
    return set(re.findall(rf"`({_PATH})`", text))


def functions_in(text: str) -> set[tuple[str, str]]:
    """Functions that stand with their file: (path, name)."""
    behind = re.findall(rf"`({_PATH})`(?: \||:)? ({_NAMES})", text)
    before = [(path, names) for names, path in re.findall(rf"({_NAMES}) (?:of|in) `({_PATH})`", text)]
    return {(path, name) for path, names in (*behind, *before) for name in re.findall(r"`(\w+)`", names)}


def test_the_design_is_short() -> None:
    assert len(DESIGN.read_bytes()) <= DESIGN_BYTES_MAX


def test_every_folder_of_the_source_has_a_readme_with_a_map() -> None:
    layers = {path.parent for path in BROKER.glob("*/__init__.py")} | {ROOT / name for name in ("protocol", "bench")}
    readmes = {folder: folder / "README.md" for folder in (BROKER, *layers)}
    missing = [
        relative(folder)
        for folder, readme in readmes.items()
        if not readme.exists() or "<!-- files:begin -->" not in readme.read_text()
    ]
    assert not missing
    assert "<!-- folders:begin -->" in (ROOT / "compat-tests" / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_path_in_the_text_exists(page: Path) -> None:
    assert not {path for path in paths_in(page.read_text()) if not found(path)}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_function_that_stands_with_its_file_is_there(page: Path) -> None:
    wrong = {
        (path, name)
        for path, name in functions_in(page.read_text())
        if path.endswith(".py") and not any(name in defined(each) for each in found(path))
    }
    assert not wrong


def test_paths_and_functions_of_a_text_are_found() -> None:
    text = (
        "`net/framing.py` cuts; `serve` and `learn` in `net/fast_paths.py`, | `net/outbox.py` | `add`, `flush` |, `a/b`"
    )
    assert paths_in(text) == {"net/framing.py", "net/fast_paths.py", "net/outbox.py"}
    assert functions_in(text) == {
        ("net/fast_paths.py", "serve"),
        ("net/fast_paths.py", "learn"),
        ("net/outbox.py", "add"),
        ("net/outbox.py", "flush"),
    }
