"""Throttles of moves while brokers come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.admin import ConfigResource
from kafka.errors import UnknownBrokerIdError

from pybroker.cli.throttles import Move, find_throttles, set_throttle


class Client:
    """One that hears of the end of broker 1 between the question who runs and the next one."""

    def __init__(self) -> None:
        self._running = [1, 2, 3]
        self.altered: list[str] = []

    def describe_cluster(self) -> dict[str, Any]:
        running, self._running = self._running, [2, 3]
        return {"brokers": [{"broker_id": each} for each in running]}

    def _ask(self, resources: Sequence[ConfigResource]) -> list[str]:
        names = [resource.name for resource in resources]
        if "1" in names:
            raise UnknownBrokerIdError(1)
        return names

    def alter_configs(self, resources: Sequence[ConfigResource], raise_on_unknown: bool) -> dict[str, Any]:
        self.altered = self._ask(resources)
        answers: dict[str, dict[str, str]] = {"broker": {}, "topic": {}}
        for name in self.altered:
            answers["broker" if name.isdigit() else "topic"][name] = "OK"
        return answers

    def describe_configs(self, resources: Sequence[ConfigResource], config_filter: str) -> dict[str, Any]:
        self._ask(resources)
        return {}


def test_a_broker_that_ends_while_a_throttle_is_set_is_passed_over() -> None:
    client = Client()
    set_throttle(client, [Move("orders", 0, (2, 3), (1,))], 1_000)
    assert client.altered == ["2", "3", "orders"]


def test_a_broker_that_ends_while_throttles_are_looked_for_has_none() -> None:
    assert find_throttles(Client(), ["orders"]) == []
