"""What a broker asks of its own controller goes through the handlers, and past permissions and quotas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewTopic, TopicCreation
from pybroker.cluster.store.metadata_store import CommitResult, StoreError
from pybroker.handlers import create_topics
from pybroker.handlers.own_requests import serve_own
from pybroker_protocol.errors import ErrorCode
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


def serving(cluster: FakeCluster) -> FakeCluster:
    """The cluster, whose channel is served by the handlers."""
    services = cluster.context(7).services
    services.inter_broker_listener = None
    cluster.standalone.channel.serve = partial(serve_own, services)
    return cluster


@pytest.mark.parametrize("failing", ["too_many", "_result"])
def test_a_handler_that_fails_is_answered_once_and_not_inside_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Before anything is waited for, and behind it."""
    cluster = serving(FakeCluster(tmp_path).start())
    monkeypatch.setattr(create_topics, failing, refuse)
    answers: list[list[TopicCreation]] = []
    cluster.standalone.channel.create_topics([NewTopic("a", 1, 1)], answers.append)
    assert not answers, "no wish is answered inside of the call"
    cluster.world.run()
    assert [[each.error_code for each in answer] for answer in answers] == [[ErrorCode.UNKNOWN_SERVER_ERROR]]
    cluster.close()


def test_a_cordon_that_the_store_could_not_take_is_told_when_it_is_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = serving(FakeCluster(tmp_path).start())
    log_dirs = cluster.cache.image.brokers[1].log_dirs
    with monkeypatch.context() as broken:
        failed = CommitResult(error=StoreError("the disk is full"))
        broken.setattr(cluster.store, "commit", lambda _, done: cluster.env.timers.call_soon(done, failed))
        cluster.standalone.cordon(log_dirs)
        cluster.world.run()
    assert cluster.cache.image.brokers[1].cordoned_log_dirs == ()
    cluster.standalone.cordon(log_dirs)
    cluster.world.run()
    assert cluster.cache.image.brokers[1].cordoned_log_dirs == log_dirs
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
