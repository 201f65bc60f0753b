"""CHANGELOG.md has the form that the release workflow reads, and entries that a reader takes in at a glance.

Its links are held by ``test_pages``.
"""

from __future__ import annotations

import re

import pybroker
from tests.source_tree import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}  # those of Keep a Changelog
SECTION_LINES_MAX = 150
SENTENCE_WORDS_MAX = 30


def sections() -> dict[str, list[str]]:
    """The lines of each version by its heading, the newest first."""
    parts = re.split(r"^## (.*)\n", CHANGELOG.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.splitlines() for text in parts[2::2]), strict=True))


def entries() -> list[str]:
    return [line for lines in sections().values() for line in lines if line.startswith("- ")]


def sentences(entry: str) -> list[str]:
    """The sentences of an entry, with the text of a link in place of the link."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", entry.removeprefix("- "))
    return re.split(r"(?<=[.!?])\s+", text)


def test_the_newest_section_is_unreleased_or_the_version_of_the_package() -> None:
    (newest, *_) = sections()
    version = re.escape(pybroker.__version__)
    assert re.fullmatch(rf"Unreleased|{version} - (\d{{4}}-\d{{2}}-\d{{2}}|not released yet)", newest)


def test_every_version_has_the_sections_of_keep_a_changelog() -> None:
    for heading, lines in sections().items():
        kinds = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
        assert kinds, heading
        assert set(kinds) <= KINDS, heading
        assert len(lines) < SECTION_LINES_MAX, heading


def test_every_entry_is_one_line_below_a_section_and_no_line_goes_on() -> None:
    for lines in sections().values():
        first = next(number for number, line in enumerate(lines) if line.startswith("### "))
        assert not [line for line in lines[first:] if line and not re.match(r"- |###", line)]


def test_every_entry_is_of_whole_and_short_sentences() -> None:
    assert entries()
    assert not [entry for entry in entries() if not entry.endswith(".")]
    long = [each for entry in entries() for each in sentences(entry) if len(each.split()) > SENTENCE_WORDS_MAX]
    assert not long
