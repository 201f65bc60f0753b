"""Prose of the project, cut into sentences: pages, docstrings, and the messages of logs and errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.source_tree import parsed

SENTENCE_WORDS_MAX = 30
# An idiom that makes a reader look for the subject.
IDIOM = re.compile(r"\b(nobody|whoever|is told)\b|See the module's docstring", re.IGNORECASE)

_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_BLOCK = re.compile(r"^```.*?^```$|^<!-- ([\w-]+):begin -->.*?^<!-- \1:end -->$", re.MULTILINE | re.DOTALL)
_NEW_SENTENCE = re.compile(r"\n\s*\n| · |\n(?=\s*(?:[-*]|\d+\.) )|(?<=[.!?])[)*]*\s+|\n(?=\|)|\|")


class Sentence(NamedTuple):
    """A sentence of a file."""

    path: Path
    text: str

    @property
    def is_long(self) -> bool:
        return len(self.text.split()) > SENTENCE_WORDS_MAX

    @property
    def is_idiom(self) -> bool:
        return IDIOM.search(self.text) is not None


def sentences(text: str) -> list[str]:
    """Sentences of a text in which blank lines, list items and cells of tables end one; a link is its words."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return [" ".join(part.split()) for part in _NEW_SENTENCE.split(text) if part and part.strip()]


def of_page(path: Path) -> Iterator[Sentence]:
    """What is written by hand on a page: no code, and no generated part."""
    yield from (Sentence(path, each) for each in sentences(_BLOCK.sub("", path.read_text())))


def of_docstrings(path: Path) -> Iterator[Sentence]:
    """Of all docstrings of a module, without what is indented, which is drawn or code."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = re.sub(r"^ {4,}.*$", "", ast.get_docstring(node) or "", flags=re.MULTILINE)
            yield from (Sentence(path, each) for each in sentences(text))


def of_messages(path: Path) -> Iterator[Sentence]:
    """The texts of lines of log, and of exceptions that are raised."""
    for node in ast.walk(parsed(path)):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not (isinstance(node, ast.Raise) or _logs(call)):
            continue
        for text in (_constant(argument) for argument in call.args):
            yield from (Sentence(path, each) for each in sentences(text))


def _logs(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LEVELS


def _constant(argument: ast.expr) -> str:
    """The words of a string, with a word in place of each value."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in argument.values)
    return ""
