"""Names of the code in docstrings, and on the pages beside it, are names that the code has."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import DEVELOPER_PAGES
from tests.source_tree import BROKER, ROOT, WIRE, parsed, python_files, relative

SOURCES = python_files(BROKER, WIRE)
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\(\))?`")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAGES_BESIDE_IT = [page for page in DEVELOPER_PAGES if page.parent == ROOT or page.is_relative_to(BROKER)]
# Java's, Linux's, a file's, and what pytest's fixtures give.
OF_OTHERS = ("java.", "net.core.", "server.properties", "pybroker.bootstrap", "pybroker_cluster.bootstrap")


@cache
def names_below() -> Mapping[str, set[str]]:
    """What may stand behind the name of a folder, a module or a class and a dot."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        root = BROKER if path.is_relative_to(BROKER) else WIRE
        folders = path.relative_to(root.parent).parts[:-1]
        module = path.stem if path.stem != "__init__" else path.parent.name
        for folder, inner in pairwise((*folders, module)):
            found[folder].add(inner)
        tree = parsed(path)
        found[module] |= set(_named_in(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name] |= set(_named_in(node)) | {ast.unparse(base) for base in node.bases}
    return found


@cache
def strings() -> frozenset[str]:
    """All strings of the code: the names of settings are among them."""
    nodes = (node for path in SOURCES for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in nodes if isinstance(node.value, str))


def _named_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # slots, and what is imported at its first use
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).rpartition(".")[2]


def unknown(text: str) -> Iterator[str]:
    """Dotted names that begin with one of ours and go on with what is not there.

    Settings, which are strings of the code, and names of Kafka's, whose methods have humps, are passed over.
    """
    below = names_below()
    for name in DOTTED.findall(text):
        first, *rest = name.split(".")
        is_kafkas = first[0].isupper() and rest[-1] != rest[-1].lower()
        if first not in below or rest == ["py"] or name in strings() or is_kafkas or name.startswith(OF_OTHERS):
            continue
        if any(inner not in below.get(outer, ()) for outer, inner in pairwise([first, *rest])):
            yield name


def texts() -> Iterator[tuple[Path, str]]:
    """The pages beside the code without their blocks of it, and each docstring."""
    for page in PAGES_BESIDE_IT:
        yield page, CODE_BLOCK.sub("", page.read_text())
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, ast.get_docstring(node) or ""


def test_names_in_prose_are_in_the_code() -> None:
    found = [f"{relative(path)}: {name}" for path, text in texts() for name in unknown(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see ``segment.Segment`` and `handlers.fetch.handle`", []),
        ("see ``segment.Sediment``", ["segment.Sediment"]),
        ("see `handlers.catch.handle()`", ["handlers.catch.handle"]),
        ("`log.retention.ms`, and ``LogManager.loadLogs`` of Kafka", []),
    ],
)
def test_a_name_that_is_not_there_is_noticed(text: str, names: list[str]) -> None:
    assert list(unknown(text)) == names
