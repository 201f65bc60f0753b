"""What an operator does to a cluster by the command line, whatever its brokers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.command import CommandLine

from .load import TOPIC, Load


def described(cli: CommandLine, topic: str = TOPIC) -> list[dict[str, Any]]:
    """The partitions of a topic."""
    (found,) = cli.json("topics", "describe", topic)
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


def grow_and_retire_the_first(cli: CommandLine, load: Load, fourth: int, stop_the_first: Callable[[], None]) -> None:
    """Have a broker that is new lead partitions of the load, and take broker 1 out of the cluster."""
    cli.ok("partitions", "reassign", "--all", "--wait")
    cli.ok("partitions", "elect", "--all")
    assert any(each["leader"] == fourth for each in described(cli))
    load.wait_for_progress()
    cli.ok("partitions", "reassign", "--all", "--brokers", f"2,3,{fourth}", "--wait")
    assert all(sorted(each["replicas"]) == [2, 3, fourth] for each in described(cli))
    load.wait_for_progress()
    stop_the_first()
    cli.ok("brokers", "unregister", "1")
    assert [each["id"] for each in cli.json("brokers", "list")] == [2, 3, fourth]
