"""The pages for users, cut into their examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from harness.waiting import PATIENCE_S

from tests.docs import ending
from tests.source_tree import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
# What developers read beside the source.
SOURCES = ("pybroker", "protocol", "compat-tests", "bench", "tests", "examples")
DEVELOPER_PAGES = (
    ROOT / "DESIGN.md",
    *sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("README.md")),
)
_CONSUMER_TIMEOUT = re.compile(r"consumer_timeout_ms=\d+")
# What the pages tell to start listens here.
ADDRESS = "127.0.0.1:9092"


class Example(NamedTuple):
    """One block of code, and what the page says that it prints (the block ``text`` right behind it)."""

    page: Path
    language: str
    code: str
    prints: str | None

    def __str__(self) -> str:
        return f"{self.page.name}: {self.code.strip().splitlines()[-1]}"


_BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def examples(language: str, page: Path | None = None) -> list[Example]:
    """The pages' blocks in a language, in the order in which they stand."""
    return [
        Example(path, *match.groups())
        for path in ([page] if page else PAGES)
        for match in _BLOCK.finditer(path.read_text())
        if match[1] == language
    ]


def anchors(page: Path) -> set[str]:
    """What a link to the page may name behind its `#`: its headings, and former ones that it keeps as ids."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    kept = set(re.findall(r'^<a id="([\w-]+)"></a>$', text, re.MULTILINE))
    return kept | {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def pasted(example: Example, code: str) -> str:
    """What an interactive Python prints when the code is pasted into it, and Enter pressed once more.

    A consumer that ends when nothing has come for a while ends here at the end of its topics: a while on the page is
    seconds, and a busy machine needs more of them.
    """
    code, ends_by_itself = _CONSUMER_TIMEOUT.subn(f"consumer_timeout_ms={1000 * PATIENCE_S:.0f}", code)
    if ends_by_itself:
        code, loops = re.subn(
            r"\bin consumer\b", f"in __import__('{ending.__name__}').docs.ending.until_the_end(consumer)", code
        )
        assert loops, "the consumer ends by itself, and nothing reads it"
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=f"{code}\n",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Error" not in done.stderr, done.stderr
    return done.stdout


# What pasting shows besides: the values of expressions, which are objects and counts.
_ECHO = re.compile(r"<.*>|\d+|True")


def without_echo(printed: str, wanted: str) -> str:
    """What was printed, without the values of expressions that the page does not show."""
    shown = wanted.splitlines()
    return "".join(f"{line}\n" for line in printed.splitlines() if line in shown or not _ECHO.fullmatch(line))
