"""A bound stands where it is read: the modules of limits hold what several files share, or what memory is a sum of."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.source_tree import BROKER, parsed, python_files, relative

MODULES = tuple(BROKER / f"{name}.py" for name in ("limits", "cluster_limits", "storage_limits"))

# Read by one file, and beside the others all the same: so much memory they bound over all connections, clients or logs.
BOUND_MEMORY_AS_A_SUM = {
    *("PENDING_CONNECTIONS_MAX", "HALF_OPEN_MAX", "HALF_OPEN_BYTES_MAX"),
    *("BUFFER_POOL_BYTES", "LARGE_REQUESTS_AT_ONCE", "LARGE_REQUESTS_BEGUN_MAX", "UNSENT_REPLIES_BYTES"),
    *("AUTHORIZER_DECISIONS", "TOKEN_KEYS_MAX", "SESSION_PARTITIONS_MAX"),
    *("COORDINATOR_KEYS_REMEMBERED", "REMEMBERED_COORDINATOR_KEY_CHARS", "SUBSCRIPTIONS_REMEMBERED"),
    *("TELEMETRY_INSTANCES", "TELEMETRY_PAYLOAD_BYTES"),
    *("COLD_BUFFER_BYTES_MAX", "MAPPED_BYTES_MAX"),
}


def bounds(module: Path) -> list[str]:
    """The names that a module of limits gives to numbers."""
    return [ast.unparse(node.targets[0]) for node in parsed(module).body if isinstance(node, ast.Assign)]


def read_in(tree: ast.AST) -> Iterator[str]:
    """The names that a file takes from a module of limits, by import or as ``limits.NAME``."""
    names = {module.stem for module in MODULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module in {f"pybroker.{name}" for name in names}:
            yield from (alias.name for alias in node.names)


def readers() -> Mapping[str, set[str]]:
    """The files of the broker that read each name, but for the modules of limits themselves."""
    found = defaultdict(set)
    for path in python_files(BROKER):
        if path not in MODULES and "limits" in path.read_text():
            for name in read_in(parsed(path)):
                found[name].add(relative(path))
    return found


def test_a_bound_that_one_file_reads_stands_in_that_file() -> None:
    by_name = readers()
    lonely = {name: by_name[name] for module in MODULES for name in bounds(module) if len(by_name[name]) < 2}
    misplaced = [f"{name}: {', '.join(files) or 'no file'}" for name, files in lonely.items()]
    assert lonely.keys() == BOUND_MEMORY_AS_A_SUM, "\n".join(misplaced)


@pytest.mark.parametrize(
    "code",
    ["size > limits.BYTES", "from pybroker.storage_limits import BYTES", "from pybroker.limits import BYTES as most"],
)
def test_a_read_bound_is_noticed(code: str) -> None:
    assert list(read_in(ast.parse(code))) == ["BYTES"]
