"""Throttles of moves while brokers come and go."""

from __future__ import annotations

from typing import Any

from pybroker.cli.connection.retries import UnknownBroker
from pybroker.cli.requests.throttles import Move, find_throttles, set_throttle
from pybroker_protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pybroker_protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from pybroker_protocol.schema import Request


class Client:
    """One that hears of the end of broker 1 between the question who runs and the next one."""

    def __init__(self) -> None:
        self._running = [1, 2, 3]
        self.altered: list[str] = []

    def metadata(self) -> MetadataResponse:
        running, self._running = self._running, [2, 3]
        brokers = [MetadataResponseBroker(node_id=each, host="localhost", port=9092) for each in running]
        return MetadataResponse(brokers=brokers, topics=[])

    def ask(self, request: Request, node_id: int | None, **_versions: Any) -> Any:
        if node_id == 1:
            self.altered.clear()
            raise UnknownBroker("no broker with the id 1 runs")
        assert hasattr(request, "resources")
        (resource,) = request.resources
        kind = resource.resource_type
        if isinstance(request, IncrementalAlterConfigsRequest):
            self.altered.append(resource.resource_name)
            outcome = AlterConfigsResourceResponse(error_code=0, resource_type=kind, resource_name="")
            return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[outcome])
        described = DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=kind, resource_name="", configs=[]
        )
        return DescribeConfigsResponse(throttle_time_ms=0, results=[described])


def test_a_broker_that_ends_while_a_throttle_is_set_is_passed_over() -> None:
    client: Any = Client()
    set_throttle(client, [Move("orders", 0, (2, 3), (1,))], 1_000)
    assert client.altered == ["2", "3", "orders"]


def test_a_broker_that_ends_while_throttles_are_looked_for_has_none() -> None:
    client: Any = Client()
    assert find_throttles(client, ["orders"]) == []
