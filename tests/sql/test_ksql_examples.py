"""The page of ksqlDB's examples: each statement is read, planned and refused by nothing.

What Spark makes of them is ``tests/docs/test_supervisor_pages.py``'s.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.sql.parsing.statements import CreateAs, InsertSelect, Query, statements
from tests.docs.pages import Example, examples
from tests.source_tree import ROOT
from tests.sql.test_standing_statements import World

PAGE = ROOT / "docs" / "ksqldb-examples.md"
BLOCKS = examples("sql", PAGE)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    found = World()
    yield found
    found.engine.close()


def test_statements_of_each_example_are_planned_and_its_questions_answered(world: World) -> None:
    for block in BLOCKS:
        world.ask(block.code)
    asked = [each for block in BLOCKS for each in statements(block.code)]
    queries = [each for each in asked if isinstance(each, (CreateAs, InsertSelect))]
    assert len(queries) > 25
    assert len(world.supervisor.configs) == len(queries) - sum(
        isinstance(each, CreateAs) and each.replaces for each in queries
    )


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_example_shows_the_rows_of_its_questions(block: Example) -> None:
    questions = [each for each in statements(block.code) if isinstance(each, Query)]
    assert questions
    assert block.prints is not None
