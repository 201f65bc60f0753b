"""Kill -9 of the active controller's broker under administrators' requests to another one: each is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.wire_client import WireClient

BROKERS = (1, 2, 3)
KILLS = 3
REQUESTS, KILLED_BEFORE = 30, 10


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, PybrokerProcess]]:
    store = f"sqlite://{tmp_path}/metadata.db"
    with ExitStack() as stack:
        yield {
            number: stack.enter_context(
                PybrokerProcess(tmp_path / str(number), {"node.id": str(number), "pybroker.metadata": store})
            )
            for number in BROKERS
        }


def controller_of(client: WireClient) -> int:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    controller_id: int = client.ask(request, 0).controller_id
    return controller_id


def new_topic(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], validate_only=False, timeout_ms=30_000)


@pytest.mark.slow
def test_every_request_is_served_while_the_controller_is_killed(brokers: dict[int, PybrokerProcess]) -> None:
    for kill in range(KILLS):
        asked = brokers[BROKERS[kill % len(BROKERS)]]
        with WireClient((asked.host, asked.port)) as client:
            holder = controller_of(client)
            if brokers[holder] is asked:
                asked = brokers[next(number for number in BROKERS if number != holder)]
        with WireClient((asked.host, asked.port)) as client:
            for number in range(REQUESTS):
                client.send(new_topic(f"topic-{kill}-{number}"), 7)
            codes = []
            for number in range(REQUESTS):
                if number == KILLED_BEFORE:
                    brokers[holder].kill()
                (result,) = client.receive().topics
                codes.append(result.error_code)
            # The one that was under way may have been done, and then it is there when it is asked for again.
            assert sorted(codes)[:-1] == [0] * (REQUESTS - 1)
            assert max(codes) in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert controller_of(client) != holder
            brokers[holder].start()
            wait_until(lambda: len(registered(client)) == len(BROKERS), "the killed broker is back")


def registered(client: WireClient) -> set[int]:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    return {broker.broker_id for broker in client.ask(request, 0).brokers}
