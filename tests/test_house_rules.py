"""The house rules that a machine can check: short functions, docstrings, nothing left over, no stray output."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import BROKER, ROOT, WIRE, parsed, python_files, relative

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500

PARTS_THAT_PRINT = ("pybroker/cli/", "pybroker/pipeline/")
EXAMPLES = ROOT / "examples"
FOLDERS_WITH_DOCSTRINGS = (
    *(BROKER, WIRE, EXAMPLES),
    *(ROOT / folder for folder in ("tests", "compat-tests", "bench", "scripts")),
)

# Spelled in two pieces, so that this file does not find itself.
LEFTOVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


BEGINS_WITH_A_DOCSTRING = re.compile(r'(?:[ \t]*(?:#[^\n]*)?\n)*"""[^"\s]')


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Every function of a file as (name with its path, lines from the signature to the end)."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{relative(path)}:{node.name}", node.end_lineno - node.lineno + 1


def test_functions_are_short() -> None:
    too_long = [
        f"{name}: {lines} lines"
        for path in python_files(BROKER, WIRE, EXAMPLES)
        for name, lines in functions(path)
        if lines > FUNCTION_LINES_MAX
    ]
    assert not too_long, "\n".join(too_long)


def test_files_of_the_broker_are_short() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in python_files(BROKER, WIRE, EXAMPLES)}
    too_long = [f"{path}: {count} lines" for path, count in lines.items() if count > FILE_LINES_MAX]
    assert not too_long, "\n".join(too_long)


def test_every_module_says_what_it_is() -> None:
    silent = [relative(path) for path in python_files(*FOLDERS_WITH_DOCSTRINGS) if is_silent(path.read_text())]
    assert not silent, "\n".join(silent)


def is_silent(code: str) -> bool:
    """Whether a module has something in it and no docstring; most are seen to have one without being parsed."""
    if BEGINS_WITH_A_DOCSTRING.match(code):
        return False
    tree = ast.parse(code)
    return bool(tree.body) and ast.get_docstring(tree) is None


@pytest.mark.parametrize(
    ("code", "silent"),
    [
        ('"""Words."""\n', False),
        ('#!/usr/bin/env python\n# Words.\n\n"""More."""\nimport re\n', False),
        ("'Words.'\n", False),
        ("# Nothing else.\n", False),
        ("import re\n", True),
        ('import re\n"""Too late."""\n', True),
        ("# Words.\nx = 1\n", True),
    ],
)
def test_a_module_that_is_silent_is_noticed(code: str, silent: bool) -> None:
    assert is_silent(code) == silent


def test_nothing_is_left_to_be_done_in_a_comment() -> None:
    sources = python_files(BROKER, WIRE, EXAMPLES, *(ROOT / folder for folder in ("tests", "compat-tests", "bench")))
    scripts = [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in (*sources, *scripts)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if LEFTOVER.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_broker_does_not_print() -> None:
    printing = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files(BROKER, WIRE)
        if not relative(path).startswith(PARTS_THAT_PRINT) and "print" in path.read_text()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing, "\n".join(printing)


# What only its holder knows, or follows from that: ``==`` ends at the first byte that differs, and tells how many fit.
SECRET_NAME = re.compile(r"(?:^|_)(?:passwords?|proof|signature|stored_key|server_key|hmac|digest)$|^_tag$")
SECRET_WORD = re.compile(r"(?:passwords?|proof|signature|stored_key|server_key|hmac|digest|_tag)\b")


def names_of(operand: ast.AST) -> Iterator[str]:
    """All names in it, but for what is asked for its length, or compared by itself, as with None."""
    if isinstance(operand, ast.Compare) or (
        isinstance(operand, ast.Call) and isinstance(operand.func, ast.Name) and operand.func.id == "len"
    ):
        return
    if isinstance(operand, ast.Attribute):
        yield operand.attr
    elif isinstance(operand, ast.Name):
        yield operand.id
    for child in ast.iter_child_nodes(operand):
        yield from names_of(child)


def secrets_compared(code: str) -> Iterator[int]:
    """The lines where ``==`` or ``!=`` compares what is named like a secret, or the result of such a function."""
    if not SECRET_WORD.search(code):
        return  # most modules need not be parsed
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            continue
        operands = [node.left, *node.comparators]
        if any(isinstance(each, ast.Constant) for each in operands):
            continue  # whether it is empty
        if any(SECRET_NAME.search(name) for operand in operands for name in names_of(operand)):
            yield node.lineno


def test_secrets_are_compared_in_constant_time() -> None:
    found = [
        f"{relative(path)}:{line}"
        for path in python_files(BROKER)
        if not relative(path).startswith(PARTS_THAT_PRINT)  # commands compare what one person typed twice
        for line in secrets_compared(path.read_text())
    ]
    assert not found, "hmac.compare_digest takes the same time however much fits:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("password.encode() == expected", 1),
        ("mechanism.hash(proof) != credential.stored_key", 1),
        ("_tag(body, secret) != data[-16:]", 1),
        ("_decoded(signature) == self._expected", 1),
        ("hmac.compare_digest(password, expected)", 0),
        ("len(proof) != len(signature)", 0),
        ("password == ''", 0),
        ("(password is None) == (salted is None)", 0),
    ],
)
def test_a_comparison_of_secrets_is_noticed(code: str, count: int) -> None:
    assert len(list(secrets_compared(code))) == count


WAITING_METHODS = {"communicate", "exception", "flush", "get", "result", "settimeout", "wait"}
WAITING_KEYWORDS = {"timeout", "timeout_s", "patience_s"}
WAITING_NUMBER = re.compile(
    rf"\b(?:{'|'.join(WAITING_KEYWORDS)})\s*=\s*\(?\s*\d|\.(?:{'|'.join(WAITING_METHODS)})\(\s*\(?\s*\d"
)
# Seconds: below, a wait is meant to end in vain; above, it is longer than ``harness.waiting.PATIENCE_S``.
IMPATIENT_FROM_S, IMPATIENT_TO_S = 4, 100


def impatience(code: str) -> Iterator[int]:
    """The lines of calls that wait for so many seconds, written as a number.

    What has no such number is not parsed: the trees of all tests take seconds, and hundreds of MB of each process.
    """
    if not WAITING_NUMBER.search(code):
        return
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        given = [each.value for each in node.keywords if each.arg in WAITING_KEYWORDS]
        if isinstance(node.func, ast.Attribute) and node.func.attr in WAITING_METHODS and len(node.args) == 1:
            given += node.args
        for value in given:
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and IMPATIENT_FROM_S <= seconds <= IMPATIENT_TO_S:
                yield node.lineno


def test_how_long_a_test_waits_stands_in_one_place() -> None:
    """``PATIENCE_S`` is for a busy machine; ten seconds here and thirty there judge the machine, and each another one.

    A wait that is meant to end in vain has a name that says so.  Those of the pipeline are Spark's, of minutes.
    """
    folders = (ROOT / "tests", ROOT / "bench" / "tests", *(ROOT / "compat-tests").glob("*/tests"))
    pipeline = ROOT / "tests" / "pipeline"
    found = [
        f"{relative(path)}:{line}"
        for path in python_files(*folders, ROOT / "compat-tests" / "conformance")
        if not path.is_relative_to(pipeline) and "clients" not in path.parts
        for line in impatience(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("run(command, timeout=60)", 1),
        ("future.result(30)", 1),
        ("connection.settimeout(15.0)", 1),
        ("run(command, timeout=PATIENCE_S)", 0),
        ("producer.flush(0.02)", 0),
        ("run(command, timeout=300)", 0),
        ("settings.get('timeout', 30)", 0),
    ],
)
def test_a_wait_of_its_own_length_is_noticed(code: str, count: int) -> None:
    assert len(list(impatience(code))) == count
