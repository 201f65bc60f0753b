"""Prose gets plainer: how many long sentences and idioms there are, by kind of text, may only fall.

A sentence of more than thirty words, and one without a subject that one can see ("nobody", "is told"), is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.docs.pages import DEVELOPER_PAGES, PAGES
from tests.docs.prose import Sentence, of_docstrings, of_page, of_texts, sentences
from tests.source_tree import BROKER, ROOT, WIRE, python_files, relative

SOURCES = python_files(BROKER, WIRE)
SHOWN = 20
# kind: files, how each is read, how many long sentences and how many idioms are left.  Fewer: write down the new count.
LEFT: dict[str, tuple[Iterable[Path], Callable[[Path], Iterable[Sentence]], int, int]] = {
    "pages": (PAGES, of_page, 0, 0),
    "pages for developers": (DEVELOPER_PAGES, of_page, 0, 0),
    "docstrings": (SOURCES, of_docstrings, 0, 0),
    "texts of the code": (SOURCES, of_texts, 0, 0),
}


def shown(found: list[Sentence]) -> str:
    """Those of the files that were changed last."""
    found.sort(key=lambda sentence: -sentence.path.stat().st_mtime)
    return "\n".join(f"{relative(sentence.path)}: {sentence.text}" for sentence in found[:SHOWN])


@pytest.mark.parametrize("kind", LEFT)
def test_sentences_are_short_and_have_a_subject(kind: str) -> None:
    paths, read, long_max, idioms_max = LEFT[kind]
    found = [sentence for path in paths for sentence in read(path)]
    long, idioms = [each for each in found if each.is_long], [each for each in found if each.is_idiom]
    assert found
    assert len(long) <= long_max, f"{len(long)} long sentences in {kind}\n{shown(long)}"
    assert len(idioms) <= idioms_max, f"{len(idioms)} idioms in {kind}\n{shown(idioms)}"


def test_sentences_of_a_text_are_told_apart() -> None:
    text = "One (a [link](x.md)).  Two\ngoes on.\n- three: `a.b`\n- four\n\n| five | six. Seven |\n|---|---|\n"
    assert sentences(text)[:7] == ["One (a link).", "Two goes on.", "- three: `a.b`", "- four", "five", "six.", "Seven"]
    assert Sentence(ROOT, "word " * 31).is_long
    assert not Sentence(ROOT, "word " * 30).is_long
    assert Sentence(ROOT, "Whoever waits").is_idiom
    assert Sentence(ROOT, "before somebody asks").is_idiom
    assert not Sentence(ROOT, "a client waits").is_idiom


def test_a_message_is_found_wherever_it_is_put_together(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text(
        '"""No message."""\n'
        'line = "broker %d is gone"\n'
        "log.error(line, 1)\n"
        'reason = f"{size} bytes of {name}" if size else "no bytes"\n'
        "raise Failure(reason)\n"
        'database.execute("SELECT 1 FROM t")\n'
    )
    assert [sentence.text for sentence in of_texts(code)] == ["broker %d is gone", "x bytes of x", "no bytes"]
