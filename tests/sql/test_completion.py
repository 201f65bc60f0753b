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
