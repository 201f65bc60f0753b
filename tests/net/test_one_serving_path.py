"""The fast paths ask every rule that the ordinary way asks: one that is written once is seen through both.

The rules are planted where the handlers and the partition ask them, and nowhere in ``net``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.batches import batch
from harness.wire import Client

from pybroker.coordinators.group.offsets import offset_operations
from pybroker.handlers import offset_commit, produce
from pybroker.handlers.authorizer import AuthorizableRequestContext
from pybroker.handlers.repeated_fetch import RepeatedFetch
from pybroker.net import commit_fast_path, produce_fast_path
from pybroker.replication.consumer_fetch import ConsumerFetch
from pybroker.replication.fetch_session import FetchPartition
from pybroker.replication.partition import Partition
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.authorizers import AnyOfType
from tests.broker.wire_client import fetch_request, produce_request

Plant = Callable[[pytest.MonkeyPatch, Broker], None]
WAYS = ("ordinary", "short")
GROUP, TOPIC = "g", "t"
VERSION, FETCH_VERSION = 9, 12
POLICY = ErrorCode.POLICY_VIOLATION  # what no rule of these requests answers with


class Denying(AnyOfType):
    """Denies one operation on one resource, and remembers who asked."""

    def __init__(self, operation: int, resource_type: int, name: str) -> None:
        self._denied = operation, resource_type, name
        self.seen: set[tuple[int, int, str | None, str]] = set()

    def allows(
        self,
        ctx: AuthorizableRequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """See ``Authorizer``."""
        self.seen.add((ctx.api_key, ctx.api_version, ctx.client_id, ctx.principal))
        return (operation, resource_type, name) != self._denied


def deny(operation: int, resource_type: int, name: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch, broker: Broker) -> None:
        patch.setattr(broker._running().services, "authorizer", Denying(operation, resource_type, name))

    return plant


def refuse(where: object, name: str, error_code: int) -> Plant:
    return lambda patch, _: patch.setattr(where, name, lambda *_: error_code)


def refuse_reading(error_code: int) -> Plant:
    def read(_: ConsumerFetch, wanted: FetchPartition, *__: object) -> int:
        wanted.answer(error_code)
        return 0

    return lambda patch, _: patch.setattr(ConsumerFetch, "_read", read)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC)
        yield running


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """By which way requests that repeat themselves go."""
    way: str = request.param
    request.getfixturevalue("fast_paths_from_the_first_request" if way == "short" else "without_fast_paths")
    return way


class FastPaths:
    """Counts what the fronts hand over."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        for module, name in ((produce_fast_path, "append_run"), (commit_fast_path, "commit_run")):
            patch.setattr(module, name, self._counted(getattr(module, name)))
        patch.setattr(RepeatedFetch, "begin", self._counted(RepeatedFetch.begin))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.calls += 1
            return real(*arguments)

        return counted


@pytest.fixture
def fast_paths(monkeypatch: pytest.MonkeyPatch) -> FastPaths:
    return FastPaths(monkeypatch)


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client((broker.host, broker.port)) as connected:
        connected.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
        yield connected


def produced(client: Client) -> int:
    """The error code of one more batch."""
    answered = client.ask(produce_request(TOPIC, batch(b"v")), VERSION)
    return int(answered.responses[0].partition_responses[0].error_code)


def committed(client: Client) -> int:
    """The error code of one more commit."""
    offset = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=bytes(16), partitions=[offset])],
    )
    answered = client.ask(request, VERSION)
    return int(answered.topics[0].partitions[0].error_code)


def fetched(client: Client) -> int:
    """The error code of one more fetch."""
    answered = client.ask(fetch_request(TOPIC, 0), FETCH_VERSION)
    return int(answered.responses[0].partitions[0].error_code)


RULES_OF_PRODUCE = {
    "permission": (deny(AclOperation.WRITE, Resource.TOPIC, TOPIC), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "request": (refuse(produce, "_refusal_of_request", POLICY), POLICY),
    "topic": (refuse(produce, "_refusal_of_topic", POLICY), POLICY),
    "partition": (refuse(produce, "_refusal_of_partition", POLICY), POLICY),
    "replicas": (refuse(Partition, "_refusal", ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.NOT_ENOUGH_REPLICAS),
}
RULES_OF_COMMIT = {
    "permission for the group": (
        deny(AclOperation.READ, Resource.GROUP, GROUP),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "permission for the topic": (
        deny(AclOperation.READ, Resource.TOPIC, TOPIC),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "group": (refuse(offset_commit, "_refusal_of_group", POLICY), POLICY),
    "topic": (refuse(offset_commit, "_refusal_of_topic", POLICY), POLICY),
    "decision": (refuse(offset_operations, "_accept", POLICY), POLICY),
}
RULES_OF_FETCH = {
    "permission": (deny(AclOperation.READ, Resource.TOPIC, TOPIC), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "read": (refuse_reading(POLICY), POLICY),
}
CASES = [
    *(pytest.param(fetched, *rule, id=f"fetch: {name}") for name, rule in RULES_OF_FETCH.items()),
    *(pytest.param(produced, *rule, id=f"produce: {name}") for name, rule in RULES_OF_PRODUCE.items()),
    *(pytest.param(committed, *rule, id=f"commit: {name}") for name, rule in RULES_OF_COMMIT.items()),
]


@pytest.mark.parametrize(("ask", "plant", "error_code"), CASES)
def test_a_rule_that_is_written_once_holds_for_both_ways(
    broker: Broker,
    client: Client,
    way: str,
    fast_paths: FastPaths,
    ask: Callable[[Client], int],
    plant: Plant,
    error_code: int,
) -> None:
    assert [ask(client) for _ in range(3)] == [0, 0, 0]
    assert fast_paths.calls == (2 if way == "short" else 0), "what is learned from the first serves the others"
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, broker)
        assert [ask(client), ask(client)] == [error_code, error_code]
    assert ask(client) == 0, "the rule is gone"


@pytest.mark.parametrize(("ask", "api_key"), [(produced, 0), (fetched, 1), (committed, 8)])
def test_permission_is_asked_for_by_whom_the_request_is_from(
    broker: Broker, client: Client, way: str, ask: Callable[[Client], int], api_key: int
) -> None:
    asked = Denying(AclOperation.ALTER, Resource.CLUSTER, "nobody asks for this")
    broker._running().services.authorizer = asked
    assert [ask(client) for _ in range(3)] == [0, 0, 0]
    version = FETCH_VERSION if ask is fetched else VERSION
    assert asked.seen == {(api_key, version, "test", "User:ANONYMOUS")}
