"""What a broker asks of its own controller goes through the handlers, and past permissions and quotas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pybroker.handlers.own_requests import serve_own
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

from .fakes import FakeCluster


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("a broker's own wish was judged")


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
