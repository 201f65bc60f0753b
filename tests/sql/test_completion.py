"""Names that Tab completes, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pybroker.cli.terminal.failure import CommandFailed
from pybroker.sql.prompt import Names
from tests.sql.test_session import World


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", [{"id": 1, "remarkable": 2}])
    yield found
    found.engine.close()


def completed(world: World, text: str) -> list[str]:
    return [each.text for each in Names(world.session).get_completions(Document(text), CompleteEvent())]


def test_topics_columns_and_keywords_are_completed(world: World) -> None:
    world.ask("SELECT id FROM orders")
    assert completed(world, "SELECT * FROM ord") == ["orders", "ORDER BY"]
    assert completed(world, "SELECT rem") == ["remarkable"]


def test_completion_is_silent_while_the_cluster_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> list[str]:
        raise CommandFailed("127.0.0.1:9092 does not answer")

    world.ask("SELECT id FROM orders")
    monkeypatch.setattr(world.cluster, "topics", away)
    assert completed(world, "SELECT * FROM ord") == ["ORDER BY"]
    assert completed(world, "SELECT rem") == ["remarkable"]


def test_name_that_sql_takes_for_more_than_one_is_completed_in_quotes(world: World) -> None:
    world.cluster.produce("web-clicks.v1", [{"a b": 1, "order": 2, "plain": 3}])
    world.ask('SELECT * FROM "web-clicks.v1"')
    assert completed(world, "SELECT * FROM web") == ['"web-clicks.v1"']
    assert completed(world, "SELECT * FROM web-cl") == ['"web-clicks.v1"']
    assert completed(world, 'SELECT * FROM "web-cl') == ['"web-clicks.v1"']
    assert completed(world, "SELECT a") == ['"a b"', "AS", "AND", "ASC", "AVG"]
    assert completed(world, "SELECT w.pl") == ["plain"]
    assert completed(world, "SELECT orde") == ["orders", '"order"', "ORDER BY"]
