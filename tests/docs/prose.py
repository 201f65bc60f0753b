"""Prose of the project, cut into sentences: pages, docstrings, and the texts of the code, as of logs and errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.source_tree import parsed

SENTENCE_WORDS_MAX = 30
# An idiom that makes a reader look for the subject.
IDIOM = re.compile(r"\b(nobody|somebody|anybody|no one|whoever|is told)\b|See the module's docstring", re.IGNORECASE)

_SQL = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|CREATE) ")
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


def of_texts(path: Path) -> Iterator[Sentence]:
    """Of all strings of a module that are phrases: messages of logs and errors, wherever they are put together.

    Without docstrings, and without what has line breaks in it, which is a script, a statement of SQL or a table.
    """
    tree = parsed(path)
    passed_over = {id(docstring) for docstring in _docstrings(tree)}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.JoinedStr):
            passed_over.update(id(part) for part in node.values)
        text = _text(node)
        if " " in text and "\n" not in text.strip() and not _SQL.match(text):
            yield from (Sentence(path, each) for each in sentences(text))


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """What stands alone as a statement: docstrings, also behind an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _text(node: ast.AST) -> str:
    """The words of a string, with a word in place of each value; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
    return ""
