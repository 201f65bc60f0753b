"""Every call of the operating system by which the log touches files goes through one module, where faults are planted.

Owns: what counts as such a call, found in the parsed source.  No planted fault meets what goes past ``os_file``, and
the simulation's disk does not see it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.source_tree import BROKER, imports_in, parsed, python_files, relative

STORAGE = BROKER / "storage"
# The modules that call the system.
CALLERS = (STORAGE / "files" / "os_file.py", STORAGE / "files" / "os_process.py")
# What they have in a log dir the simulation's disk sees, too.
SQLITE = BROKER / "cluster" / "store" / "sqlite"
FILES_BESIDE_THE_LOG = (SQLITE / "reserved_space.py", SQLITE / "sqlite_tables.py")

# What of ``os`` touches no file, besides the flags of an open.
NO_CALLS = {"PathLike", "_exit", "environ", "fspath", "pathsep", "strerror"}
FLAGS = "O_"
# Ways to files past ``os``.
MODULES = {"_io", "ctypes", "fcntl", "glob", "io", "mmap", "posix", "shutil", "tempfile"}
METHODS_OF_PATHS = {
    "chmod",
    "exists",
    "expanduser",
    "glob",
    "hardlink_to",
    "is_dir",
    "is_file",
    "is_mount",
    "is_symlink",
    "iterdir",
    "lchmod",
    "lstat",
    "mkdir",
    "read_bytes",
    "read_text",
    "readlink",
    "rename",
    "resolve",
    "rglob",
    "rmdir",
    "samefile",
    "stat",
    "symlink_to",
    "touch",
    "unlink",
    "walk",
    "write_bytes",
    "write_text",
}
NAMES_OF_PATHS = ("path", "file", "directory", "folder")


def system_calls(code: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of each call of the system for a file, and of each function of ``os_file`` bound at an import."""
    for module, line, for_types_only in imports_in(code):
        if not for_types_only and _leads_to_files(module):
            yield line, f"import of {module}"
    for node in ast.walk(code):
        if isinstance(node, ast.alias | ast.expr) and _is_system_call(node):
            yield node.lineno, ast.unparse(node)


def _leads_to_files(module: str) -> bool:
    """A function of ``os_file`` that is imported by its name stays what it is when a fault is planted."""
    root, _, name = module.partition(".")
    if root == "os":
        return bool(name) and not _touches_no_file(name)
    return root in MODULES or ".os_file." in module or ".os_process." in module


def _is_system_call(node: ast.alias | ast.expr) -> bool:
    """Some methods of paths have names that others have, too: ``log.open()``, ``text.replace(old, new)``."""
    match node:
        case ast.alias(name="os", asname=str()) | ast.Name(id="open"):
            return True
        case ast.Attribute(value=ast.Name(id="os")):
            return not _touches_no_file(node.attr)
        case ast.Attribute(value=ast.Name(id="os_file")):
            return False
        case ast.Attribute():
            return node.attr in METHODS_OF_PATHS
        case ast.Call(func=ast.Attribute(attr="replace")):
            return len(node.args) == 1 and not node.keywords
        case ast.Call(func=ast.Attribute(attr="open", value=owner)):
            return bool(node.args or node.keywords) or _is_path(owner)
    return False


def _touches_no_file(name: str) -> bool:
    return name in NO_CALLS or name.startswith(FLAGS)


def _is_path(node: ast.expr) -> bool:
    """Whether it looks like one: ``directory / name``, ``self.path``, ``Path(...)``, ``segment.path()``."""
    match node:
        case ast.BinOp():
            return True
        case ast.Call():
            return _is_path(node.func)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lower().endswith(NAMES_OF_PATHS)
    return False


def test_the_log_calls_the_system_in_one_place() -> None:
    held = [path for path in python_files(STORAGE) if path not in CALLERS]
    found = [
        f"{relative(path)}:{line}: {what}"
        for path in (*held, *FILES_BESIDE_THE_LOG)
        for line, what in system_calls(parsed(path))
    ]
    assert not found, "\n".join(["to be a function of storage/files/os_file.py:", *found])


@pytest.mark.parametrize(
    "code",
    [
        "os.unlink(path)",
        "os.close(fd)",
        "executor.submit(os.fsync)",
        "os.path.exists(path)",
        "import os.path",
        "from os import truncate",
        "import os as system",
        "import shutil",
        "def remove(path):\n    from shutil import rmtree",
        "from mmap import mmap",
        "import fcntl",
        "open(path)",
        "with open(path, 'rb') as file: pass",
        "partial(open, path)",
        "path.unlink(missing_ok=True)",
        "(directory / name).unlink()",
        "remover.submit(path.unlink)",
        "entry.stat().st_size",
        "self.path.read_bytes()",
        "segment.path().exists()",
        "path.open('rb')",
        "path.open()",
        "(directory / name).open()",
        "Path(name).open()",
        "temporary.rename(path)",
        "temporary.replace(path)",
        "from pybroker.storage.files.os_file import pwrite",
    ],
)
def test_a_call_past_the_one_place_is_noticed(code: str) -> None:
    assert list(system_calls(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "from pybroker.storage.files import os_file",
        "import os",
        "os_file.unlink(path)",
        "os_file.stat(path).st_size",
        "os_file.close(os_file.open_fd(path, os.O_RDWR | os.O_CREAT))",
        "OSError(code, os.strerror(code), os.fspath(path))",
        "log.open()",
        "segment.open()",
        "text.replace('a', 'b')",
        "path.with_name(path.name + '.tmp').parent / 'name'",
        "if TYPE_CHECKING:\n    from mmap import mmap",
    ],
)
def test_what_touches_no_file_or_goes_through_the_one_place_is_allowed(code: str) -> None:
    assert not list(system_calls(ast.parse(code)))
