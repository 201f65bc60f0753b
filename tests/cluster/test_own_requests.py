"""What a broker asks of its own controller goes through the handlers, and past permissions and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.cluster.operations import NewTopic
from pybroker.handlers import create_topics
from pybroker.handlers.own_requests import serve_own
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

from .fakes import FakeCluster
from .members import Members


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    yield cluster
    cluster.close()


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("this is not asked for a broker's own wish")


def test_a_brokers_own_wish_asks_neither_the_authorizer_nor_a_quota(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path).start()
    services = cluster.context(7).services
    services.inter_broker_listener = None
    judge: Any = SimpleNamespace(allows=refuse, mutations=refuse)
    services.authorizer = services.quotas = judge
    answers: list[Any] = []
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=False)
    serve_own(services, request, 7, answers.append)
    assert not answers, "no wish is answered inside of the call"
    cluster.world.run()
    ((created,),) = [answer.topics for answer in answers]
    assert (created.name, created.error_code) == ("a", 0)
    cluster.close()


def test_configs_of_a_topic_that_a_broker_needs_are_not_described(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of topics that Metadata creates are answered for in one turn of the loop."""
    members.start(1, 2)
    monkeypatch.setattr(create_topics, "new_topic_entries", refuse)
    for broker_id, member in members.by_id.items():
        topic = NewTopic(f"of-{broker_id}", 1, 1)
        (created,) = members.ask(partial(member.channel.create_topics, [topic]))
        assert (created.name, created.error_code) == (topic.name, 0)
