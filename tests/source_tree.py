"""The project's own sources, parsed, for the tests that judge them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BROKER = ROOT / "pybroker"
WIRE = ROOT / "protocol" / "pybroker_protocol"


class Import(NamedTuple):
    """One imported module; ``for_types_only`` when it stands under ``if TYPE_CHECKING``."""

    module: str
    line: int
    for_types_only: bool


@cache
def python_files(*folders: Path) -> tuple[Path, ...]:
    """Every Python source below the folders, sorted."""
    return tuple(sorted(path for folder in folders for path in folder.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> list[Import]:
    """Every import of a file, at any depth."""
    return imports_in(parsed(path))


def imports_in(tree: ast.AST) -> list[Import]:
    """Every import of a parsed file, at any depth."""
    return list(_imports_below(tree, for_types_only=False))


def _imports_below(node: ast.AST, for_types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, for_types_only)
        elif isinstance(child, ast.ImportFrom):
            yield from _imports_from(child, for_types_only)
        else:
            yield from _imports_below(child, for_types_only or _is_type_checking_block(child))


def _imports_from(node: ast.ImportFrom, for_types_only: bool) -> Iterator[Import]:
    """``from pybroker import x`` may import a module ``x``, so the name is reported as part of the path."""
    assert node.level == 0, "imports are absolute"
    assert node.module is not None
    for alias in node.names:
        yield Import(f"{node.module}.{alias.name}", node.lineno, for_types_only)


def _is_type_checking_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
